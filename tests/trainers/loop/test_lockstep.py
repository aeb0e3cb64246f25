"""Lockstep: batches are sampled while the learner updates, and their outcomes recorded in the order they were drawn."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_harness import (
    GROUPS,
    MOMENTS,
    PROBLEMS,
    SIZE,
    KilledError,
    ScriptedLearner,
    Witness,
    drawn,
    kill,
    records,
    training,
)

from halfway.controllers.mopps import Mopps
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.replay import Replay
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, chain
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.options import Budget, FillOptions
from halfway.trainers.loop.training import Training

ONCE = FillOptions(groups=GROUPS, degenerate="keep")
REFILL = FillOptions(policy="refill", groups=GROUPS, max_rounds=10)
LATE = pytest.mark.parametrize("staleness", [1, 2, 4, 8])


@LATE
@pytest.mark.parametrize("fill", [ONCE, REFILL], ids=["once", "refill"])
def test_groups_are_observed_once_in_the_order_they_were_drawn_and_no_later_than_staleness_allows(
    tmp_path: Path, fill: FillOptions, staleness: int
) -> None:
    witness = Witness()
    members = chain(("uniform", Uniform()), ("witness", witness))
    run = training(tmp_path, fill, Budget(steps=20), controller=members, staleness=staleness)
    run.train()
    tickets = [ticket for _, _, ticket in witness.seen]
    assert tickets == sorted(set(tickets), key=drawn)
    latest = max(lag for _, lag, _ in witness.seen)
    assert latest == staleness if fill is ONCE else latest <= staleness  # refills use up what is outstanding
    assert {lag for step, lag, _ in witness.seen if step == 0} == {0}
    assert tickets + list(run.waiting) == sorted({*tickets, *run.waiting}, key=drawn)  # and nothing is missing
    logged = Counter(record.get("lag", 0) for record in records(tmp_path))
    assert logged == Counter(lag for _, lag, _ in witness.seen)


@LATE
def test_no_more_is_outstanding_than_staleness_allows(tmp_path: Path, staleness: int) -> None:
    class Counting(ScriptedLearner):
        def update(self, groups: Sequence[Group], *arguments: Any) -> dict[str, float]:
            most.append(len(groups) + len(run.waiting))
            return super().update(groups, *arguments)

    most: list[int] = []
    run = training(tmp_path, REFILL, Budget(steps=20), learner=Counting(), staleness=staleness)
    run.train()
    assert most == [(staleness + 1) * GROUPS] * 20
    assert {len(batch) for batch in run.learner.batches} == {GROUPS}  # silent groups were replaced


def test_the_learner_is_ahead_of_what_it_trains_on_by_the_lag(tmp_path: Path) -> None:
    run = training(tmp_path, ONCE, Budget(steps=6), staleness=2)
    run.train()
    versions = [{group.policy_version for group in batch} for batch in run.learner.batches]
    assert versions == [{0}, {0}, {0}, {1}, {2}, {3}]
    assert [{group.lag for group in batch} for batch in run.learner.batches] == [{0}, {1}, {2}, {2}, {2}, {2}]


@dataclass
class Late:
    """A pool that rolls out as late as it may: when a group is asked for, in an order of its own."""

    rollouts: SimulatedRollouts
    order: Any
    submitted: list[Any] = field(default_factory=list)
    done: dict[str, Group] = field(default_factory=dict)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)

    def time(self) -> float:
        return 0.0

    def submit(self, *job: Any) -> None:
        self.submitted.append((self.rollouts.policy_version, job))

    def take(self, tickets: Sequence[str]) -> list[Group]:
        while any(ticket not in self.done for ticket in tickets):
            version, job = self.submitted.pop(self.order.draw(st.integers(0, len(self.submitted) - 1)))
            assert version == self.rollouts.policy_version, "the weights changed under a rollout"
            self.done |= {group.request.ticket: group for group in self.rollouts.run(*job)}
        return [self.done.pop(ticket) for ticket in tickets]

    def close(self) -> None: ...


def decisions(folder: Path, **changes: Any) -> tuple[bytes, Training]:
    members = chain(("prefix_sampling", PrefixSampling()), ("mopps", Mopps()))
    run = training(folder, REFILL, Budget(steps=8), controller=members, **changes)
    run.train()
    return (folder / "decisions.jsonl").read_bytes(), run


@settings(max_examples=25, deadline=None)
@given(order=st.data(), staleness=st.integers(1, 3))
def test_decisions_depend_on_outcomes_and_not_on_when_they_arrive(
    tmp_path_factory: pytest.TempPathFactory, order: Any, staleness: int
) -> None:
    expected, _ = decisions(tmp_path_factory.mktemp("inline"), staleness=staleness)
    rollouts = SimulatedRollouts()
    late = {"rollouts": rollouts, "pool": Late(rollouts, order)}
    assert decisions(tmp_path_factory.mktemp("late"), staleness=staleness, **late)[0] == expected
    assert b'"origin":"prefix"' in expected


def resumed(folder: Path, staleness: int, moment: tuple[str, int] | None) -> tuple[bytes, list[Any], dict[str, Any]]:
    """What a run leaves that was ended at the n-th call of a method and resumed: log, last batch and state."""
    members = chain(
        ("replay", Replay(share=0.25)), ("prefix_sampling", PrefixSampling(max_share=0.5)), ("uniform", Uniform())
    )
    for attempt in (moment, None):
        run = training(folder, REFILL, Budget(steps=8), controller=members, staleness=staleness)
        if attempt is not None:
            name, number = attempt
            owners: dict[str, Any] = {"run": run.rollouts, "update": run.learner, "save": run.learner, "sync": run}
            owner = owners.get(name, run.session)
            kill(owner, name, number)
        try:
            run.train()
        except KilledError:
            assert attempt is not None
            continue
        assert attempt is None, f"{attempt} never came"
        batch = [(group.request.ticket, group.lag, group.num_passed) for group in run.learner.batches[-1]]
        return (folder / "decisions.jsonl").read_bytes(), batch, run.session.state_dict()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_run_that_ends_at_any_moment_goes_on_as_if_it_had_not(tmp_path: Path, staleness: int) -> None:
    expected = resumed(tmp_path / "peace", staleness, None)
    assert b'"origin":"stored"' in expected[0] and b'"origin":"prefix"' in expected[0]
    for moment in MOMENTS:
        found = resumed(tmp_path / f"{moment[0]}", staleness, moment)
        assert found == expected, moment


def test_a_checkpoint_holds_what_has_come_back_but_was_not_recorded(tmp_path: Path) -> None:
    run = training(tmp_path, ONCE, Budget(steps=4), staleness=2)
    run.train()
    saved = json.loads((tmp_path / "checkpoints" / "step-00000004" / "loop.json").read_text())
    assert [group["request"]["ticket"] for group in saved["waiting"]] == list(run.waiting)
    assert len(saved["waiting"]) == 2 * GROUPS and all(len(group["rollouts"]) == SIZE for group in saved["waiting"])
    assert len(PROBLEMS) > 2 * GROUPS
