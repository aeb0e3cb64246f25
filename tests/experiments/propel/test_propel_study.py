"""Whole studies at the size of a test: every stage by command, killed and resumed, and bad input in one line."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import says
from propel_study import SUMS, TINY, DeathError, dying, finish, state, tiny
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.cli import app
from halfway.experiments.propel import stages
from halfway.experiments.propel.config import PropelConfig, load_study, prepare
from halfway.experiments.propel.stages import run_sweep
from halfway.experiments.propel.study import Study
from halfway.experiments.propel.study_summary import (
    differences_table,
    draw_summary,
    paired_differences,
    summarize_study,
    write_summary,
)
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.trainers.loop.manifest import MANIFEST, write_manifest
from halfway.trainers.propel.domains.sheets import Sums
from halfway.trainers.propel.probes.activations import ActivationStore
from halfway.trainers.propel.probes.probe_options import ActivationOptions
from halfway.trainers.propel.probes.sweep import read_cells
from halfway.trainers.propel.writing import Author


@pytest.fixture(scope="module")
def peaceful(finished_study: Path, tmp_path_factory: pytest.TempPathFactory) -> PropelConfig:
    config = tiny(tmp_path_factory.mktemp("peace"))
    shutil.copytree(finished_study, config.folder)
    return config


def test_every_stage_resumes_to_the_same_bits(
    peaceful: PropelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(tmp_path)
    deaths: list[tuple[Any, str, int]] = [
        (Author, "write", 2),  # the second chunk of the corpus
        (stages.Probe, "logits", 6),  # within the sweep
        (stages.RewardedRollouts, "run", 4),  # the fourth step of the first arm
        (stages, "check_health", 2),  # at the choice of its checkpoint
        (stages, "try_all", 4),  # the first point of the second curve
    ]
    for owner, name, call in deaths:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), call))
            with pytest.raises(DeathError):
                finish(Study(config, 0))
    finish(Study(config, 0))
    mine, theirs = state(config.folder), state(peaceful.folder)
    assert mine.keys() == theirs.keys()
    assert [name for name in theirs if mine[name] != theirs[name]] == []


def test_the_files_of_a_study_agree_with_one_another(peaceful: PropelConfig) -> None:
    folder = peaceful.folder / "seed-0"
    assert (folder / "sweep.png").stat().st_size > 5_000
    sweep = json.loads((folder / "sweep.json").read_text())
    assert len(sweep["permuted"]) == 1 and sweep["surface"][0]["feature"] in ("length", "lines", "allowed", "topic")
    corpus = json.loads((folder / "corpus.json").read_text())
    assert corpus["trials"] == 4 * corpus["labelled"] == sweep["costs"]["trials"] == sum(corpus["solve_counts"]) * 4
    probe, solver = (json.loads((folder / "evaluations" / f"{arm}.json").read_text()) for arm in ("probe", "solver"))
    assert probe["offline_trials"] == corpus["trials"] and probe["online_trials"] == 0
    steps = [json.loads(line) for line in (folder / "arms" / "solver" / "steps.jsonl").read_text().splitlines()]
    valid = [step["learner"]["tasks/valid"] for step in steps]
    # Four groups of four texts per step, four trials for each valid text.
    assert solver["offline_trials"] == 0 and solver["online_trials"] == pytest.approx(sum(valid) * 16 * 4)
    assert all("reward/valid_below_invalid" in step["learner"] for step in steps)
    summary = summarize_study(peaceful)
    base = summary["arms"]["base"]
    assert base["utility"].value * 24 == pytest.approx(sum(base["solve_counts"][0][1:3]))
    differences = summary["differences"]
    assert differences["reference"] == "probe" and list(differences["arms"]) == [
        "base",
        "worst_case",
        "solver",
        "still",
    ]
    found = differences["arms"]["base"]["utility"]
    gained = probe["utility"] - base["utility"].value
    assert found == Estimate(pytest.approx(-gained), values=(pytest.approx(-gained),))
    text = write_summary(peaceful).read_text()
    assert "| worst_case |" in text and "| 0 | " in text
    lookup = sweep["surface"][0]
    difference = sweep["chosen"]["test"]["balanced_accuracy"] - lookup["test"]["balanced_accuracy"]
    assert lookup["probe_gain"] == pytest.approx(difference) and f"{difference:+.3f} [" in text


def test_an_arm_without_steps_is_its_base_generator(peaceful: PropelConfig) -> None:
    evaluations = peaceful.folder / "seed-0" / "evaluations"
    base, still = (json.loads((evaluations / f"{arm}.json").read_text()) for arm in ("base", "still"))
    assert still == base and still["step"] == 0


def test_checkpoints_are_judged_for_a_curve(peaceful: PropelConfig) -> None:
    curves = summarize_study(peaceful)["curves"]
    assert list(curves["base"]) == ["0"] and list(curves["probe"]) == ["2", "4"] and "still" not in curves
    draw_summary(peaceful)
    assert (peaceful.folder / "curves.png").stat().st_size > 5_000


def test_the_command_does_a_stage_and_says_what_is_missing(tmp_path: Path) -> None:
    runner = CliRunner()

    def halfway(stage: str, *words: str) -> Any:
        return runner.invoke(app, ["propel", stage, str(SUMS), *TINY, f"output={tmp_path}", *words])

    for stage, message in [
        ("sweep", "holds no corpus; make one with `halfway propel corpus`"),
        ("train", "holds no finished sweep; make one with `halfway propel sweep`"),
        ("evaluate", "not trained yet; train it with `halfway propel train`"),
        ("al", "propel: unknown name 'al'; did you mean 'all'?"),
    ]:
        done = halfway(stage, "--arm=probe")
        assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = halfway("corpus")
    assert done.exit_code == 0 and (tmp_path / "sums" / "seed-0" / "corpus" / "part-00001.parquet").exists()
    done = halfway("sweep", "activations.layers=[0,9]", "name=sums/deep")
    assert "holds no corpus" in done.stderr
    done = halfway("corpus", "corpus.generations=80")
    assert "corpus.generations: " in done.stderr and "was started with 120, not 80" in done.stderr
    done = halfway("train", "--arm=base")
    assert "--arm: 'base' is the base generator, which is not trained" in done.stderr


def test_a_layer_that_the_reference_lacks_is_one_line(peaceful: PropelConfig) -> None:
    study = Study(
        load_study(peaceful.folder / "config.yaml") if (peaceful.folder / "config.yaml").exists() else peaceful, 0
    )
    deep = tiny(peaceful.folder.parent, "activations.layers=[0,9]")
    other = Study(deep, 0)
    (study.folder / "sweep.json").rename(study.folder / "sweep.kept")
    try:
        with pytest.raises(UserError, match=says("activations.layers", 9, "0 to 3")):
            run_sweep(other)
    finally:
        (study.folder / "sweep.kept").rename(study.folder / "sweep.json")


def test_a_study_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    for change, message in [
        ("arms.base={}", r"arms: cannot be 'base'; "),
        ("arms.probe.reward.kind=hardest", r"arms\.probe\.reward\.kind: unknown name 'hardest'"),
        ("arms.probe.rewards.kind=hard", r"arms\.probe\.rewards: unknown name 'rewards'; did you mean 'reward'"),
        ("solver.band.low=0.9", r"solver\.band"),
        ("domain.sums.sheets.min_lines=0", r"min_lines 0"),
        ("activations.layers=[]", r"activations\.layers"),
        ("seeds=[0,0]", r"seeds: must be different integers of at least 0, not \[0, 0\]"),
        ("generator.rollouts.engine=vlm", r"generator\.rollouts\.engine: unknown name 'vlm'"),
    ]:
        with pytest.raises(UserError, match=message):
            tiny(tmp_path, change)


def test_another_domain_replaces_that_of_the_base(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"base: {SUMS}\ndomain: {{function_induction: {{inputs: 4}}}}\n")
    assert load_study(file).domain.name == "function_induction"
    file.write_text(f"base: {SUMS}\ndomain: {{sums: {{sheets: {{max_lines: 20}}}}}}\n")
    sums, original = load_study(file).domain.part, load_study(SUMS).domain.part
    assert isinstance(sums, Sums) and isinstance(original, Sums)
    assert sums.sheets == replace(original.sheets, max_lines=20)


def test_seeds_and_arms_may_be_added_and_nothing_else(tmp_path: Path) -> None:
    prepare(tiny(tmp_path))
    prepare(tiny(tmp_path, "seeds=[0,1]"))
    prepare(tiny(tmp_path, "arms.soft={reward: {kind: soft}}"))
    prepare(tiny(tmp_path))  # without the new arm again
    assert "soft" in load_study(tmp_path / "sums" / "config.yaml").arms
    with pytest.raises(UserError, match=says("reward.kind", "'hard'", "'soft'")):
        prepare(tiny(tmp_path, "reward.kind=soft"))
    with pytest.raises(UserError, match=says("arms.soft.reward.kind", "'soft'", "'probe_only'")):
        prepare(tiny(tmp_path, "arms.soft={reward: {kind: probe_only}}"))


def test_a_damaged_file_of_a_study_is_one_line_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "arms" / "probe" / "checkpoints" / "step-00000002"
    (folder / "policy").mkdir(parents=True)
    weights = folder / "policy" / "model.safetensors"
    weights.write_bytes(b"weights")
    write_manifest(folder)
    study: Any = SimpleNamespace(
        config=SimpleNamespace(arm=lambda name: SimpleNamespace(generator=SimpleNamespace(model=None))),
        arm_folder=lambda name: tmp_path / "arms" / name,
        generator=lambda options: None,
        folder=tmp_path,
        sweep_folder=tmp_path,
    )
    for write, complaint in (
        (lambda: weights.write_bytes(b"weightt"), "model.safetensors is damaged"),
        (lambda: weights.unlink(), "model.safetensors is missing"),
        (lambda: (folder / MANIFEST).unlink(), f"{MANIFEST} is missing"),
    ):
        write()
        with pytest.raises(UserError, match=says(folder, complaint, "put it back", "/arms/probe")):
            stages._author_of(study, "probe", 2)
    for name, read in (
        ("sweep.json", lambda: stages.read_sweep(study)),
        ("cells.jsonl", lambda: read_cells(tmp_path)),
        ("manifest.json", lambda: ActivationStore.open(tmp_path)),
    ):
        (tmp_path / name).write_text("[1\n")
        with pytest.raises(UserError, match=says(tmp_path / name, "damaged")) as told:
            read()
        assert "\n" not in str(told.value)


def test_activations_that_were_cut_are_one_line(tmp_path: Path) -> None:
    store = ActivationStore(tmp_path, ("a", "b"), "", ActivationOptions(layers=(0,), poolings=("mean_full",)), 0)
    file = tmp_path / "layer-000-mean_full.npy"
    np.save(file, np.ones((2, 3), np.float32))
    assert store.features(0, "mean_full").shape == (2, 3)
    whole = file.read_bytes()
    np.save(file, np.ones((1, 3), np.float32))
    short = file.read_bytes()
    np.save(file, np.array([{}, {}]), allow_pickle=True)
    for damaged in (b"", whole[:40], whole[:-4], short, file.read_bytes()):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=says(file, f"remove {tmp_path}", "extract")):
            store.features(0, "mean_full")


def evaluated(*utilities: float, step: int = 40) -> dict[int, Any]:
    return {seed: {"utility": u, "valid": 0.9, "top_topic": 0.1, "step": step} for seed, u in enumerate(utilities)}


def test_differences_are_paired_by_seed() -> None:
    arms = {
        "base": evaluated(0.1, 0.2, 0.3, step=0),
        "still": evaluated(0.1, 0.2, step=0),
        "probe": evaluated(0.4, 0.5, 0.9),
        "short": {2: evaluated(0, 0, 0.8)[2]},
        "other": {3: evaluated(0)[0]},
    }
    found = paired_differences(arms)
    assert found and found["reference"] == "probe" and list(found["arms"]) == ["base", "still", "short", "other"]
    base, short = found["arms"]["base"]["utility"], found["arms"]["short"]["utility"]
    assert base.values == pytest.approx([-0.3, -0.3, -0.6]) and base.value == pytest.approx(-0.4)
    margin = 0.95 / math.sqrt(2 * 0.975 * 0.025) * 0.1  # Student's t with two degrees of freedom, standard error 0.1
    assert (base.low, base.high) == pytest.approx((-0.4 - margin, -0.4 + margin))
    assert short.value == pytest.approx(-0.1) and short.low is None
    assert found["arms"]["other"]["utility"] is None
    assert paired_differences({"base": arms["base"]}) is None
    table = differences_table(found).markdown()
    assert (
        "| base | -0.400 (-0.300, -0.300, -0.600) | +0.000 (+0.000, +0.000, +0.000) | " in table
        and "| other | - | - | - | 0 |" in table
    )


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("sweep.json", "chosen.test", 1.5),
        ("sweep.json", "chosen.test.balanced_accuracy", 10**400),
        ("sweep.json", "chosen.file", "../../../probe.safetensors"),
        ("evaluations/probe.json", "utility", "much"),
        ("arms/probe/choice.json", "chosen.step", None),
        ("arms/probe/choice.json", "chosen.alerts", 5),
    ],
)
def test_a_record_that_no_study_writes_is_one_line(
    file: str, place: str, value: object, finished_study: Path, tmp_path: Path
) -> None:
    config = tiny(tmp_path)
    shutil.copytree(finished_study, config.folder)
    path = config.folder / "seed-0" / file
    plain = inner = json.loads(path.read_text())
    *parts, last = place.split(".")
    for part in parts:
        inner = inner[part]
    inner[last] = value
    path.write_text(json.dumps(plain))
    study = Study(config, 0)
    with pytest.raises(UserError, match=says(path, "remove it")):
        for read in (stages.chosen_cell, stages.run_sweep):
            read(study)
        stages.run_training(study, "probe")
        stages.run_evaluation(study, "probe")
