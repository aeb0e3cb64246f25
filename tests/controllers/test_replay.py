"""Replay: what is stored, when it trains again, and how much is kept."""

from dataclasses import replace

import numpy as np
import pytest
from controller_harness import group, problem_set
from msgspec import structs

from halfway.controllers.replay import Replay
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Origin, Plan, Rollout, Session, Stream, chain
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.learner_options import LearnerOptions

PROBLEMS = problem_set(12)
GROUPS = [group(problem, k) for problem, k in zip(PROBLEMS, (0, 1, 4, 8, 5, 7), strict=False)]


def session_of(replay: Replay, wanted: int = 8) -> Session:
    return Session(PROBLEMS, chain(("replay", replay), ("uniform", Uniform())), 8)


def test_groups_with_signal_are_stored_and_take_their_share_of_a_plan() -> None:
    session = session_of(Replay(share=0.25))
    for step in range(4):
        tickets = session.next_batch(8)
        stored = [t.request.stored for t in tickets if t.request.stored is not None]
        assert len(tickets) == 8 and len(stored) == (2 if step else 0)
        assert not any(g.zero_variance for g in stored)
        ids = [t.request.problem.id for t in tickets]
        assert len(set(ids)) == 8  # no problem stands in a plan twice
        for ticket, passed in zip([t for t in tickets if t.request.stored is None], range(8), strict=False):
            session.record_counts(ticket.id, passed, 8)
        session.commit()
    assert session.metrics()["replay/replayed"] == 6.0


def test_a_group_is_not_drawn_twice_in_a_step() -> None:
    replay = Replay(share=0.9)
    session = session_of(replay)
    session.state["replay"] = replay.observe(session.state["replay"], GROUPS, 0)
    drawn: list[str] = []
    for _ in range(3):
        drawn += [t.request.problem.id for t in session.next_batch(4) if t.request.origin is Origin.STORED]
    assert sorted(drawn) == ["p1", "p2", "p4", "p5"]


def drawn_from(replay: Replay, groups: list[Group], steps: int) -> list[list[str]]:
    """The problems of the groups replayed in each step, if only these groups ever came in, before the first."""
    session = session_of(replay)
    session.state["replay"] = replay.observe(session.state["replay"], groups, -1)
    drawn = []
    for _ in range(steps):
        tickets = session.next_batch(8)
        drawn.append([t.request.problem.id for t in tickets if t.request.stored is not None])
        for ticket in tickets:
            if ticket.request.stored is None:
                session.record_counts(ticket.id, 0, 8)
        session.commit()
    return drawn


@pytest.mark.parametrize("uses", [1, 3])
def test_a_stored_group_is_dropped_after_its_uses(uses: int) -> None:
    assert drawn_from(Replay(uses=uses), GROUPS[1:2], 5) == [["p1"]] * uses + [[]] * (5 - uses)


@pytest.mark.parametrize("age", [1, 3])
def test_a_stored_group_goes_when_it_is_too_old(age: int) -> None:
    assert drawn_from(Replay(age=age), GROUPS[1:2], 5) == [["p1"]] * age + [[]] * (5 - age)


def test_a_matched_replay_takes_no_more_than_came_in_the_step_before() -> None:
    assert [len(step) for step in drawn_from(Replay(matched=True), GROUPS, 3)] == [4, 0, 0]
    assert [len(step) for step in drawn_from(Replay(matched=True), GROUPS[:3], 1)] == [2]
    assert [len(step) for step in drawn_from(Replay(), GROUPS, 3)] == [4, 4, 4]


def test_a_matched_replay_takes_no_more_over_all_rounds_of_a_step() -> None:
    replay = Replay(share=0.9, matched=True)
    session = session_of(replay)
    for step, groups in ((-2, GROUPS), (-1, GROUPS[:2])):
        session.state["replay"] = replay.observe(session.state["replay"], groups, step)
    drawn = [t for _ in range(3) for t in session.next_batch(4) if t.request.origin is Origin.STORED]
    assert len(drawn) == 1


def test_groups_with_rare_successes_are_taken_first_and_more_often() -> None:
    firsts = [drawn_from_seed(seed)[0] for seed in range(200)]
    share = firsts.count("p1") / len(firsts)
    # Weights 1 - p of the groups with 1, 4, 5 and 7 of 8: 7 of 7 + 4 + 3 + 1.
    assert share == pytest.approx(7 / 15, abs=0.1)
    assert firsts.count("p5") < firsts.count("p4") < firsts.count("p1")


def drawn_from_seed(seed: int) -> list[str]:
    replay = Replay(order="rare")
    state = replay.observe(replay.init(PROBLEMS), GROUPS, -1)
    plan, _ = replay.propose(Plan(0, 2, 8, member="replay"), state, Stream(seed))
    return [request.problem.id for request in plan.requests]


