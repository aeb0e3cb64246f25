"""Pools of generated problems, from models small enough to train here."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from messages import says
from msgspec import structs
from paths import REPOSITORY
from propel_study import DOMAIN, TEXTS, DeathError, FakeEngine, dying, state, tiny
from transformers import Qwen3ForCausalLM
from typer.testing import CliRunner

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.tasks.files import Pool, Surveyed, write_problems
from halfway.curriculum.tasks.lab.operators import OperatorOptions
from halfway.curriculum.tasks.verifiers.verify import verify
from halfway.experiments.cli import app
from halfway.experiments.propel import stages
from halfway.experiments.propel.config import prepare
from halfway.experiments.propel.export import export_pool, export_problems, rate_probe
from halfway.experiments.propel.stages import run_corpus, run_sweep, run_training
from halfway.experiments.propel.study import Study, build_engine
from halfway.experiments.starting_models.warm_start import build_tokenizer
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.sheets import Operators, Sums
from halfway.trainers.propel.guessed_problems import Guessed, read_provenance, write_pool
from halfway.trainers.propel.probes.activations import model_fingerprint
from halfway.trainers.propel.probes.probe_options import ProbeTraining
from halfway.trainers.propel.probes.rates import fit_rates, score_rates
from halfway.trainers.propel.probes.splits import random_split
from halfway.trainers.propel.rewards import Reader
from halfway.trainers.propel.solver import Solver
from halfway.trainers.propel.writing import Author

RECIPES = REPOSITORY / "experiments" / "recipes"
POOLS = ("generated", "sheets")


def test_a_rate_probe_finds_the_log_odds() -> None:
    """Counts are binomial, the log-odds linear in the features; the best guess is the truth."""
    rng = np.random.default_rng(0)
    features_ND = rng.normal(0, 1, (1500, 3)).astype(np.float32)
    logits_N = 1.2 * features_ND[:, 0] - 0.8 * features_ND[:, 2] - 0.5
    truth_N = 1 / (1 + np.exp(-logits_N))
    passed_N = rng.binomial(8, truth_N)
    split = random_split(passed_N > 4, seed=0)
    probe = fit_rates(features_ND, passed_N, 8, split, "linear", ProbeTraining(lr=1e-2, epochs=60), seed=0)
    found_N = probe.logits(features_ND)
    assert np.abs(found_N - logits_N).mean() < 0.12
    scores = score_rates(found_N, passed_N / 8, 8, split)
    assert scores.rows == len(split.test) and scores.spearman > 0.8
    assert scores.error == pytest.approx(scores.sampling_error, abs=0.02) and scores.error < 0.75 * scores.error_of_mean


@pytest.mark.parametrize("intercept", [-2.5, 1.5])
def test_a_rate_probe_knows_how_rare_a_pass_is(intercept: float) -> None:
    """Equal class weights in calibration would pull every guess toward one half, by .06 and more."""
    rng = np.random.default_rng(0)
    features_ND = rng.normal(0, 1, (1500, 3)).astype(np.float32)
    truth_N = 1 / (1 + np.exp(-(features_ND[:, 0] + intercept)))
    passed_N = rng.binomial(8, truth_N)
    split = random_split(passed_N > 4, seed=0)
    probe = fit_rates(features_ND, passed_N, 8, split, "linear", ProbeTraining(lr=1e-2, epochs=60), seed=0)
    assert np.abs(1 / (1 + np.exp(-probe.logits(features_ND))) - truth_N).mean() < 0.02


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with a corpus and a sweep."""
    study = Study(tiny(tmp_path_factory.mktemp("swept")), 0)
    run_corpus(study)
    run_sweep(study)
    return study.config.folder


