"""CDAS: the recursion by hand and against the published bookkeeping, and where the competence settles."""

from typing import Any

import numpy as np
import pytest
from controller_harness import group, play, problem_set, propose, simulated

from halfway.controllers.cdas import Cdas
from halfway.controllers.chains import members
from halfway.controllers.laws.choice import Choice
from halfway.curriculum import UserError

PROBLEMS = problem_set(10)


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def test_two_visits_by_hand() -> None:
    """With the start as a visit d_1 = (p_0 - r) / 2 and d_2 = (2 d_1 + p_1 - r) / 3; without it d_1 = p_0 - r,
    d_2 = (d_1 + p_1 - r) / 2. The competence is minus the mean of ten difficulties."""
    for shrink, past in ((True, 1), (False, 0)):
        controller = Cdas(shrink=shrink)
        state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[0], 2)], 0)
        first = (0.5 - 0.25) / (past + 1)
        assert state.difficulty_P.tolist() == pytest.approx([first] + [0] * 9)
        assert state.competence == pytest.approx(-first / 10)
        expected = sigmoid(-first / 10 - first)
        state = controller.observe(state, [group(PROBLEMS[0], 8)], 1)
        assert state.difficulty_P[0] == pytest.approx(((past + 1) * first + expected - 1) / (past + 2))


def test_the_competence_is_what_the_published_bookkeeping_adds_up_to() -> None:
    """The published competence starts at 0 and falls by the sum of all changes over the number of problems."""
    controller, draws = Cdas(), np.random.default_rng(0)
    state, ability, history = controller.init(PROBLEMS), 0.0, [[0.0] for _ in range(10)]
    for step in range(30):
        tried = draws.choice(10, 4, replace=False).tolist()
        passed = draws.integers(0, 9, 4).tolist()
        state = controller.observe(state, [group(PROBLEMS[i], k) for i, k in zip(tried, passed, strict=True)], step)
        change = 0.0
        for i, k in zip(tried, passed, strict=True):
            t, before = len(history[i]) + 1, history[i][-1]
            history[i].append((t - 1) / t * before + (sigmoid(ability - before) - k / 8) / t)
            change += history[i][-1] - before
        ability -= change / 10
        assert state.competence == pytest.approx(ability)
    assert state.difficulty_P.tolist() == pytest.approx([each[-1] for each in history])


def test_a_problem_twice_in_a_step_is_one_visit_with_all_its_rollouts() -> None:
    controller = Cdas()
    twice = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[0], 1), group(PROBLEMS[0], 3)], 0)
    once = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[0], 2)], 0)
    assert twice.difficulty_P.tolist() == once.difficulty_P.tolist() and twice.visits_P[0] == 1


def test_a_plan_straddles_the_competence() -> None:
    controller = Cdas()
    state = controller.init(PROBLEMS)
    state.difficulty_P[:] = np.asarray([-0.9, -0.5, -0.3, -0.1, 0.0, 0.1, 0.2, 0.4, 0.5, 0.6])  # mean 0
    plan, _ = propose(controller, state, 0, wanted=4)
    assert sorted(r.problem.id for r in plan.requests) == ["p3", "p4", "p5", "p6"]
    plan, _ = propose(controller, state, 0, wanted=5)
    assert sorted(r.problem.id for r in plan.requests) == ["p2", "p3", "p4", "p5", "p6"]


def test_harder_problems_get_higher_difficulties_and_the_rest_is_left_alone() -> None:
    """The simulated learner at rest: estimated difficulties follow the true difficulties of what was tried."""
    problems, learner, controller = problem_set(60), simulated(0), Cdas()
    plans, state = play(controller, controller.init(problems), range(80), learner=learner)
    rates = np.asarray([learner.pass_probability(problem, None) for problem in problems])
    tried = state.visits_P > 0
    assert tried.mean() > 0.8
    assert np.corrcoef(state.difficulty_P[tried], rates[tried])[0, 1] < -0.8
    late = [request[0] for plan in plans[60:] for request in plan]
    assert np.std([rates[problems.position(each)] for each in late]) < 0.8 * rates.std()


def test_another_law_chooses_by_the_same_expectations() -> None:
    (member,) = members([{"cdas": {"law": {"kind": "nearest", "target": 0.3}}}])
    made: Any = member.part
    assert made.law.kind == "nearest" and Cdas().law.kind == "straddle"
    state = made.init(PROBLEMS)
    state.difficulty_P[:] = np.linspace(-1, 1, 10)
    plan, _ = propose(made, state, 0, wanted=1)
    assert plan.requests[0].problem.id == "p8"  # sigmoid(-7 / 9) = 0.315
    with pytest.raises(UserError, match=r"law.target: 0.0"):
        Choice(target=0.0)
