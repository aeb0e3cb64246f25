"""A probe's guesses as the means of PROS's priors: known answers, and their effect on a cold start."""

import numpy as np
import pytest
from controller_harness import group, propose

from halfway.controllers.beliefs.calibration import RATE
from halfway.controllers.beliefs.forest import bare_forest, learn
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes, with_offsets
from halfway.controllers.beliefs.logit_normal import sigmoid
from halfway.controllers.pros import Pros
from halfway.curriculum import Problem, ProblemSet, Stream, UserError
from halfway.testing.simulator import SimulatedRollouts

BELIEF = PassRateBelief(bayes=HierarchicalBayes(inference="fixed_point"))
PROBED = Pros(belief=BELIEF, prior="probed", exploration=0.0)


def probed(rates: list[float], difficulties: list[float] | None = None) -> ProblemSet:
    hard = difficulties or [0.0] * len(rates)
    return ProblemSet(
        [Problem(f"p{i}", "", "", features={RATE: r, "difficulty": hard[i]}) for i, r in enumerate(rates)]
    )


@pytest.mark.parametrize("inference", ["fixed_point", "collapsed"])
def test_an_offset_is_another_mu(inference) -> None:
    """Roots with offsets against forests that have each of these means as mu; some with evidence, one without."""
    offsets, passed, tried = [-2.0, 0.0, 1.5, 2.5], [6, 2, 1], [8, 8, 8]
    bayes = HierarchicalBayes(mu=0.5, inference=inference, sweeps=6000, burn_in=100)
    forest = with_offsets(bayes.init(4), np.asarray(offsets))
    forest = bayes.refresh(learn(forest, [0, 1, 2], passed, tried, 1.0), 0, Stream(0))
    for root, offset in enumerate(offsets):
        alone = HierarchicalBayes(mu=0.5 + offset, inference=inference, sweeps=6000, burn_in=100)
        one = alone.init(1)
        if root < 3:
            one = learn(one, [0], [passed[root]], [tried[root]], 1.0)
        expected = alone.refresh(one, 0, Stream(1)).rate_M[0]
        assert forest.rate_M[root] == pytest.approx(expected, abs=1e-6 if inference == "fixed_point" else 0.01)
    assert forest.rate_M[3] == pytest.approx(sigmoid(np.asarray(3.0)))


def test_new_offsets_make_the_untried_stale_and_must_fit() -> None:
    forest = learn(bare_forest(3, 0.0, 0.5), [1], [4], [8], 1.0)
    quiet = BELIEF.refresh(learn(BELIEF.init(3), [1], [4], [8], 1.0), 0, Stream(0))
    assert not quiet.stale_R.any() and with_offsets(quiet, np.ones(3)).stale_R.tolist() == [True, False, True]
    with pytest.raises(UserError, match=r"forest\.offset_R: 2 values for 3 roots"):
        with_offsets(forest, np.ones(2))


def test_the_first_plan_takes_what_is_guessed_nearest_one_half() -> None:
    rates = np.linspace(0.02, 0.98, 60).tolist()
    plan, _ = propose(PROBED, PROBED.init(probed(rates)), 0, wanted=10)
    chosen = sorted(float(request.problem.features[RATE]) for request in plan.requests)
    assert chosen == sorted(sorted(rates, key=lambda rate: abs(rate - 0.5))[:10])


def test_it_removes_the_cold_start() -> None:
    """Eighty problems, difficulties spread over three logits either way: the first step's groups in 3/8..5/8."""
    rng = np.random.default_rng(1)
    hard = rng.uniform(-3, 3, 80)
    problems = probed((1 / (1 + np.exp(hard + rng.normal(0, 0.5, 80)))).tolist(), hard.tolist())
    solver = SimulatedRollouts(skill=0.0, growth=0.0)

    def first_step(controller: Pros) -> float:
        plan, _ = propose(controller, controller.init(problems), 0, wanted=16)
        groups = solver.run(plan.requests, Stream(0))
        return float(np.mean([3 <= g.num_passed <= 5 for g in groups]))

    assert first_step(PROBED) >= 0.6 > 0.4 >= first_step(Pros(belief=BELIEF))


def test_outcomes_of_some_roots_move_the_belief_in_the_others() -> None:
    problems = probed([0.3] * 20)
    state = PROBED.init(problems)
    for step in range(4):
        _, state = propose(PROBED, state, step, wanted=4)
        state = PROBED.observe(state, [group(problems[4 * step + i], 7) for i in range(4)], step)
    _, state = propose(PROBED, state, 4, wanted=4)
    assert state.forest.rate_M[19] > 0.6
    metrics = PROBED.metrics(state)
    assert metrics["offset"] + metrics["slope"] * np.log(0.3 / 0.7) == pytest.approx(
        np.log(state.forest.rate_M[19] / (1 - state.forest.rate_M[19]))
    )


def test_a_root_that_is_unlike_its_guess_says_so_once() -> None:
    """The same root again, now as believed: the line stays where it is."""
    problems = probed([0.5] * 10)
    state = PROBED.init(problems)
    for step in range(12):
        state = PROBED.observe(state, [group(problems[0], 0)], step)
        _, state = propose(PROBED, state, step + 1, wanted=1)
    alone = PROBED.init(problems)
    for step in range(12):
        alone = PROBED.observe(alone, [group(problems[step % 10], 0)], step)
        _, alone = propose(PROBED, alone, step + 1, wanted=1)
    assert alone.line is not None and state.line is not None
    assert alone.line.mean_2[0] < 1.5 * state.line.mean_2[0] < 0


def test_a_problem_without_a_guess_is_refused() -> None:
    with pytest.raises(UserError, match=r"problems\.source: 'p0' has probed_rate None, which is not a probed"):
        PROBED.init(ProblemSet([Problem("p0", "", "")]))
