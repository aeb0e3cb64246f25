"""Runs the stages of a study: corpus, sweep, training and evaluation. Each can be resumed."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.controllers.uniform import Uniform
from halfway.curriculum import Session, UserError, chain
from halfway.curriculum.support.atomic import read_json, read_json_lines, reading, write_json
from halfway.experiments.propel.config import BASE, ArmConfig
from halfway.experiments.propel.study import Study, build_engine, frozen_policy
from halfway.experiments.propel.study_summary import AGAIN, evaluation_kind
from halfway.trainers.contracts import Recorder
from halfway.trainers.learner.learner import PolicyGradientLearner, saved_version
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import Budget, CheckpointOptions, FillOptions
from halfway.trainers.loop.manifest import damage
from halfway.trainers.loop.training import Training
from halfway.trainers.policy import Policy
from halfway.trainers.propel.corpus import (
    Corpus,
    build_corpus,
    costs,
    labelled_rows,
    surface,
    try_all,
    write_rows,
)
from halfway.trainers.propel.generator_scores import (
    CheckpointHealth,
    check_health,
    choose_checkpoint,
    numeric_features,
    score_generator,
)
from halfway.trainers.propel.probes.activations import ActivationStore, extract
from halfway.trainers.propel.probes.heads import Probe, Site, load_probe
from halfway.trainers.propel.probes.scores import Floats
from halfway.trainers.propel.probes.splits import RowSplit, downsample, random_split
from halfway.trainers.propel.probes.surface import lookups
from halfway.trainers.propel.probes.sweep import (
    Cell,
    choose,
    ensemble,
    permuted_control,
    read_cells,
    sweep,
)
from halfway.trainers.propel.propel_options import RewardOptions
from halfway.trainers.propel.rewards import ProbeReward, Reward, SolverReward, shape
from halfway.trainers.propel.rollouts import ReportingLearner, RewardedRollouts, Writing, prompt_set
from halfway.trainers.propel.writing import Author, Written

SWEEP_AGAIN, TRAIN_AGAIN = "remove it and sweep again", "remove it and train again"
Progress = Callable[[int, int], None]
ProbeAt = tuple[Probe, Site]


class _Sweep(msgspec.Struct):
    """The fields that later stages read from sweep.json."""

    chosen: Cell
    policy_sample_oracle_attempts: int = 0


class _Choice(msgspec.Struct):
    """choice.json."""

    chosen: CheckpointHealth
    looks: list[CheckpointHealth]
    base: CheckpointHealth


def silent(done: int, total: int) -> None:
    """Ignore progress."""


def run_corpus(study: Study, progress: Progress = silent) -> Corpus:
    """Write, judge and label the texts of the corpus, and write its figures to corpus.json."""
    config = study.config
    corpus = build_corpus(
        study.base_author,
        study.solver,
        config.corpus,
        study.provenance,
        study.corpus_folder,
        study.stream.at("corpus"),
        progress,
    )
    useful = [row for row in corpus.labelled if study.solver.useful(row.passed)]
    record = {
        "generations": len(corpus.rows),
        "valid": sum(not row.invalid for row in corpus.rows),
        "labelled": len(corpus.labelled),
        "useful": len(useful),
        "trials": sum(row.attempts for row in corpus.rows),
        "oracle_attempts": sum(row.oracle_attempts for row in corpus.rows),
        "invalid": dict(Counter(row.invalid for row in corpus.rows if row.invalid).most_common()),
        "solve_counts": np.bincount(
            [row.passed for row in corpus.labelled], minlength=study.solver.attempts + 1
        ).tolist(),
    }
    write_json(study.folder / "corpus.json", record)
    return corpus


def run_sweep(study: Study, progress: Progress = silent) -> dict[str, Any]:
    """Read the corpus with the reference model, fit every probe, choose one, and compare it with simple predictors.

    The simple predictors are lookups of surface features, and probes fitted to permuted labels.

    Returns:
        The contents of sweep.json.
    """
    file = study.folder / "sweep.json"
    options, corpus = study.config.sweep, study.corpus
    rows = labelled_rows(corpus, study.solver)
    plain = json.loads(json.dumps({"sweep": asdict(options), "activations": asdict(study.config.activations)}))
    if found := read_json(file, SWEEP_AGAIN, _Sweep):
        return found
    store = _activations(study, corpus)
    written = _policy_sample(study)
    cells = sweep(store, rows, options, study.seed, study.sweep_folder, _reward_variance(study, written), progress)
    choice = choose(cells, options)
    split = random_split(rows.labels_N, study.seed, options.split)
    balanced = len(downsample(rows.labels_N, study.seed))
    trained = len(downsample(rows.labels_N[split.train], study.seed))
    weighted = choice.cell.balance == "weighted"
    features = surface(corpus, options.surface)
    probe_M = _test_logits(study, store, choice.cell, split)
    account = costs(
        corpus,
        rows,
        trained=len(split.train) if weighted else trained,
        discarded=0 if weighted else len(rows.labels_N) - balanced,
    )
    record = {
        **plain,
        "chosen": asdict(choice.cell),
        "calibrated": choice.calibrated,
        "tied": choice.tied,
        "permuted": permuted_control(store, rows, choice.cell, options, study.seed),
        "surface": [asdict(one) for one in lookups(features, rows.labels_N, split, probe_M)],
        "costs": asdict(account),
        "truncated": store.truncated,
        "policy_sample_oracle_attempts": sum(one.candidate.oracle_attempts for one in written),
    }
    from halfway.experiments.propel.figures import heat_map

    heat_map(cells, choice.cell, study.folder / "sweep.png")
    write_json(file, record)
    return record


def _test_logits(study: Study, store: ActivationStore, cell: Cell, split: RowSplit) -> Floats:
    """A cell's logits for the test rows."""
    probe, site = load_probe(study.sweep_folder / cell.file, study.reference)
    return probe.logits(np.asarray(store.features(site.layer, site.pooling))[split.test], calibrated=False)


