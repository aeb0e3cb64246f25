"""A chain that asks how likely earlier rollouts have become is told before every step, and the passes are paid for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from loop_harness import GROUPS, ScriptedLearner, records, training

from halfway.controllers.dare import Dare
from halfway.curriculum import Group, chain
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.trainers.loop.options import Budget, FillOptions


@dataclass
class ScoringLearner(ScriptedLearner):
    """Successes become likelier with every update."""

    scored: list[int] = field(default_factory=list)

    def log_ratios(self, groups: Sequence[Group]) -> list[np.ndarray]:
        self.scored.append(sum(group.num_tokens for group in groups))
        gain = self.version / 10
        return [np.array([gain if r.success else 0.0 for r in group.rollouts]) for group in groups]


def run(folder: Path, steps: int) -> tuple[list[dict[str, Any]], ScoringLearner]:
    learner = ScoringLearner()
    values: dict[str, Any] = {"controller": chain(("dare", Dare(per_step=3))), "learner": learner, "scorer": learner}
    values["provides"] = ALWAYS_PROVIDED | {"rescored"}
    training(folder, FillOptions(groups=GROUPS), Budget(steps=steps), **values).train()
    return records(folder), learner


def test_a_third_of_the_tokens_that_are_scored_counts_as_trained(tmp_path: Path) -> None:
    _, learner = run(tmp_path, 4)
    steps = records(tmp_path, "steps")
    updates = [10 * len(batch) for batch in learner.batches]
    assert len(learner.scored) == 3 and min(learner.scored) > 0  # before the first step nothing is stored
    scored = [0, *(math.ceil(tokens / 3) for tokens in learner.scored)]
    expected = np.cumsum(np.add(updates, scored)).tolist()
    assert [step["trained_tokens"] for step in steps] == expected


def test_a_resumed_run_decides_the_same(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole", 8)
    run(tmp_path / "parts", 5)
    parts, _ = run(tmp_path / "parts", 8)
    paid, resumed = ([s["trained_tokens"] for s in records(tmp_path / way, "steps")] for way in ("whole", "parts"))
    assert parts == whole and resumed == paid
