"""Judging while the engine samples, and rollouts on a simulated clock."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_harness import GROUPS, SIZE, ScriptedLearner, training
from virtual_pool import VirtualPool

from halfway.curriculum import Group
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.rollouts.overlapping import BackgroundCalls


@given(st.lists(st.integers(), max_size=50))
def test_every_item_has_its_result_in_order(items: list[int]) -> None:
    with BackgroundCalls(lambda items: [2 * item for item in items]) as doubled:
        for item in items:
            doubled.add(item)
        assert list(doubled.results()) == [(item, 2 * item) for item in items]


def test_requests_that_arrive_during_a_call_share_the_next_call() -> None:
    calls: list[list[int]] = []
    begun, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> Sequence[int]:
        calls.append([*items])
        begun.set()
        assert go_on.wait(timeout=30)
        return items

    with BackgroundCalls(work) as same:
        same.add(0)
        assert begun.wait(timeout=30)
        for item in (1, 2, 3):
            same.add(item)
        go_on.set()
        assert len(list(same.results())) == 4
    assert calls == [[0], [1, 2, 3]]


def test_an_exception_of_the_work_is_raised_with_the_results() -> None:
    def divide(items: Sequence[int]) -> list[float]:
        return [1 / item for item in items]

    with BackgroundCalls(divide) as inverted, pytest.raises(ZeroDivisionError):
        inverted.add(0)
        list(inverted.results())


def test_leaving_early_drops_what_has_not_begun() -> None:
    done: list[int] = []

    def work(items: Sequence[int]) -> Sequence[int]:
        time.sleep(0.2)
        done.extend(items)
        return items

    with pytest.raises(KeyError), BackgroundCalls(work) as slow:
        slow.add(0)
        time.sleep(0.05)
        slow.add(1)
        raise KeyError
    assert done == [0]


STEPS, LENGTH = 10, 12
FILL = FillOptions(groups=GROUPS, zero_variance="keep")


@dataclass
class Timed(ScriptedLearner):
    """A learner whose updates take simulated time."""

    pool: Any = None
    seconds: float = 0.0

    def update(self, groups: Sequence[Group], *arguments: Any) -> dict[str, float]:
        self.pool.spend(self.seconds)
        return super().update(groups, *arguments)


def clocked(folder: Path, staleness: int, seconds: float, **options: Any) -> VirtualPool:
    """The pool after a run whose batches take a second to sample, and whose updates take so many."""
    rollouts = SimulatedRollouts(length=LENGTH)
    pool = VirtualPool(rollouts, slots=GROUPS * SIZE, rate=LENGTH, **options)
    learner = Timed(pool=pool, seconds=seconds)
    training(
        folder, FILL, Budget(steps=STEPS), rollouts=rollouts, pool=pool, learner=learner, staleness=staleness
    ).train()
    return pool


@pytest.mark.parametrize("update", [0.25, 1.0, 4.0])
def test_waiting_takes_sampling_plus_update_and_lockstep_the_longer_of_both(tmp_path: Path, update: float) -> None:
    waiting = clocked(tmp_path / "waiting", 0, update)
    assert waiting.now == pytest.approx(STEPS * (1 + update)) and waiting.waited == pytest.approx(STEPS)
    ahead = clocked(tmp_path / "ahead", 1, update)
    assert ahead.now == pytest.approx(1 + STEPS * max(1, update))  # the first batch is waited for


def test_stragglers_take_longer_and_change_no_decision(tmp_path: Path) -> None:
    even = clocked(tmp_path / "even", 2, 1.0)
    uneven = clocked(tmp_path / "uneven", 2, 1.0, straggler_share=0.05)
    again = clocked(tmp_path / "again", 2, 1.0, straggler_share=0.05)
    assert even.now < uneven.now == again.now and even.sampled < uneven.sampled
    real = training(
        tmp_path / "inline", FILL, Budget(steps=STEPS), rollouts=SimulatedRollouts(length=LENGTH), staleness=2
    )
    real.train()
    logs = [(tmp_path / name / "decisions.jsonl").read_bytes() for name in ("even", "uneven", "inline")]
    assert logs[0] == logs[1] == logs[2]


def test_one_slot_decodes_one_rollout_after_the_other(tmp_path: Path) -> None:
    rollouts = SimulatedRollouts(length=LENGTH)
    pool = VirtualPool(rollouts, slots=1, rate=LENGTH)
    run = training(tmp_path, FILL, Budget(steps=1), rollouts=rollouts, pool=pool)
    run.train()
    assert pool.now == pool.waited == pool.sampled == pytest.approx(GROUPS * SIZE)
