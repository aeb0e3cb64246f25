"""docs/metrics.md lists exactly the names that runs log."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learner_harness import SEPARATE, learner, make_group, make_turn, random_groups
from msgspec import structs
from paths import REPOSITORY
from transformers import Qwen3ForCausalLM

import halfway
from halfway.curriculum import Group, Origin, Rollout, Stream
from halfway.curriculum.groups import ReplayCost
from halfway.experiments.tracking.recording import evaluation_metrics, step_metrics
from halfway.trainers.loop.fill import GroupOutcome
from halfway.trainers.loop.progress import Progress
from halfway.trainers.loop.records import FinishedStep

PAGE = REPOSITORY / "docs" / "metrics.md"
TINY: dict[str, Any] = {
    "base": "experiments/recipes/lab/sums.yaml",
    "name": "tiny",
    "budget": {"steps": 1},
    "problems": {"train": 16},
    "fill": {"groups": 8},
    "rollouts": {"num_rollouts": 8},
    "evaluation": {"points": 1, "problems": 4, "samples": 1},
    "tracking": {"mlflow": False},
}


def listed(section: str) -> set[str]:
    """The names in the table of a section, as regular expressions, in which capitals stand for any word."""
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M)
    names = [name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall("`(.*?)`", row)]
    assert len(names) == len(set(names))
    return {re.sub(r"[A-Z]+", "[a-z0-9_]+", re.escape(name)) for name in names}


def differing(patterns: set[str], names: set[str]) -> tuple[set[str], set[str]]:
    """Patterns that no name matches, and names that no pattern matches."""
    unlogged = {pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)}
    return unlogged, {name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)}


class Names(set[str]):
    """A recorder of names."""

    def step(self, record: Mapping[str, Any]) -> None:
        self.update(step_metrics(record))

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.update(evaluation_metrics(record))

    def close(self, state: str) -> None: ...


def test_every_run_logs_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()

    def opened(*_: object) -> list[Any]:
        return [type("Tracker", (), {"run": lambda *_: names})()]

    monkeypatch.setattr("halfway.experiments.tracking.tracker_process.open_trackers", opened)
    halfway.run({**TINY, "output": str(tmp_path)}, quiet=True)
    assert differing(listed("In every run"), names) == (set(), set())


def groups_of_all_origins() -> list[Group]:
    """Of each origin one group, with tools and replays."""
    turn = replace(make_turn([1, 2]), tool_seconds=0.5)
    found = []
    for origin in Origin:
        group = make_group([3], [Rollout((turn,), passed) for passed in (True, False)])
        request = structs.replace(group.request, origin=origin)
        found.append(replace(group, request=request, replay_cost=ReplayCost(1, 1.0, 1.0)))
    return found


def everything(learned: Mapping[str, float], groups: Sequence[Group]) -> set[str]:
    """The names of a step with every possible metric."""
    outcomes = ("trained", "zero_variance", "surplus", "carried", "lost")
    finished = FinishedStep(
        step=0,
        policy_version=1,
        spent=Progress(tool_seconds=1.0, measured=1).spent,
        outcomes=[GroupOutcome(0, group, outcome) for group, outcome in zip(groups, outcomes, strict=True)],
        skips=[],
        rounds=1,
        timing={"rollout": 1.0},
        controllers={"pros/error": 0.1, "pros/error_lag_1": 0.1, "in_flight": 1.0, "waiting": 1.0},
        groups=[group for group in groups if group.request.origin is not Origin.STORED],
        learner=learned,
        unjudged={"timeout": 1},
        resampled=1,
    )
    return set(step_metrics(finished.record()))


def test_the_page_lists_everything_else_that_a_run_can_log(tiny_model: Qwen3ForCausalLM) -> None:
    options = replace(SEPARATE, kl_coefficient=0.1, mismatch="token_truncated")
    late = [replace(group, lag=i % 2) for i, group in enumerate(random_groups(0))]
    learned = learner(tiny_model, options).update(late, Stream(0), 0.0)
    names = everything(learned, groups_of_all_origins())
    always, sometimes = listed("In every run"), listed("In some runs")
    unlogged, unlisted = differing(always | sometimes, names)
    assert unlisted == set()
    assert unlogged <= always, "the page names what no run logs"
