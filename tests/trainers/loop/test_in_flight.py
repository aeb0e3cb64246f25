"""Weights that change under rollouts, on a simulated clock: order, lags, losses, kills, and every decision again."""

import json
from collections import Counter
from collections.abc import Iterator
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
from halfway.curriculum import Group, UserError, chain
from halfway.curriculum.session import ALWAYS_PROVIDED, Session
from halfway.experiments.running.retrace import retrace
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.options import Budget, FillOptions
from halfway.trainers.loop.training import Training
from halfway.trainers.rollouts.judging import Judging
from halfway.trainers.rollouts.process_pool import ProcessPool
from halfway.trainers.rollouts.virtual_pool import VirtualPool

REFILL = FillOptions(policy="refill", groups=GROUPS, max_rounds=10)
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
    with pytest.raises(UserError, match=r"^events\.jsonl: a group is damaged"):
        again(tmp_path, 1)
    events.unlink()
    with pytest.raises(UserError, match=r"only runs with rollouts\.staleness above 0"):
        again(tmp_path, 1)