def _activations(study: Study, corpus: Corpus) -> ActivationStore:
    readings = [study.reader.reading(row.id, row.prompt, row.text) for row in corpus.labelled]
    options = study.config.activations
    return extract(study.base.model, readings, options, study.folder / "activations", study.reference)


def _policy_sample(study: Study) -> list[Written]:
    """Write texts with the base policy, judged as in training."""
    author = replace(study.base_author, panel=study.panel if study.config.reward.oracles else None)
    return author.write(study.config.sweep.policy_samples, study.stream.at("policy sample"))


def _reward_variance(study: Study, written: Sequence[Written]) -> Callable[[Probe, Site], float]:
    """Make a function for the variance of the study's reward by a probe, over texts of the base policy.

    The reference model reads the texts only once, for all probes.
    """
    config = study.config
    reward = config.reward if config.reward.kind != "solver" else RewardOptions()
    full = [i for i, one in enumerate(written) if one.text]
    if not full:
        raise UserError("sweep: the base generator writes only empty texts; use another model or prompt")
    readings = [study.reader.reading(str(i), written[i].prompt, written[i].text) for i in full]
    folder = study.folder / "policy_sample"
    store = extract(study.base.model, readings, config.activations, folder, study.reference)
    valid_N = np.asarray([one.valid for one in written])

    def variance(probe: Probe, site: Site) -> float:
        logits_N = np.full(len(written), np.nan)
        logits_N[full] = probe.logits(store.features(site.layer, site.pooling), reward.calibrated)
        return float(shape(logits_N, valid_N, reward).var())

    return variance


def read_sweep(study: Study) -> dict[str, Any]:
    """Read the result of the sweep. Raises UserError if there was none."""
    file = study.folder / "sweep.json"
    if not file.exists():
        raise UserError(f"{study.folder}: holds no finished sweep; make one with `halfway propel sweep`")
    return read_json(file, SWEEP_AGAIN, _Sweep)


def chosen_cell(study: Study) -> Cell:
    """Read the sweep's chosen cell. Raises UserError if there was no sweep."""
    with reading(study.folder / "sweep.json", SWEEP_AGAIN):
        return Cell.from_record(read_sweep(study)["chosen"])


def build_reward(study: Study, arm: str, options: RewardOptions) -> Reward:
    """Build the reward of an arm."""
    if options.kind == "solver":
        return SolverReward(study.solver, options)
    members = ensemble(read_cells(study.sweep_folder), chosen_cell(study), options.ensemble, study.config.sweep)
    probes = [load_probe(study.sweep_folder / cell.file, study.reference) for cell in members]
    return ProbeReward(study.reader, tuple(probes), options)


