"""Shared by tests of trackers: a configuration, records, and two runs of a comparison whose records are copied."""

from pathlib import Path
from typing import Any

from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import Arm
from halfway.experiments.config.run import parse_run_config
from halfway.experiments.tracking.tracker_process import open_trackers
from halfway.trainers.loop.loop_options import Budget

RAW = {"name": "a", "controllers": ["uniform"], "problems": {"source": "running_sums"}, "budget": {"steps": 9}}


def record(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "rollouts": 32 * (step + 1),
        "starved": False,
        "groups": {"rolled_out": 4, "trained": 2},
        "timing": {"rollout": 0.5},
        "fresh_counts": [1, 1, 2],
        "reward": {"mean": 0.625},
        "zero_variance": {"all_fail": 0.25, "all_pass": 0.5},
        "learner": {"loss": 0.25, "kl": None},
        "controllers": {"greso/p easy %": 0.5},
    }


def copy_two_runs(tracker: str, output: Path, first: int, last: int) -> None:
    """Copy these steps of two runs of a comparison, side by side."""
    config = parse_run_config({**RAW, "tracking": {"mlflow": False, tracker: True}})
    [opened] = open_trackers(config.tracking, output)
    opened.comparison(ComparisonConfig("both", {}, (0,), Budget(steps=9), {"a": Arm(), "b": Arm()}), output)
    copies = []
    for arm in ("a", "b"):
        folder = output / arm
        folder.mkdir(parents=True, exist_ok=True)
        copies.append(opened.run(parse_run_config({**RAW, "name": f"both/{arm}"}), folder, arm))
    for step in range(first, last):
        for copy in copies:
            copy.step(record(step))
    for copy in copies:
        copy.evaluation({"step": last, "pass_at_1": 0.5, "stderr": 0.1})
        copy.close("finished")
    assert opened.has_all(output / "a")