@pytest.fixture(scope="module")
def study(finished_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    config = tiny(tmp_path_factory.mktemp("pools"), "export.texts=40", "seeds=[0]")
    shutil.copytree(finished_study, config.folder)
    return Study(config, 0)


def test_an_export_holds_each_valid_task_once_with_a_guessed_rate(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("an export calls no solver")

    monkeypatch.setattr(Solver, "passes", refuse)
    file, number = export_pool(study, "probe")
    problems = Pool(str(file)).load(None, Stream(0)).problems
    about = read_provenance(file)
    assert len(problems) == number and number + sum(about["left out"].values()) == 40
    assert about["reference model"] == study.reference and about["arm"] == "probe" and about["probe"]["rows"] > 0
    domain = study.domain
    assert all(candidate.valid for candidate in read(domain, [problem.prompt for problem in problems]))
    assert len({problem.prompt for problem in problems}) == number
    rates = [float(problem.features["probed_rate"]) for problem in problems]
    assert all(0 < rate < 1 for rate in rates) and {p.features["probed_by"] for p in problems} == {study.reference}
    before = file.read_bytes()
    export_pool(study, "probe")
    assert file.read_bytes() == before
    # The data set's own problems get the guesses that the same texts of a generator get.
    again, _ = export_problems(study, "same", list(problems))
    guessed = {p.id: p.features["probed_rate"] for p in Pool(str(again)).load(None, Stream(0)).problems}
    assert [guessed[p.id] for p in problems] == pytest.approx(rates, abs=1e-6)


def test_an_export_without_valid_tasks_or_of_another_model_is_refused(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=says("export", "'x'", "sums", "unreadable")):
        export_problems(study, "none", [Problem("x", "2+2=", "4")])
    with monkeypatch.context() as patch:
        patch.setattr(Sums, "check", lambda self, tasks: [self._check(task._replace(start=9)) for task in tasks])
        with pytest.raises(UserError, match=says("export", "none of 40 texts", "start out of range")):
            export_pool(study, "probe")
    rate_probe(study)
    other = Study(study.config, 0)
    other.__dict__["reference"] = "another"
    with pytest.raises(UserError, match=says("rates.safetensors", "reference model")):
        rate_probe(other)


def test_the_command_exports(study: Study) -> None:
    recipe = str(REPOSITORY / "experiments" / "recipes" / "propel" / "sums.yaml")

    def halfway(*words: str) -> Any:
        file = str(study.config.folder / "config.yaml")
        return CliRunner().invoke(app, ["propel", words[0], file, *words[1:]])

    prepare(study.config)
    done = halfway("export", "export.texts=12")  # another size does not make another study
    assert done.exit_code == 0 and "problems: " in done.output, done.output
    assert "pools/probe.parquet" in done.output.replace("\n", "")
    done = halfway("export", "--run", str(RECIPES / "lab" / "sums.yaml"))
    assert done.exit_code == 0 and "384 problems" in done.output, done.output
    for words, message in [
        (("train", "--run", str(RECIPES / "lab" / "sums.yaml")), "goes with `halfway propel export` alone"),
        (("export", "--run", str(RECIPES / "lab" / "sums.yaml"), "--arm=probe"), "without --arm"),
        (
            ("export", "--run", str(RECIPES / "methods" / "propel.yaml")),
            "is not a task of the domain sums (number of lines)",
        ),
    ]:
        done = halfway(*words)
        assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = CliRunner().invoke(app, ["propel", "export", recipe, f"output={study.config.output}", "name=none"])
    assert "holds no finished sweep" in done.stderr


def test_the_pools_of_the_lab_are_of_one_study() -> None:
    about = [read_provenance(RECIPES / "pools" / f"{name}.parquet") for name in POOLS]
    for key in ("reference model", "solver model", "study", "seed", "domain", "probe"):
        assert about[0][key] == about[1][key], key
    generated, sheets = (Pool(str(RECIPES / "pools" / f"{n}.parquet")).load(None, Stream(0)).problems for n in POOLS)
    assert len(generated) == about[0]["tasks"] >= 500 and len(sheets) == 384
    assert {p.verifier for p in (*generated, *sheets)} == {"running_sums"}


LORA = "arms.lora={generator: {model: {lora: {rank: 4, alpha: 8}}}, training: {learner: {lr: 1e-2}}}"
TEMPLATE = "{% for m in messages %}{{ '^' if m['role'] == 'system' else '>' }}{{ m['content'] }}@{% endfor %}a"


def test_adapters_train_resume_and_are_exported(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    for name in ("whole", "killed"):
        shutil.copytree(swept, tmp_path / name / "sums")
    study, killed = Study(tiny(tmp_path / "whole", LORA), 0), Study(tiny(tmp_path / "killed", LORA), 0)
    stamp = study.reference
    step = run_training(study, "lora")["chosen"]["step"]
    with monkeypatch.context() as patch, pytest.raises(DeathError):
        patch.setattr(stages.RewardedRollouts, "run", dying(stages.RewardedRollouts.run, 4))
        torch.manual_seed(5)  # what else has drawn from torch's generator does not matter
        run_training(killed, "lora")
    run_training(killed, "lora")
    mine, theirs = (state(one.arm_folder("lora")) for one in (killed, study))
    assert any("adapter" in name for name in mine) and mine == theirs

    config = study.config.arm("lora")
    policy = study.trainable_copy(study.base, config.generator.model.lora)
    weights = {weight.data_ptr() for weight in study.base.model.parameters()}
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    assert weights < {weight.data_ptr() for weight in policy.parameters()}  # the starting weights are there once
    assert trained and all(weight.data_ptr() not in weights for weight in trained)
    assert model_fingerprint(study.base.model) == stamp  # which training has left alone

    training = stages.build_training(study, "lora", config, study.base)
    learner: Any = training.learner
    learner.load(training.checkpoints.path(step))
    engine = build_engine(study.base, config.generator.rollouts, learner.learner.policy)
    by_adapters = replace(study.base_author, engine=engine)
    exported, found = stages.load_author(study, "lora")
    texts = [[w.text for w in one.write(16, Stream(7))] for one in (by_adapters, exported, study.base_author)]
    assert found == step and texts[0] == texts[1] != texts[2]
    engines: list[Any] = [exported.engine, study.base_author.engine]
    assert [engine.policy_version for engine in engines] == [learner.policy_version, 0] == [step, 0]


def test_arms_that_differ_in_adapters_share_a_starting_point(tmp_path: Path) -> None:
    study = Study(tiny(tmp_path, LORA, "arms.half={generator: {model: {dtype: bfloat16, lora: {rank: 4}}}}"), 0)
    models = {arm: study.config.arm(arm).generator.model for arm in study.config.arms}
    assert study.generator(models["lora"]) is study.base is study.generator(models["probe"])
    assert study.generator(models["half"]) is not study.base


class Recording(FakeEngine):
    """Remembers its arguments."""

    def generate(self, contexts: Any, limits: Any, seeds: Any) -> Any:
        self.given = [self.tokenizer.decode(context.tolist()) for context in contexts]
        return super().generate(contexts, limits, seeds)


def test_a_prompt_goes_through_the_template_where_it_is_written_and_where_it_is_read(
    tiny_model: Qwen3ForCausalLM,
) -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = TEMPLATE
    engine = Recording(tokenizer, TEXTS)
    [written] = Author(engine, tokenizer, DOMAIN, 40, chat=True, system="be").write(1, Stream(0))
    assert engine.given == ["^be@>!@a"] and written.prompt == "!" and written.text in TEXTS
    assert Author(engine, tokenizer, DOMAIN, 40).write(1, Stream(0))[0].text == written.text and engine.given == ["!"]
    reading = Reader(tiny_model, tokenizer, "me", 64, 4096, chat=True, system="be").reading("x", "!", "12")
    assert tokenizer.decode(reading.tokens_T.tolist()) == "^be@>!@a12" and reading.start == 8
    plain = Reader(tiny_model, tokenizer, "me", 64, 4096).reading("x", "!", "12")
    assert np.array_equal(plain.tokens_T, reading.tokens_T[[5, 8, 9]])


def test_chat_settings_reach_every_part_and_the_corpus_says_so(tmp_path: Path) -> None:
    chats = ["generator.model.chat=all", "generator.model.system=be brief", "solver.model.chat=all"]
    study, plain = Study(tiny(tmp_path, *chats), 0), Study(tiny(tmp_path), 0)
    for part in (study.base_author, study.reader):
        assert (part.chat, part.system) == (True, "be brief")
    solver: Any = study.solver.rollouts
    training: Any = stages.build_training(study, "solver", study.config.arm("solver"), study.base)
    assert (solver.chat, solver.system) == (True, "")
    assert (training.rollouts.rollouts.chat, training.rollouts.rollouts.system) == (True, "be brief")
    assert study.provenance["generator.model"] == {"chat": "all", "system": "be brief"}
    assert plain.provenance["generator.model"] != study.provenance["generator.model"]
    assert plain.provenance["solver.model"] != study.provenance["solver.model"]


def test_only_generators_are_trained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("solver.model.lora.rank", 4, "not trained")):
        tiny(tmp_path, "solver.model.lora.rank=4")


def test_without_adapters_the_trained_copy_is_its_own(tmp_path: Path) -> None:
    study = Study(tiny(tmp_path), 0)
    policy = study.trainable_copy(study.base, study.config.generator.model.lora)
    base = copy.deepcopy(study.base.model.state_dict())
    with torch.no_grad():
        for weight in policy.parameters():
            assert weight.requires_grad
            weight.zero_()
    assert all(torch.equal(base[name], weight) for name, weight in study.base.model.state_dict().items())


def test_tasks_of_another_table_of_operators_are_judged_by_it_wherever_they_are_written_down(tmp_path: Path) -> None:
    domain = Operators(OperatorOptions(table=3))
    problems = [each.problem for each in read(domain, ["^1/0aMbNcJ=", "^2/1aKbLcK="]) if each.problem is not None]
    assert len(problems) == 2 and all(verify(problem, problem.answer) for problem in problems)
    write_pool(
        Guessed(tuple(problems), (0.2, 0.4), ("x", "y"), {}), tmp_path / "pool.parquet", {"reference model": "m"}
    )
    write_problems(
        [structs.replace(p, features={**p.features, "pass_rate": 0.5}) for p in problems],
        str(tmp_path / "s.jsonl"),
        True,
    )
    for source in (Pool(str(tmp_path / "pool.parquet")), Surveyed(str(tmp_path / "s.jsonl"))):
        found = source.load(None, Stream(0)).problems
        assert sorted(problem.id for problem in found) == sorted(problem.id for problem in problems)
        assert all(verify(problem, problem.answer) and problem.features["table"] == 3 for problem in found)
