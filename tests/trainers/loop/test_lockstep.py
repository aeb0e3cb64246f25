"""Rollouts in flight while the learner updates: lockstep, and any number of steps ahead."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
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
from messages import says
from virtual_pool import VirtualPool

from halfway.controllers.contrib.mopps import Mopps
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.replay import Replay
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Session, UserError, chain
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.experiments.running.retrace import retrace
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.training import Training
from halfway.trainers.rollouts.collector import Judging
from halfway.trainers.rollouts.in_flight import Pool
from halfway.trainers.rollouts.sampling_process import ProcessPool

ONCE = FillOptions(groups=GROUPS, zero_variance="keep")
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
    assert {len(batch) for batch in run.learner.batches} == {GROUPS}  # zero-variance groups were replaced


def test_the_learner_is_ahead_of_what_it_trains_on_by_the_lag(tmp_path: Path) -> None:
    run = training(tmp_path, ONCE, Budget(steps=6), staleness=2)
    run.train()
    versions = [{group.policy_version for group in batch} for batch in run.learner.batches]
    assert versions == [{0}, {0}, {0}, {1}, {2}, {3}]
    assert [{group.lag for group in batch} for batch in run.learner.batches] == [{0}, {1}, {2}, {2}, {2}, {2}]


@dataclass
class Late(Pool):
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
def test_a_run_that_ends_at_any_moment_resumes_as_if_it_had_not(tmp_path: Path, staleness: int) -> None:
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


STEPS = 8


def members(witness: Witness) -> Any:
    return chain(("prefix_sampling", PrefixSampling()), ("mopps", Mopps()), ("witness", witness))


def timed(folder: Path, witness: Witness, update: float = 0.2, **changes: Any) -> Training:
    """A run on a simulated clock, whose updates take so many seconds."""
    rollouts = SimulatedRollouts(length=12)
    fates = {name: changes.pop(name) for name in ("slots", "straggler_share", "lost_share") if name in changes}
    pool = VirtualPool(rollouts, rate=24.0, **fates)
    learner = ScriptedLearner()

    def sync() -> None:
        pool.spend(update)
        rollouts.sync(learner.policy_version)
        pool.change_weights(learner.policy_version)

    parts = {"rollouts": rollouts, "pool": pool, "learner": learner, "sync": sync, "controller": members(witness)}
    return training(folder, REFILL, Budget(steps=STEPS), **parts, **changes)


def again(folder: Path, staleness: int) -> Any:
    session = Session(PROBLEMS, members(Witness()), SIZE, 0, ALWAYS_PROVIDED)
    return retrace(folder, session, REFILL, staleness, 0)


def assert_sound(folder: Path, run: Training, witness: Witness, staleness: int) -> None:
    """Everything that was drawn was observed once, in order, or is outstanding; lags are bounded; losses counted."""
    tickets = [ticket for _, _, ticket in witness.seen]
    assert tickets == sorted(set(tickets), key=drawn)
    assert max(lag for _, lag, _ in witness.seen) <= staleness
    events = records(folder, "events")
    asked = [ticket for event in events if event["event"] == "draw" for ticket, _, _ in event["tickets"]]
    assert asked == tickets + list(run.waiting)
    done = [event for event in events if event["event"] == "done"]
    assert all(event["size"] + sum(event.get("dropped", {}).values()) == SIZE for event in done)
    assert [event["ticket"] for event in done] == tickets
    found = again(folder, staleness)
    assert (found.steps, found.different) == (STEPS, 0) and found.decisions == len(records(folder))


@settings(max_examples=15, deadline=None)
@given(
    staleness=st.integers(1, 4),
    in_flight=st.booleans(),
    slots=st.integers(4, 40),
    update=st.floats(0.0, 3.0),
    straggler_share=st.floats(0.0, 0.4),
    lost_share=st.floats(0.0, 0.6),
)
def test_whatever_is_slow_or_lost_all_is_observed_once_in_order_and_can_be_retraced(
    tmp_path_factory: pytest.TempPathFactory, staleness: int, update: float, **changes: Any
) -> None:
    folder, witness = tmp_path_factory.mktemp("run"), Witness()
    run = timed(folder, witness, update, staleness=staleness, **changes)
    run.train()
    assert_sound(folder, run, witness, staleness)


def test_rollouts_that_outlast_an_update_are_written_by_two_versions(tmp_path: Path) -> None:
    witness = Witness()
    run = timed(tmp_path, witness, staleness=2, in_flight=True, slots=8)
    run.train()
    trained = [turn for batch in run.learner.batches for g in batch for r in g.rollouts for turn in r.turns]
    spans = [turn.spans for turn in trained if turn.spans and turn.num_generated]
    assert spans and all(sum(count for _, count in turn.spans) in (0, turn.num_generated) for turn in trained)
    assert all(list(each) == sorted(each) and len(each) > 1 for each in spans)
    assert any(len(record.get("policy_versions", ())) > 1 for record in records(tmp_path))
    waiting = timed(tmp_path / "lockstep", Witness(), staleness=2, slots=8)
    waiting.train()
    assert run.pool.now < waiting.pool.now  # nobody waited for the last rollout
    assert not any("policy_versions" in record for record in records(tmp_path / "lockstep"))


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment[0])
def test_a_killed_run_observes_nothing_twice_and_loses_nothing(tmp_path: Path, moment: tuple[str, int]) -> None:
    name, number = moment
    run = timed(tmp_path, Witness(), staleness=2, in_flight=True, slots=8, lost_share=0.1)
    owners: dict[str, Any] = {"run": run.rollouts, "update": run.learner, "save": run.learner}
    kill(owners.get(name, run.session), name, number)
    with pytest.raises(KilledError):
        run.train()
    run = timed(tmp_path, Witness(), staleness=2, in_flight=True, slots=8, lost_share=0.1)
    run.train()
    done = Counter(event["ticket"] for event in records(tmp_path, "events") if event["event"] == "done")
    assert set(done.values()) == {1}
    asked = [t for event in records(tmp_path, "events") if event["event"] == "draw" for t, _, _ in event["tickets"]]
    assert asked == [*done, *run.waiting]
    assert again(tmp_path, 2).different == 0


@dataclass
class Simulated:
    """The simulator in the place of a collector."""

    engine: SimulatedRollouts = field(default_factory=lambda: SimulatedRollouts(length=12))
    environment: Any = field(default_factory=SingleTurn)
    judging: Judging = field(default_factory=Judging)
    judge_seconds: float = 0.0

    def run(self, *job: Any) -> list[Group]:
        return self.engine.run(*job)


@pytest.fixture
def process() -> Iterator[ProcessPool]:
    pool = ProcessPool(Simulated)  # type: ignore[arg-type]
    yield pool
    pool.close()


def test_the_pool_in_another_process_decides_as_the_simulated_one(tmp_path: Path, process: ProcessPool) -> None:
    timed(tmp_path / "virtual", Witness(), staleness=2).train()
    learner = ScriptedLearner()
    parts: dict[str, Any] = {"rollouts": process, "pool": process, "learner": learner}
    parts["sync"] = lambda: process.on_engine("sync", learner.policy_version)
    training(
        tmp_path / "real", REFILL, Budget(steps=STEPS), controller=members(Witness()), staleness=2, **parts
    ).train()
    logs = [(tmp_path / name / "decisions.jsonl").read_bytes() for name in ("virtual", "real")]
    assert logs[0] == logs[1] and b'"lag":2' in logs[0]


def test_a_log_of_other_decisions_is_not_retraced(tmp_path: Path) -> None:
    timed(tmp_path, Witness(), staleness=1).train()
    path = tmp_path / "decisions.jsonl"
    lines = path.read_text().splitlines()
    other = [*lines[:5], json.dumps(json.loads(lines[5]) | {"k": 99}), *lines[6:]]
    path.write_text("\n".join(other) + "\n")
    assert again(tmp_path, 1)[1:] == (5, 6)
    events = tmp_path / "events.jsonl"
    events.write_text(events.read_text().replace('"group":"eA', '"group":"AA', 1))
    with pytest.raises(UserError, match=says("events.jsonl", "group", "damaged")):
        again(tmp_path, 1)
    events.unlink()
    with pytest.raises(UserError, match=says("rollouts.staleness", "above 0")):
        again(tmp_path, 1)