def run_training(study: Study, arm: str, recorders: Sequence[Recorder] = ()) -> dict[str, Any]:
    """Train the generator of one arm, and choose its checkpoint.

    Returns:
        The contents of choice.json.
    """
    config, folder = study.config.arm(arm), study.arm_folder(arm)
    file = folder / "choice.json"
    if found := read_json(file, TRAIN_AGAIN, _Choice):
        return found
    loaded = study.generator(config.generator.model)
    folder.mkdir(parents=True, exist_ok=True)
    if config.training.steps:
        training = build_training(study, arm, config, loaded)
        training.recorders = recorders
        training.train()
    record = _choose(study, arm, config, loaded)
    write_json(file, record)
    return record


def build_training(study: Study, arm: str, config: ArmConfig, loaded: Policy) -> Training:
    """Build an arm's training; `Training.train` resumes by itself."""
    folder, rollouts, options = study.arm_folder(arm), config.generator.rollouts, config.training
    reward = build_reward(study, arm, config.reward)
    policy = study.trainable_copy(loaded, config.generator.model.lora)
    learner = PolicyGradientLearner(
        policy, options.learner, loaded.padding, rollouts.temperature, tokenizer=loaded.tokenizer
    )
    engine = build_engine(loaded, rollouts, learner.policy)
    texts = loaded.collector(engine, Writing(), rollouts.max_response_tokens)
    panel = study.panel if config.reward.oracles else None
    rewarded = RewardedRollouts(texts, loaded.tokenizer, study.domain, reward, config.reward, panel)
    prompts = prompt_set(study.domain, options.prompts, study.stream.at("prompts"))
    return Training(
        folder=folder,
        session=Session(prompts, chain(("uniform", Uniform())), rollouts.num_rollouts, study.seed),
        rollouts=rewarded,
        learner=ReportingLearner(learner, rewarded),
        sync=lambda: engine.sync(learner.policy, learner.policy_version),
        fill=FillOptions(policy="once", groups=options.groups, zero_variance="keep"),
        budget=Budget(steps=options.steps),
        seed=study.seed,
        checkpoints=_checkpoints(folder, options.save_every),
    )


def _checkpoints(folder: Path, every: int) -> Checkpoints:
    return Checkpoints(folder / "checkpoints", CheckpointOptions(every=every, keep=1_000_000))


def _choose(study: Study, arm: str, config: ArmConfig, loaded: Policy) -> dict[str, Any]:
    rule, units = config.training.rule, study.config.evaluation.units
    stream = study.stream.at("rule")
    checkpoints = _checkpoints(study.arm_folder(arm), 1)
    oracles = config.reward.oracles
    author = study.author(loaded, config.generator.rollouts, oracles)
    base = check_health(0, author.write(rule.samples, stream), 0.0, units, rule)
    checked = [
        check_health(
            step, _author_of(study, arm, step, oracles).write(rule.samples, stream), base.distinct_3, units, rule
        )
        for step in checkpoints.steps()
    ] or [base]
    return {
        "chosen": asdict(choose_checkpoint(checked)),
        "looks": [asdict(health) for health in checked],
        "base": asdict(base),
    }


def _author_of(study: Study, arm: str, step: int, oracles: bool = True) -> Author:
    """Load the generator of one checkpoint; step 0 is the arm's starting model."""
    config = study.config.arm(arm)
    checkpoints = _checkpoints(study.arm_folder(arm), 1)
    base = study.generator(config.generator.model)
    if step == 0:
        return study.author(base, config.generator.rollouts, oracles)
    # A checkpoint has its adapters merged into its weights. The starting model determines the end tokens.
    folder = checkpoints.path(step)
    if trouble := damage(folder):
        raise UserError(f"{folder}: {trouble}; put it back, or remove {study.arm_folder(arm)} and train the arm again")
    options = replace(config.generator.model, path=str(folder / "policy"))
    trained = frozen_policy(options, config.generator.rollouts)
    updates = saved_version(folder)
    loaded = replace(base, model=trained.model, path=trained.path, policy_version=updates)
    return study.author(loaded, config.generator.rollouts, oracles)


