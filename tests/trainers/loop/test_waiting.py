"""Groups that wait over a step: they train once, whole, and every rollout is counted once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loop_harness import (
    GROUPS,
    MOMENTS,
    PROBLEMS,
    SIZE,
    KilledError,
    ScriptedLearner,
    kill,
    records,
    training,
)
from virtual_pool import VirtualPool

from halfway.controllers.contrib.ngu import Ngu
from halfway.controllers.contrib.pilot import Pilot
from halfway.controllers.frontier import Frontier
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, PassRateController, Plan, Session, Stream, chain
from halfway.curriculum.decision_log import GroupRecord, sort_records
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.experiments.running.retrace import retrace
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.training import Training

ONCE = FillOptions(groups=GROUPS)
REFILL = FillOptions(policy="refill", groups=GROUPS, max_rounds=10)
CARRY = FillOptions(policy="refill", groups=GROUPS, max_rounds=10, request_factor=2.0, surplus="carry")
STEPS = 12
HARD = -1.2  # the policy's skill, in logits: most groups of four fail, and some pass later


@dataclass(frozen=True)
class ThreeSteps(PassRateController[None]):
    """Holds every other group for three steps, and asks for one more rollout in each."""

    claims = frozenset({"rounds"})
    needs = frozenset({"waits"})

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        extended = {request.extends for request in plan.requests}
        for group in plan.waiting:
            if group.request.ticket not in extended:
                plan = plan.extend(group, 1, "one more")
        return plan, None

    def hold(self, groups: Sequence[Group], state: None, step: int, stream: Stream) -> Sequence[bool]:
        return [group.size < SIZE + 3 and int(group.request.ticket[-1]) % 2 == 0 for group in groups]


@dataclass(frozen=True)
class Seen(PassRateController[None]):
    """Keeps the groups that it is shown."""

    groups: list[Group] = field(default_factory=list)

    def observe(self, state: None, groups: Sequence[Group], step: int) -> None:
        self.groups.extend(groups)


WAITING: dict[str, PassRateController[Any]] = {
    "ngu": Ngu(size=4, again=0.9),
    "pilot": Pilot(kind="commit", initial=2, commits=2, band=(0.25, 0.75)),
    "three": ThreeSteps(),
}


BOTH = "frontier_ngu"


def members(kind: str, seen: Seen) -> Any:
    chooser = ("frontier", Frontier()) if kind == BOTH else ("uniform", Uniform())
    name = "ngu" if kind == BOTH else kind
    return chain(chooser, (name, WAITING[name]), ("seen", seen))


def played(folder: Path, kind: str, fill: FillOptions = ONCE, seen: Seen | None = None, **changes: Any) -> Training:
    """A run on a simulated clock."""
    rollouts, learner = SimulatedRollouts(skill=HARD, length=12), ScriptedLearner()
    pool = VirtualPool(rollouts, rate=24.0) if changes.get("staleness") else None

    def sync() -> None:
        rollouts.sync(learner.policy_version)
        if pool:
            pool.spend(0.2)
            pool.change_weights(learner.policy_version)

    parts = {"rollouts": rollouts, "pool": pool, "learner": learner, "sync": sync}
    return training(folder, fill, Budget(steps=STEPS), controller=members(kind, seen or Seen()), **parts, **changes)


RUNS = pytest.mark.parametrize(
    ("staleness", "in_flight"), [(0, False), (2, False), (2, True)], ids=["lockstep", "waiting", "streaming"]
)


KINDS = pytest.mark.parametrize("kind", ["ngu", "pilot", BOTH])


@KINDS
@RUNS
@pytest.mark.parametrize("fill", [ONCE, REFILL], ids=["once", "refill"])
def test_every_rollout_is_counted_once_and_every_group_is_observed_and_trains_once(
    tmp_path: Path, kind: str, staleness: int, in_flight: bool, fill: FillOptions
) -> None:
    seen = Seen()
    run = played(tmp_path, kind, fill, seen, staleness=staleness, in_flight=in_flight)
    progress = run.train()
    logged, steps = records(tmp_path), records(tmp_path, "steps")
    assert sum(record["n"] for record in logged) == progress.rollouts
    assert sum(record["tokens"] for record in logged) == progress.tokens
    assert sum(step["responses"]["scored"] for step in steps) == progress.rollouts
    left = sum(group.size for group in run.session._groups.values())
    assert progress.rollouts == sum(group.size for group in seen.groups) + left
    observed = Counter(group.request.ticket for group in seen.groups)
    trained = Counter(group.request.ticket for batch in run.learner.batches for group in batch)
    assert {*observed.values(), *trained.values()} == {1} and trained.keys() <= observed.keys()
    whole = sort_records([msgspec.convert(record, GroupRecord) for record in logged]).groups
    assert Counter((g.problem, g.k, g.n) for g in whole if g.outcome == "trained") == Counter(
        (group.request.problem.id, group.num_passed, group.size) for batch in run.learner.batches for group in batch
    )
    assert sum(g.size for g in whole) == progress.rollouts and sum(g.tokens for g in whole) == progress.tokens
    assert not any(g.earlier_n for g in whole)
    waited = [record for record in logged if record["outcome"] == "waiting"]
    assert waited and sum(step["groups"].get("waiting", 0) for step in steps) == len(waited)
    for step in steps:
        here = [record for record in logged if record["step"] == step["step"] and record["n"]]
        sums = [(r["k"] + r.get("earlier_k", 0), r["n"] + r.get("earlier_n", 0)) for r in here]
        shown = step["zero_variance"]
        assert shown["all_fail"] == pytest.approx(sum(k == 0 for k, _ in sums) / len(sums))
        assert shown["all_pass"] == pytest.approx(sum(k == n for k, n in sums) / len(sums))
        assert shown["fresh"] == pytest.approx(shown["all_fail"] + shown["all_pass"])
    ends = [record for record in logged if "earlier_n" in record and record["outcome"] == "trained"]
    assert ends and all(record["k"] + record["earlier_k"] > 0 for record in ends)
    if kind != "pilot":
        assert all(record["earlier_k"] == 0 for record in ends)
        assert all(len(record["weights"]) == record["n"] + record["earlier_n"] for record in ends)


def test_a_group_that_waited_and_is_carried_into_the_next_step_is_read_back_once(tmp_path: Path) -> None:
    run = played(tmp_path, "ngu", CARRY)
    progress = run.train()
    logged = records(tmp_path)
    assert any(record["outcome"] == "carried" and record.get("earlier_n") for record in logged)
    whole = sort_records([msgspec.convert(record, GroupRecord) for record in logged]).groups
    assert sum(g.size for g in whole) == progress.rollouts and sum(g.tokens for g in whole) == progress.tokens
    assert Counter((g.problem, g.k, g.n) for g in whole if g.outcome == "trained") == Counter(
        (group.request.problem.id, group.num_passed, group.size) for batch in run.learner.batches for group in batch
    )


@RUNS
def test_waiting_groups_do_not_change_the_groups_of_a_step(tmp_path: Path, staleness: int, in_flight: bool) -> None:
    played(tmp_path, "ngu", staleness=staleness, in_flight=in_flight).train()
    counted = Counter(record["step"] for record in records(tmp_path))
    assert set(counted.values()) == {GROUPS}


@RUNS
def test_a_group_that_waited_three_steps_has_rollouts_of_four_weights_with_their_lags(
    tmp_path: Path, staleness: int, in_flight: bool
) -> None:
    fill = FillOptions(groups=GROUPS, zero_variance="keep")
    run = played(tmp_path, "three", fill, staleness=staleness, in_flight=in_flight)
    run.train()
    late = [(step, g) for step, batch in enumerate(run.learner.batches) for g in batch if g.size == SIZE + 3]
    assert late
    for step, group in late[-3:]:
        written = [rollout.policy_versions[0] for rollout in group.rollouts]
        updates = sum(map(bool, run.learner.batches[:step]))
        assert written == sorted(written) and len(set(written)) >= 3
        assert group.lag == updates - written[0] > staleness


@KINDS
@pytest.mark.parametrize("in_flight", [False, True], ids=["waiting", "streaming"])
def test_a_run_with_groups_that_wait_is_retraced(tmp_path: Path, kind: str, in_flight: bool) -> None:
    played(tmp_path, kind, REFILL, staleness=2, in_flight=in_flight).train()
    session = Session(PROBLEMS, members(kind, Seen()), SIZE, 0, ALWAYS_PROVIDED)
    found = retrace(tmp_path, session, REFILL, 2, 0)
    assert (found.steps, found.different) == (STEPS, 0)


def ended(folder: Path, kind: str, staleness: int, moment: tuple[str, int] | None) -> tuple[bytes, list[Any], Any]:
    """What a run leaves that was ended at the n-th call of a method and resumed: log, batches and state."""
    for attempt in (moment, None):
        run = training(folder, REFILL, Budget(steps=STEPS), controller=members(kind, Seen()), staleness=staleness)
        run.rollouts.skill = HARD
        if attempt is not None:
            owners: dict[str, Any] = {"run": run.rollouts, "update": run.learner, "save": run.learner, "sync": run}
            kill(owners.get(attempt[0], run.session), *attempt)
        try:
            run.train()
        except KilledError:
            assert attempt is not None
            continue
        assert attempt is None, f"{attempt} never came"
        last = run.learner.batches[-1]
        batch = [(g.request.ticket, g.lag, g.num_passed, g.size, g.weights_N.tolist()) for g in last]
        return (folder / "decisions.jsonl").read_bytes(), batch, run.session.state_dict()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("staleness", [0, 2])
@KINDS
def test_a_run_killed_while_groups_wait_resumes_with_equal_bits(tmp_path: Path, kind: str, staleness: int) -> None:
    expected = ended(tmp_path / "peace", kind, staleness, None)
    assert b'"waiting"' in expected[0] and b'"earlier_n"' in expected[0]
    for moment in MOMENTS:
        assert ended(tmp_path / moment[0], kind, staleness, moment) == expected, moment
