"""A pickle replacing any file of a run, a study, a checkpoint, a model or an adapter is not opened: it costs a line."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_pickles import RUN, attack
from propel_study import finish, tiny

import halfway
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.propel.study import Study
from halfway.experiments.propel.study_summary import write_summary
from halfway.experiments.running.build import build_run
from halfway.trainers.policy import ModelOptions, load_policy

KINDS = {
    "with a critic": "learner: {advantage: gae}",
    "with adapters": "model: {path: experiments/starting_models/sums, lora: {rank: 2}}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_pickle_in_a_run_is_opened(kind: str, tmp_path: Path) -> None:
    if "lora" in KINDS[kind]:
        pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    file = tmp_path / "run.yaml"
    lines = [line for line in RUN.splitlines() if not line.startswith(KINDS[kind].partition(":")[0] + ":")]
    file.write_text("\n".join([*lines, KINDS[kind], f"output: {tmp_path}"]))
    folder = halfway.run(file, quiet=True).folder
    built = build_run(load_run_config(folder / "config.yaml"), folder)
    policy = next(folder.glob("checkpoints/step-*/policy"))
    actions = {
        "validate": lambda: load_run_config(folder / "config.yaml"),
        "load": lambda: repr(halfway.load(folder)),
        "audit": lambda: halfway.audit(folder),
    }
    canary = tmp_path / "canary"
    assert attack(folder, canary, {"resume": built.resume}) == []
    assert attack(folder, canary, actions, bare=True) == []
    assert attack(policy, canary, {"model": lambda: load_policy(ModelOptions(), str(policy))}) == []


def test_no_pickle_in_a_study_is_opened(finished_study: Path, tmp_path: Path) -> None:
    """Of two arms: the others have the same files."""
    whole = tiny(tmp_path)
    config = replace(whole, arms={arm: whole.arms[arm] for arm in ("probe", "solver")})
    others = [f"{arm}*" for arm in whole.arms if arm not in config.arms]
    shutil.copytree(finished_study, config.folder, ignore=shutil.ignore_patterns(*others))
    actions = {"propel": lambda: finish(Study(config, 0)), "summary": lambda: write_summary(config)}
    assert attack(config.folder, tmp_path / "canary", actions, bare=True) == []
