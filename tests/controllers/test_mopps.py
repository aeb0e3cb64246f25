"""MoPPS: the posterior against its recursion, and what it chooses when the learner is known."""

from typing import Any

import numpy as np
import pytest
from controller_harness import group, play, problem_set, propose, simulated

from halfway.controllers.beliefs.forest_beliefs import DiscountedBeta, DrawnBeta, PassRateBelief, ThompsonBelief
from halfway.controllers.chains import members
from halfway.controllers.laws.choice import Choice
from halfway.controllers.mopps import Mopps
from halfway.curriculum import Stream

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


def test_so_many_candidates_compete_for_each_slot() -> None:
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
    entry = {"mopps": {"belief": {"kind": "hierarchical"}, "law": {"kind": "softmax", "tau": 0.2}, "candidates": None}}
    (member,) = members([entry])
    made: Any = member.part
    assert made == Mopps(None, ThompsonBelief(kind="hierarchical"), Choice("softmax", tau=0.2))
    (member,) = members([{"mopps": {"belief": {"beta": {"draw": False}}}}])
    made = member.part
    assert made.belief.beta == DrawnBeta(draw=False) and made.belief.forgetting == 1.0
    assert PassRateBelief(kind="beta", beta=DiscountedBeta((2.0, 2.0))).forgetting == 0.9
