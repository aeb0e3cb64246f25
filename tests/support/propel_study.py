"""A whole PROPEL study at test size, and the means to kill one of its stages."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paths import REPOSITORY

from halfway.experiments.propel.config import PropelConfig, load_study
from halfway.experiments.propel.stages import run_corpus, run_curve, run_evaluation, run_sweep, run_training
from halfway.experiments.propel.study import Study

SUMS = REPOSITORY / "experiments" / "recipes" / "propel" / "sums.yaml"

TINY = [
    "corpus.generations=120",
    "corpus.chunk=40",
    "activations.layers=[0,1]",
    "activations.poolings=[mean_full]",
    "sweep.heads=[linear]",
    "sweep.balance=[downsample,weighted]",
    "sweep.split.validation=0.25",
    "sweep.split.test=0.25",
    "sweep.training.epochs=3",
    "sweep.policy_samples=24",
    "sweep.permutations=1",
    "training.steps=4",
    "training.groups=4",
    "training.save_every=2",
    "training.rule.samples=16",
    "evaluation.generations=24",
    "evaluation.curve=8",
    "solver.rollouts.num_rollouts=4",
    "solver.band.low=0.25",
    "solver.band.high=0.5",
    "arms.solver.training.steps=2",
    "arms.still={training: {steps: 0}}",
]


def tiny(folder: Path, *changes: str) -> PropelConfig:
    return load_study(SUMS, [*TINY, f"output={folder}", *changes])


class DeathError(Exception):
    """The error with which a test kills a stage."""


def finish(study: Study) -> None:
    run_corpus(study)
    run_sweep(study)
    for arm in study.config.arms:
        run_training(study, arm)
    for arm in ("base", *study.config.arms):
        run_evaluation(study, arm)
        run_curve(study, arm)


def state(folder: Path) -> dict[str, Any]:
    """Everything in a study's folder that must not depend on interruptions, by relative path."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".json", ".parquet", ".safetensors", ".npy") and "status" not in name:
            found[name] = path.read_bytes()
        if path.name == "loop.json":  # without seconds, and without the sizes of files that contain seconds
            loop = json.loads(path.read_text())
            for clock in ("seconds", "judge_seconds"):
                loop["progress"].pop(clock)
            found[name] = {key: value for key, value in loop.items() if key != "log_sizes"}
    return found


def dying(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, except that its call number `call`, counted from 1, raises DeathError."""
    calls = []

    def wrapped(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise DeathError
        return function(*arguments, **named)

    return wrapped
