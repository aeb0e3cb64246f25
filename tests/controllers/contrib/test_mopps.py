"""Controllers that choose by a separate belief about each problem: `mopps`, `cdas`."""

from typing import Any

import numpy as np
import pytest
from controller_harness import group, play, problem_set, propose, simulated

from halfway.controllers.beliefs.forest_beliefs import DiscountedBeta, DrawnBeta, PassRateBelief, ThompsonBelief
from halfway.controllers.chains import members
from halfway.controllers.contrib.cdas import Cdas
from halfway.controllers.contrib.mopps import Mopps
from halfway.controllers.laws.choose_problems import Choice
from halfway.curriculum import Stream, UserError

PROBLEMS = problem_set(40)


def test_counts_are_the_recursion_of_the_paper() -> None:
    """a' = lambda a + (1 - lambda) a0 + s, b' likewise with failures; only for the problem that was tried."""
    prior, keep = (2.0, 0.5), 0.8
    controller = Mopps(belief=ThompsonBelief(forgetting=keep, beta=DrawnBeta(prior)))
    state = controller.init(PROBLEMS)
    a, b = np.full(40, prior[0]), np.full(40, prior[1])
    draws = np.random.default_rng(0)
    for step in range(20):
        tried = draws.choice(40, 8, replace=False)
        passed = draws.integers(0, 9, 8)
        state = controller.observe(state, [group(PROBLEMS[i], k) for i, k in zip(tried, passed, strict=True)], step)
        a[tried] = keep * a[tried] + (1 - keep) * prior[0] + passed
        b[tried] = keep * b[tried] + (1 - keep) * prior[1] + 8 - passed
    assert np.allclose(controller.belief.beta.posterior(state.forest, slice(None)), (a, b))


def test_the_default_is_the_published_script() -> None:
    controller = Mopps()
    assert controller.belief.forgetting == 1.0 and controller.belief.beta == DrawnBeta((1.0, 1.0))
    assert (controller.candidates, controller.law) == (16, Choice("nearest", target=0.5))


def test_draws_are_those_of_the_posterior() -> None:
    controller = Mopps()
    state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[0], 6)], 0)
    drawn = [controller.belief.rates(state.forest, np.asarray([0]), None, Stream(i))[1][0] for i in range(4000)]
    assert np.mean(drawn) == pytest.approx(7 / 10, abs=0.01)
    assert np.var(drawn) == pytest.approx(7 * 3 / (10 * 10 * 11), rel=0.1)


def test_the_given_number_of_candidates_competes_for_each_slot() -> None:
    """With one candidate for each slot nothing is selected; with all of them the best known problem is always taken."""
    groups = [group(problem, 500 if i == 7 else 0, 1000) for i, problem in enumerate(PROBLEMS)]

    def share(candidates: int | None) -> float:
        controller = Mopps(candidates=candidates)
        state = controller.observe(controller.init(PROBLEMS), groups, 0)
        plans = [propose(controller, state, step, wanted=1)[0] for step in range(400)]
        return sum(plan.requests[0].problem.id == "p7" for plan in plans) / 400

    assert share(1) == pytest.approx(1 / 40, abs=0.03)
    assert share(10) == pytest.approx(10 / 40, abs=0.08)
    assert share(None) == 1.0


@pytest.mark.parametrize("law", [Choice(), Choice("band")], ids=lambda law: law.kind)
def test_it_learns_which_problems_pass_half_of_the_time(law: Choice) -> None:
    """A learner at rest: the problems proposed in the end are much nearer one half than the average problem."""
    problems, learner, controller = problem_set(200), simulated(0), Mopps(law=law)
    rates = {p.id: learner.pass_probability(p, None) for p in problems}
    plans, _ = play(controller, controller.init(problems), range(80), learner=learner)
    late = np.mean([abs(rates[request[0]] - 0.5) for plan in plans[60:] for request in plan])
    assert late < 0.6 * np.mean([abs(rate - 0.5) for rate in rates.values()])


def test_any_belief_combines_with_any_law_in_yaml() -> None:
    entry = {
        "mopps": {"belief": {"kind": "hierarchical"}, "law": {"kind": "band", "band": [0.2, 0.6]}, "candidates": None}
    }
    (member,) = members([entry])
    made: Any = member.part
    assert made == Mopps(None, ThompsonBelief(kind="hierarchical"), Choice("band", band=(0.2, 0.6)))
    (member,) = members([{"mopps": {"belief": {"beta": {"draw": False}}}}])
    made = member.part
    assert made.belief.beta == DrawnBeta(draw=False) and made.belief.forgetting == 1.0
    assert PassRateBelief(kind="beta", beta=DiscountedBeta((2.0, 2.0))).forgetting == 0.9


FOUR = problem_set(10)


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def test_two_visits_by_hand() -> None:
    """With the start as a visit d_1 = (p_0 - r) / 2 and d_2 = (2 d_1 + p_1 - r) / 3; without it d_1 = p_0 - r,
    d_2 = (d_1 + p_1 - r) / 2. The competence is minus the mean of ten difficulties."""
    for shrink, past in ((True, 1), (False, 0)):
        controller = Cdas(shrink=shrink)
        state = controller.observe(controller.init(FOUR), [group(FOUR[0], 2)], 0)
        first = (0.5 - 0.25) / (past + 1)
        assert state.difficulty_P.tolist() == pytest.approx([first] + [0] * 9)
        assert state.competence == pytest.approx(-first / 10)
        expected = sigmoid(-first / 10 - first)
        state = controller.observe(state, [group(FOUR[0], 8)], 1)
        assert state.difficulty_P[0] == pytest.approx(((past + 1) * first + expected - 1) / (past + 2))


def test_the_competence_is_what_the_published_bookkeeping_adds_up_to() -> None:
    """The published competence starts at 0 and falls by the sum of all changes over the number of problems."""
    controller, draws = Cdas(), np.random.default_rng(0)
    state, ability, history = controller.init(FOUR), 0.0, [[0.0] for _ in range(10)]
    for step in range(30):
        tried = draws.choice(10, 4, replace=False).tolist()
        passed = draws.integers(0, 9, 4).tolist()
        state = controller.observe(state, [group(FOUR[i], k) for i, k in zip(tried, passed, strict=True)], step)
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
    twice = controller.observe(controller.init(FOUR), [group(FOUR[0], 1), group(FOUR[0], 3)], 0)
    once = controller.observe(controller.init(FOUR), [group(FOUR[0], 2)], 0)
    assert twice.difficulty_P.tolist() == once.difficulty_P.tolist() and twice.visits_P[0] == 1


def test_a_plan_straddles_the_competence() -> None:
    controller = Cdas()
    state = controller.init(FOUR)
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
    state = made.init(FOUR)
    state.difficulty_P[:] = np.linspace(-1, 1, 10)
    plan, _ = propose(made, state, 0, wanted=1)
    assert plan.requests[0].problem.id == "p8"  # sigmoid(-7 / 9) = 0.315
    with pytest.raises(UserError, match=r"law.target: .*0.0"):
        Choice(target=0.0)