def test_a_stored_group_trains_with_the_log_probabilities_it_was_sampled_with() -> None:
    (made,) = SimulatedRollouts(policy_version=3).run([session_of(Replay()).next_batch(1)[0].request], Stream(5))
    state = Replay().observe(Replay().init(PROBLEMS), [made], 0)
    session = session_of(Replay())
    session.state["replay"] = state
    (request,) = [t.request for t in session.next_batch(2) if t.request.stored is not None]
    assert request.stored is not None
    trained = Group(request, made.prompt_tokens_P, request.stored.rollouts)
    for sequence, rollout in zip(make_batch([trained], LearnerOptions()).sequences, made.rollouts, strict=True):
        assert sequence.old_logprobs_T is not None
        np.testing.assert_array_equal(
            sequence.old_logprobs_T[-len(rollout.turns[0].logprobs_T) :], rollout.turns[0].logprobs_T
        )


# A group has a prompt of 2 tokens and 8 rollouts of 8.
@pytest.mark.parametrize(("capacity", "tokens", "kept"), [(2, 10_000, 2), (512, 66 * 3, 3), (512, 66 * 3 - 1, 2)])
def test_the_oldest_go_first_and_both_bounds_hold(capacity: int, tokens: int, kept: int) -> None:
    replay = Replay(capacity=capacity, tokens=tokens)
    state = replay.init(PROBLEMS)
    for made in GROUPS:
        state = replay.observe(state, [made], 0)
    assert [g.request.problem.id for g in state.groups] == ["p1", "p2", "p4", "p5"][-kept:]


def test_observations_count_as_stored_tokens() -> None:
    tokens = 2 + 2 * (8 + 5)
    turn = replace(GROUPS[0].rollouts[0].turns[0], observation_tokens_O=np.zeros(5, np.int32))
    made = group(PROBLEMS[0], 1, 2, rollouts=[Rollout((turn,), success) for success in (False, True)])
    for bound, stored in ((tokens, 1.0), (tokens - 1, 0.0)):
        replay = Replay(tokens=bound)
        assert replay.metrics(replay.observe(replay.init(PROBLEMS), [made], 0))["stored"] == stored


def test_a_group_that_passed_is_stored_with_earlier_failures_of_its_problem() -> None:
    replay = Replay(failures=2)
    state = replay.init(PROBLEMS)
    failed, passed, other = group(PROBLEMS[0], 5, 8), group(PROBLEMS[0], 8, 8), group(PROBLEMS[1], 8, 8)
    state = replay.observe(state, [failed, other], 3)
    assert len(state.groups) == 1 and [len(g.rollouts) for g in state.failed] == [2]
    state = replay.observe(state, [passed, other], 4)
    joined = state.groups[-1]
    assert len(state.groups) == 2 and joined.num_passed == 8 and joined.size == joined.request.num_rollouts == 10
    assert [r.success for r in joined.rollouts] == [True] * 8 + [False] * 2
    failures = [r for r in failed.rollouts if not r.success]
    assert [r.turns[0].tokens_T.tolist() for r in joined.rollouts[8:]] == [
        r.turns[0].tokens_T.tolist() for r in failures[-2:]
    ]
    assert replay.metrics(state)["joined"] == 1.0
    trained = make_batch(
        [replace(joined, request=structs.replace(joined.request, origin=Origin.STORED))], LearnerOptions()
    )
    assert len(trained.sequences) == 10 and all(each.old_logprobs_T is not None for each in trained.sequences)


def test_failures_that_are_too_old_late_or_of_another_start_join_nothing() -> None:
    passed = group(PROBLEMS[0], 8, 8)
    late = group(PROBLEMS[0], 0, 2)
    late = replace(late, rollouts=tuple(replace(rollout, late=True) for rollout in late.rollouts))
    for earlier, then in (
        ([group(PROBLEMS[0], 4, 8)], 9),
        ([late], 1),
        ([group(PROBLEMS[0], 4, 8, origin=Origin.GENERATED)], 1),
        ([], 1),
    ):
        replay = Replay(failures=2, age=5)
        state = replay.observe(replay.init(PROBLEMS), earlier, 0)
        before = len(replay.observe(state, [], then).groups)
        assert len(replay.observe(state, [passed], then).groups) == before


def test_stored_failures_are_bounded_and_off_by_default() -> None:
    replay = Replay(failures=1, capacity=3)
    state = replay.observe(replay.init(PROBLEMS), [group(problem, 0, 4) for problem in PROBLEMS[:6]], 0)
    assert [g.request.problem.id for g in state.failed] == ["p3", "p4", "p5"]
    assert Replay().observe(Replay().init(PROBLEMS), [group(PROBLEMS[0], 0, 4)], 0).failed == ()