def load_author(study: Study, arm: str) -> tuple[Author, int]:
    """Load the generator of an arm's chosen checkpoint, and its step; step 0 is the base generator.

    Raises:
        UserError: if the arm is not trained yet.
    """
    if arm == BASE:
        return study.base_author, 0
    file = study.arm_folder(arm) / "choice.json"
    if not file.exists():
        raise UserError(f"{study.arm_folder(arm)}: not trained yet; train it with `halfway propel train`")
    step = read_json(file, TRAIN_AGAIN, _Choice)["chosen"]["step"]
    return _author_of(study, arm, step), step


def run_evaluation(study: Study, arm: str) -> dict[str, Any]:
    """Evaluate the generator of an arm by the solver, on fresh texts.

    Returns:
        The contents of evaluations/ARM.json.
    """
    folder = study.folder / "evaluations"
    file = folder / f"{arm}.json"
    if found := read_json(file, AGAIN, evaluation_kind(study.config)):
        return found
    author, step = load_author(study, arm)
    options, solver = study.config.evaluation, study.solver
    # Every arm gets the same streams, so shared noise cancels in the differences of arms.
    written = author.write(options.generations, study.stream.at("evaluate"))
    rows = try_all(written, solver, study.stream.at("evaluation trials"))
    scores = score_generator(rows, solver.attempts, solver.band, options.units)
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(rows, folder / f"{arm}.parquet", {"arm": arm, "step": step, "seed": study.seed})
    record = {
        **asdict(scores),
        "features": numeric_features(rows),
        "step": step,
        "offline_trials": _offline(study, arm),
        "online_trials": _online(study, arm, "tasks/solver_trials"),
        "offline_oracle_attempts": _offline_oracles(study, arm),
        "online_oracle_attempts": _online(study, arm, "tasks/oracle_attempts"),
    }
    write_json(file, record)
    return record


def run_curve(study: Study, arm: str) -> None:
    """Evaluate every kept checkpoint of an arm by the solver; the base generator is step 0.

    Writes evaluations/ARM.curve.json, with one record per checkpoint, unless it exists.
    """
    file = study.folder / "evaluations" / f"{arm}.curve.json"
    if file.exists():
        return
    options, solver = study.config.evaluation, study.solver
    points: list[dict[str, Any]] = []
    for step in [0] if arm == BASE else _checkpoints(study.arm_folder(arm), 1).steps():
        author = study.base_author if arm == BASE else _author_of(study, arm, step)
        written = author.write(options.curve, study.stream.at("curve"))
        rows = try_all(written, solver, study.stream.at("curve trials"))
        points.append({"step": step, **asdict(score_generator(rows, solver.attempts, solver.band, options.units))})
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, points)


def _offline(study: Study, arm: str) -> int:
    """Solver trials for an arm's probes."""
    if arm == BASE:
        return 0
    own = study.config.arm(arm)
    if own.reward.kind == "solver" or not own.training.steps:
        return 0
    return int(sum(row.attempts for row in study.corpus.rows))


def _offline_oracles(study: Study, arm: str) -> int:
    """Oracle attempts for an arm's probes and for the choice of its checkpoint."""
    if arm == BASE:
        return 0
    file = study.arm_folder(arm) / "choice.json"
    with reading(file, TRAIN_AGAIN):
        spent = read_json(file, TRAIN_AGAIN, _Choice)
        attempts = sum(look["oracle_attempts"] for look in [spent["base"], *spent["looks"]])
    if study.config.arm(arm).reward.kind != "solver":
        attempts += sum(row.oracle_attempts for row in study.corpus.rows)
        attempts += read_sweep(study)["policy_sample_oracle_attempts"]
    return int(attempts)


def _online(study: Study, arm: str, quantity: str) -> int:
    """Solver trials or oracle attempts during an arm's whole training."""
    if arm == BASE or not study.config.arm(arm).training.steps:
        return 0
    file = study.arm_folder(arm) / "steps.jsonl"
    remedy = f"remove {file.parent} and train again"
    with reading(file, remedy):
        lines = read_json_lines(file, remedy).splitlines()
        return int(sum(json.loads(line)["learner"].get(quantity, 0) for line in lines))
