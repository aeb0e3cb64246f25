"""Hints: how long they get, for which problems, and where they end."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from controller_harness import group, problem_set, propose
from messages import says
from msgspec import structs

from halfway.controllers.hints import Hints, HintsState
from halfway.controllers.prefixes.hint_cuts import cut_points, step_length, units_left
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Origin, Plan, Problem, ProblemSet, Request, Session, Stream, UserError, chain
from halfway.testing.simulator import SimulatedRollouts

SOLUTION = "".join(f"step {i:02d}\n" for i in range(10))  # ten lines of eight characters
PROBLEM = Problem("p", "?", "0", features={"difficulty": 4.0}, solution=SOLUTION)
LINES = {"separator": "\n"}


def requested(hints: Hints, state: HintsState, problem: Problem = PROBLEM, step: int = 0) -> Request:
    plan = Plan(step, 1, 8, (Request(problem, 8),), member="hints")
    (request,) = hints.propose(plan, state, Stream(0))[0].requests
    return request


def after(hints: Hints, state: HintsState, request: Request, passed: int) -> HintsState:
    return hints.observe(state, [replace(group(request.problem, passed), request=request)], 0)


def test_hints_end_where_a_step_ends() -> None:
    assert cut_points("ab\ncd\nef", "\n") == (3, 6)
    assert cut_points("ab\ncd\n\n", "\n") == (3,)  # behind the last line there is nothing left to do
    assert cut_points("ab, cd, ef", ", ") == (4, 8)
    assert cut_points("aB4bK1cB5", width=3) == (3, 6)
    assert cut_points("x" * 100) == tuple(range(7, 100, 7))
    assert cut_points("") == cut_points("x") == ()


@pytest.mark.parametrize(
    ("length", "rate", "expected"),
    [
        *((0, 0, 5), (5, 0, 7), (7, 0, 8), (8, 0, 9), (9, 0, 9), (0, 1 / 8, 1), (9, 1 / 8, 9), (4, 3 / 8, 4)),
        *((4, 0.5, 4), (4, 5 / 8, 3), (9, 1, 4), (1, 1, 0), (0, 1, 0), (1, 5 / 8, 0)),
    ],
)
def test_a_hint_grows_after_failure_and_shrinks_after_success(length: int, rate: float, expected: int) -> None:
    assert step_length(length, 9, rate, 0.2, 0.6) == expected


def test_the_first_hint_comes_after_failure_and_begins_the_response() -> None:
    hints = Hints(**LINES)
    state = hints.init(ProblemSet([PROBLEM]))
    plain = requested(hints, state)
    assert (plain.origin, plain.hint) == (Origin.FRESH, None)
    hinted = requested(hints, after(hints, state, plain, 0))
    assert hinted.hint is not None and hinted.origin is Origin.HINTED
    assert (hinted.hint.text, hinted.hint.share, hinted.hint.place) == (SOLUTION[:40], 0.5, "response")
    assert requested(hints, after(hints, after(hints, state, plain, 0), hinted, 8)).hint.text == SOLUTION[:16]  # type: ignore[union-attr]


def simulate(hints: Hints, steps: int, difficulty: float = 4.0, **rollouts: Any) -> list[list[Group]]:
    """The groups of each step of a session with the scripted learner, all its rounds."""
    problems = ProblemSet(
        [
            structs.replace(PROBLEM, id=f"p{i}", features={"difficulty": difficulty + i / 8, "category": "ab"[i % 2]})
            for i in range(8)
        ]
    )
    session = Session(problems, chain(("uniform", Uniform()), ("hints", hints)), 8)
    seen = []
    for step in range(steps):
        wanted = 8
        while tickets := session.next_batch(wanted):
            learner = SimulatedRollouts(**{"pull": 8.0, "growth": 0.0} | rollouts)
            for made in learner.run([t.request for t in tickets], Stream(1).at(step, session.round)):
                session.record_group(made.request.ticket, made)
            wanted = 0
        seen.append(session.commit())
    return seen


def mean_rate(steps: Sequence[Sequence[Group]]) -> float:
    groups = [g for step in steps for g in step]
    return sum(g.pass_rate for g in groups) / len(groups)


@pytest.mark.parametrize("kind", ["reverse", "shared", "adaprefix", "seele"])
def test_problems_that_never_pass_come_to_pass_about_half_of_the_time(kind: Any) -> None:
    plain = simulate(Hints(kind="ghpo", tries=1, shortest=10_000), 20)
    assert mean_rate(plain) < 0.03
    assert 0.35 < mean_rate(simulate(Hints(kind=kind, **LINES), 40)[10:]) < 0.65  # type: ignore[arg-type]


def test_hints_vanish_as_the_policy_learns_and_easy_problems_never_get_any() -> None:
    learnt = simulate(Hints(**LINES), 12, skill=12.0)
    assert all(g.request.hint is None for step in learnt for g in step)
    hints = Hints(**LINES)
    state = hints.init(ProblemSet([PROBLEM]))
    for passed in (0, 0, 8, 8, 8, 8, 8):
        state = after(hints, state, requested(hints, state), passed)
    assert requested(hints, state).hint is None


def test_the_hints_of_a_category_follow_its_pass_rates() -> None:
    left_C = np.array([4.0, 4.0])
    trials = [(0, 1.0), (0, 0.75), (1, 0.0), (1, 0.5)]
    assert units_left(left_C, trials, 0.5, 2.0, 10).tolist() == [5.5, 3.0]
    assert left_C.tolist() == [4.0, 4.0]
    # Held to what there is: at least a unit, at most the longest solution. One group after another, so that a group
    # beyond the bound is not made good by the next.
    assert units_left(left_C, [(0, 1.0), (0, 0.0), (1, 0.0)], 0.5, 12.0, 5).tolist() == [1.0, 1.0]


def test_a_problems_first_hint_is_as_long_as_those_of_its_category() -> None:
    hints = Hints(kind="shared", gain=4.0, **LINES)  # type: ignore[arg-type]
    like = [structs.replace(PROBLEM, id=f"{kind}{i}", features={"category": kind}) for kind in "ab" for i in range(2)]
    state = hints.init(ProblemSet(like))
    assert requested(hints, state, like[0]).hint is None  # all ten lines are left to do
    state = after(hints, after(hints, state, Request(like[0], 8), 0), Request(like[0], 8), 2)
    assert state.left_C.tolist() == [7.0, 10.0]  # 10 - 4 / 2 - 4 / 4
    first = requested(hints, state, like[1]).hint
    assert first is not None and first.text == SOLUTION[: 3 * 8]
    assert requested(hints, state, like[3]).hint is None


def test_each_problems_share_follows_its_own_pass_rates_and_is_withdrawn() -> None:
    hints = Hints(kind="adaprefix", stage_steps=10, **LINES)  # type: ignore[arg-type]
    other = structs.replace(PROBLEM, id="other")
    state = hints.init(ProblemSet([PROBLEM, other]))
    state = after(hints, state, requested(hints, state), 0)
    assert state.left_C.tolist() == [0.5, 1.0]  # 1 + (0 - 1/2)
    assert requested(hints, state, other).hint is None
    lines = {step: requested(hints, state, step=step).hint for step in (0, 10, 15, 16, 18, 20, 99)}
    assert [len(hint.text) // 8 if hint else 0 for hint in lines.values()] == [5, 5, 5, 4, 2, 0, 0]
    state = after(hints, state, requested(hints, state), 6)
    assert state.left_C.tolist() == [0.75, 1.0]
    state = after(hints, after(hints, state, requested(hints, state), 8), requested(hints, state), 8)
    assert requested(hints, state).hint is None and state.left_C.max() == 1.0


def test_the_schedule_goes_by_stages_and_leaves_out_what_is_too_short() -> None:
    hints = Hints(kind="schedule", place="prompt", width=1, stage_steps=5, shortest=10)
    state = hints.init(ProblemSet([PROBLEM]))
    shares = [requested(hints, state, step=step).hint.share for step in (0, 4, 5, 500)]  # type: ignore[union-attr]
    assert shares == [0.5, 0.5, 0.25, 0.25]
    short = structs.replace(PROBLEM, solution="x" * 39)  # a quarter is nine characters
    assert requested(hints, state, short, step=5).hint is None
    assert requested(hints, state, short, step=0).hint.share == 19 / 39  # type: ignore[union-attr]


def test_a_problem_without_success_is_tried_again_in_the_same_step_with_half_of_its_solution() -> None:
    steps = simulate(Hints(kind="ghpo", **LINES), 6, difficulty=3.0)  # type: ignore[arg-type]
    for groups in steps:
        failed = {g.request.problem.id for g in groups if g.request.hint is None and g.num_passed == 0}
        hinted = {g.request.problem.id: g.request.hint.share for g in groups if g.request.hint is not None}
        assert hinted == dict.fromkeys(failed, 0.5)
        assert len(groups) == 8 + len(failed)
    assert any(g.request.hint and not g.zero_variance for groups in steps for g in groups)


def test_a_problem_that_passes_with_a_hint_is_not_tried_without_one_again() -> None:
    steps = simulate(Hints(kind="ghpo", tries=3, **LINES), 6, difficulty=1.0, pull=12.0)  # type: ignore[arg-type]
    tries = [[g for g in groups if g.request.problem.id == f"p{i}"] for groups in steps for i in range(8)]
    assert any(len(tried) == 2 and tried[1].num_passed == 8 for tried in tries)
    assert not any(tried[1].num_passed for tried in tries if len(tried) > 2)


@pytest.mark.parametrize(("passed", "again"), [((0, 0), 1), ((3, 0), 0), ((0, 3), 0)])
def test_a_problem_in_two_slots_is_retried_only_if_no_rollout_passes(passed: tuple[int, int], again: int) -> None:
    hints = Hints(kind="ghpo", tries=2, **LINES)  # type: ignore[arg-type]
    state = hints.init(ProblemSet([PROBLEM]))
    plain = requested(hints, state)
    in_hand = tuple(replace(group(PROBLEM, k), request=plain) for k in passed)
    plan, _ = hints.propose(Plan(0, 0, 8, member="hints", in_hand=in_hand), state, Stream(0))
    assert len(plan.requests) == again


def test_further_tries_are_bounded_and_use_another_hint_length() -> None:
    for groups in simulate(Hints(kind="seele", tries=2, **LINES), 5, difficulty=6.0):  # type: ignore[arg-type]
        for problem in {g.request.problem.id for g in groups}:
            tried = [g for g in groups if g.request.problem.id == problem]
            assert len(tried) <= 3 and all(g.zero_variance for g in tried[:-1])
            shares = [g.request.hint.share if g.request.hint else 0.0 for g in tried]
            assert all(a != b for a, b in pairwise(shares))


def test_problems_without_a_solution_are_left_alone_and_counted() -> None:
    with_and_without = ProblemSet([PROBLEM, structs.replace(PROBLEM, id="q", solution="")])
    controller = chain(("uniform", Uniform()), ("hints", Hints(kind="schedule")))
    plan, state = propose(controller, controller.init(with_and_without), 0, wanted=2)
    assert {r.problem.id: r.origin for r in plan.requests} == {"p": Origin.HINTED, "q": Origin.FRESH}
    metrics = controller.metrics(state)
    assert (metrics["hints/hinted"], metrics["hints/no_solution"]) == (1.0, 1.0)


def test_a_data_set_without_solutions_is_refused() -> None:
    problems = problem_set(3, solution="")
    with pytest.raises(UserError, match=says("controllers.hints", "problems.source")) as caught:
        Session(problems, chain(("uniform", Uniform()), ("hints", Hints())), 4)
    assert "\n" not in str(caught.value)
