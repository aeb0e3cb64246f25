"""Replay: what is stored, when it trains again, and how much is kept."""

from dataclasses import replace

import numpy as np
import pytest
from controller_harness import group, problem_set

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
