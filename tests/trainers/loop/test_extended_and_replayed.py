"""Groups that are extended in a later round, and stored groups that train again."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from loop_harness import GROUPS, ScriptedLearner, records, training

from halfway.controllers.contrib.pilot import Pilot
from halfway.controllers.contrib.rounds import Rounds
from halfway.controllers.contrib.signal import Signal
from halfway.controllers.hints import Hints
from halfway.controllers.replay import Replay
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, PassRateController, chain
from halfway.trainers.loop.loop_options import Budget, FillOptions

ONCE = FillOptions(groups=GROUPS, max_rounds=6)
REFILL = FillOptions(policy="refill", groups=GROUPS, request_groups=6, max_rounds=6)
SIZE = 8
fills = pytest.mark.parametrize("fill", [ONCE, REFILL], ids=["once", "refill"])


class Counting(PassRateController[Any]):
    """Counts what it observes."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.sizes: list[int] = []

    def observe(self, state: Any, groups: Sequence[Group], step: int) -> Any:
        self.seen.update(group.request.ticket for group in groups)
        self.sizes += [group.size for group in groups]
        return state


def run(folder: Path, fill: FillOptions, **members: PassRateController[Any]) -> tuple[Counting, ScriptedLearner, int]:
    counting = Counting()
    controller = chain(*members.items(), ("counting", counting))
    learner = ScriptedLearner()
    loop = training(folder, fill, Budget(steps=12), controller=controller, num_rollouts=SIZE, learner=learner)
    return counting, learner, loop.train().rollouts


@fills
def test_pilots_continue_in_the_same_step_and_are_observed_once_and_whole(tmp_path: Path, fill: FillOptions) -> None:
    counting, learner, rollouts = run(tmp_path, fill, uniform=Uniform(), pilot=Pilot(initial=3))
    assert set(counting.seen.values()) == {1} and sum(counting.sizes) == rollouts
    assert set(counting.sizes) == {3, SIZE}
    # Whatever trains has gone on first.
    assert {group.size for batch in learner.batches for group in batch} == {SIZE}
    logged = records(tmp_path)
    assert [d["n"] for d in logged] == counting.sizes
    assert {tuple(a for _, a in d["decisions"]) for d in logged if d["n"] == SIZE} == {("drawn", "pilot", "goes on")}
    assert all(d["outcome"] == "zero_variance" for d in logged if d["n"] == 3)
    if fill is REFILL:
        assert {len(batch) for batch in learner.batches} == {GROUPS}


@fills
def test_rounds_end_with_signal_or_at_their_number(tmp_path: Path, fill: FillOptions) -> None:
    counting, learner, rollouts = run(tmp_path, fill, uniform=Uniform(), rounds=Rounds(rounds=3))
    assert set(counting.seen.values()) == {1} and sum(counting.sizes) == rollouts
    assert {8, 16, 24} == set(counting.sizes)
    trained = [group for batch in learner.batches for group in batch]
    assert all(group.weights_N.sum() == 4 for group in trained)
    for group in trained:
        enough = min(group.num_passed, group.size - group.num_passed) >= 2
        assert enough or group.size == 24


def test_failed_groups_are_tried_again_with_a_hint_in_the_same_step(tmp_path: Path) -> None:
    counting, learner, rollouts = run(tmp_path, ONCE, uniform=Uniform(), hints=Hints(kind="ghpo"))
    logged = records(tmp_path)
    for step in range(12):
        mine = [d for d in logged if d["step"] == step]
        failed = {d["problem"] for d in mine if d["origin"] == "fresh" and d["k"] == 0}
        assert {d["problem"] for d in mine if d["origin"] == "hinted"} == failed
        assert all(d["hint_share"] <= 0.5 and d["round"] == 1 for d in mine if d["origin"] == "hinted")
    assert any(group.request.hint for batch in learner.batches for group in batch)
    assert sum(counting.sizes) == rollouts


def test_replayed_groups_cost_no_rollouts_and_are_not_observed_again(tmp_path: Path) -> None:
    counting, learner, rollouts = run(tmp_path, ONCE, replay=Replay(), uniform=Uniform(), pilot=Pilot())
    logged = records(tmp_path)
    stored = [d for d in logged if d["origin"] == "stored"]
    assert len(stored) >= 12 and all(d["tokens"] == 0 and d["outcome"] == "trained" for d in stored)
    assert all(d["lag"] == d["step"] - d["policy_version"] > 0 for d in stored)
    assert set(counting.seen.values()) == {1} and sum(counting.sizes) == rollouts
    assert rollouts == sum(d["n"] for d in logged if d["origin"] != "stored")
    assert any(group.request.stored is not None for batch in learner.batches for group in batch)


def test_zero_variance_groups_that_have_advantages_fill_the_batch(tmp_path: Path) -> None:
    _, learner, _ = run(tmp_path, ONCE, uniform=Uniform(), signal=Signal())
    assert {len(batch) for batch in learner.batches} == {GROUPS}
    assert any(group.zero_variance for batch in learner.batches for group in batch)
    assert {d["outcome"] for d in records(tmp_path)} == {"trained"}
