"""A probe's guesses: the problems that `probe` chooses, and `pros` with offsets by probed rates."""

from dataclasses import replace

import numpy as np
import pytest
from controller_harness import group, play, propose
from messages import says

from halfway.controllers.beliefs.calibration import RATE, REFERENCE, Calibration, Line, Residual, guesses_of
from halfway.controllers.beliefs.forest import bare_forest, learn
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes, with_offsets
from halfway.controllers.beliefs.logit_normal import sigmoid
from halfway.controllers.probe import Probed
from halfway.controllers.pros import Pros
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Origin, Problem, ProblemSet, Stream, UserError, chain
from halfway.testing.simulator import SimulatedRollouts

OWN = [Problem(f"own{i}", "", "") for i in range(30)]
NOTHING = Residual(0.0, 0.0)


def pool(rates: list[float], difficulties: list[float] | None = None) -> ProblemSet:
    hard = difficulties or [0.0] * len(rates)
    generated = [
        Problem(f"gen{i}", "", "", features={RATE: rate, "difficulty": d})
        for i, (rate, d) in enumerate(zip(rates, hard, strict=True))
    ]
    return ProblemSet(OWN, generated)


def test_generated_problems_nearest_the_target_get_their_share_of_a_plan() -> None:
    both = chain(("probe", Probed(share=0.25)), ("uniform", Uniform()))
    plan, _ = propose(both, both.init(pool([0.1, 0.45, 0.9, 0.52, 0.3, 0.6])), 0, wanted=12)
    generated = [request for request in plan.requests if request.origin is Origin.GENERATED]
    assert [request.problem.id for request in generated] == ["gen3", "gen1", "gen5"] and len(plan.requests) == 12
    assert generated[0].decisions == (("probe", "probed 0.52"),)
    assert {request.origin for request in plan.requests[3:]} == {Origin.FRESH}


def test_random_selection_takes_any_generated_problem() -> None:
    controller = Probed(share=1.0, selection="random")
    plan, _ = propose(controller, controller.init(pool(np.linspace(0.01, 0.99, 400).tolist())), 0, wanted=60)
    rates = [float(request.problem.features[RATE]) for request in plan.requests]
    assert len(rates) == 60 and min(rates) < 0.1 and max(rates) > 0.9


def test_without_generated_problems_in_the_band_the_data_set_gets_the_slots() -> None:
    both = chain(("probe", Probed(share=0.5, band=(0.1, 0.9))), ("uniform", Uniform()))
    state = both.init(pool([0.05, 0.12, 0.5, 0.88, 0.95]))
    plan, _ = propose(both, state, 0, wanted=10)
    ids = [request.problem.id for request in plan.requests if request.origin is Origin.GENERATED]
    assert ids == ["gen2", "gen1", "gen3"] and len(plan.requests) == 10
    moved = replace(state["probe"], line=replace(state["probe"].line, mean_2=np.array([4.5, 1.0])))
    grown, _ = propose(both, {**state, "probe": moved}, 0, wanted=10)  # only gen0 is not yet above .9
    assert [r.problem.id for r in grown.requests if r.origin is Origin.GENERATED] == ["gen0"]
    wide, _ = propose(chain(("probe", Probed(share=0.5)), ("uniform", Uniform())), state, 0, wanted=10)
    assert sum(request.origin is Origin.GENERATED for request in wide.requests) == 5


def test_a_generated_problem_is_tried_so_often_and_then_the_data_set_fills_the_plan() -> None:
    both = chain(("probe", Probed(share=0.5, tries=2)), ("uniform", Uniform()))
    plans, state = play(both, both.init(pool([0.5] * 6)), range(4), wanted=8)
    counts = [sum(entry[2] == "generated" for entry in plan) for plan in plans]
    assert counts[:2] == [4, 4] and sum(counts) == 12 and all(len(plan) == 8 for plan in plans)
    assert state["probe"].tried_P.tolist() == [2] * 6


def test_a_further_round_of_a_step_takes_other_generated_problems() -> None:
    controller = Probed(share=1.0)
    state = controller.init(pool([0.5] * 6))
    first, state = propose(controller, state, 0, wanted=3)
    second, state = propose(controller, state, 0, wanted=3)
    assert len({request.problem.id for plan in (first, second) for request in plan.requests}) == 6


def test_problems_in_flight_from_an_earlier_step_count_as_tried() -> None:
    controller = Probed(share=1.0)
    state = controller.init(pool([0.5] * 6))
    first, state = propose(controller, state, 0, wanted=4)
    second, _ = controller.propose(replace(first, step=1, wanted=8), state, Stream(0))
    assert len(second.requests) == len({request.problem.id for request in second.requests}) == 6


def test_one_group_moves_the_belief_to_the_mode_of_its_posterior() -> None:
    """Line and residual together are a normal prior of three numbers, of which the group sees one sum."""
    start, own = Line(np.asarray([0.3, 0.9]), np.asarray([[1.0, 0.2], [0.2, 0.5]])), Residual(-0.4, 0.6)
    line, after = start.learn(1.5, own, passed=2, size=8)
    x_3, prior_33 = np.asarray([1.0, 1.5, 1.0]), np.zeros((3, 3))
    prior_33[:2, :2], prior_33[2, 2] = start.covariance_22, own.variance
    moved_3 = np.asarray([*(line.mean_2 - start.mean_2), after.mean - own.mean])
    rate = 1 / (1 + np.exp(-(line.mean_2 @ x_3[:2] + after.mean)))
    gradient_3 = (2 - 8 * rate) * x_3 - np.linalg.inv(prior_33) @ moved_3
    assert np.allclose(gradient_3, 0, atol=1e-8)
    posterior_33 = np.linalg.inv(np.linalg.inv(prior_33) + 8 * rate * (1 - rate) * np.outer(x_3, x_3))
    assert np.allclose(line.covariance_22, posterior_33[:2, :2])
    assert after.variance == pytest.approx(posterior_33[2, 2])


def test_a_surprising_group_does_not_overshoot() -> None:
    start = Line(np.asarray([0.0, 1.0]), np.eye(2))
    line, _ = start.learn(-6.0, NOTHING, passed=8, size=8)
    assert -6.0 < line.logits(np.asarray([-6.0]))[0] < 6.0


def test_the_chance_of_no_success_counts_the_doubt() -> None:
    certain = Line(np.asarray([0.0, 1.0]), np.zeros((2, 2)))
    assert certain.chance_of_none(0.0, NOTHING, 8) == pytest.approx(0.5**8)
    draws = np.random.default_rng(0).normal(2.0, 1.5, 400_000)
    expected = np.mean((1 / (1 + np.exp(draws))) ** 8)
    assert certain.chance_of_none(2.0, Residual(0.0, 1.5**2), 8) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("skill", [-1.5, 0.0, 2.0])
def test_the_line_follows_a_solver_that_has_moved(skill: float) -> None:
    """Guesses come from a solver with skill 0, each half a logit wrong: the chosen problems still pass half of the
    time."""
    rng = np.random.default_rng(0)
    difficulties = rng.normal(0, 2, 1200)
    guesses = 1 / (1 + np.exp(difficulties + rng.normal(0, 0.5, 1200)))
    problems = pool(guesses.tolist(), difficulties.tolist())
    controller, solver = Probed(share=1.0, noise=0.5), SimulatedRollouts(skill=skill, growth=0.0)
    state, rates = controller.init(problems), []
    for step in range(20):
        plan, state = propose(controller, state, step, wanted=16)
        groups = solver.run(plan.requests, Stream(0).at(step))
        rates.append(np.mean([g.pass_rate for g in groups]))
        state = controller.observe(state, groups, step)
    assert state.line.mean_2[0] == pytest.approx(skill, abs=0.5)
    assert np.mean(rates[5:]) == pytest.approx(0.5, abs=0.06)
    if skill:
        assert abs(rates[0] - 0.5) > 0.2


def test_a_problems_deviation_from_the_line_stays_its_own() -> None:
    """One of twenty equal guesses never passes: it becomes the furthest from the target, and the line hardly moves."""
    controller = Probed(share=1.0, tries=9, noise=1.5, impossible=0.0)
    problems = pool([0.5] * 20)
    groups = [group(p, 0 if i == 7 else 4, origin=Origin.GENERATED) for i, p in enumerate(problems.generated)]
    state = controller.init(problems)
    for step in range(3):
        state = controller.observe(state, groups, step)
    rates_P = state.rates()
    assert rates_P.argmin() == 7 and rates_P[7] < 0.15 and np.delete(rates_P, 7) == pytest.approx(0.5, abs=0.05)
    plan, _ = propose(controller, state, 3, wanted=19)
    assert "gen7" not in {request.problem.id for request in plan.requests}


def test_problems_that_are_all_but_impossible_or_lost_are_dropped_and_teach_nothing() -> None:
    controller = Probed(share=1.0, tries=9, noise=0.5, calibration=Calibration(doubt=0.1, drift=0.0))
    problems = pool([0.95, 0.5, 0.5])
    state = controller.init(problems)
    wrong, hard, lost = (group(p, 0, origin=Origin.GENERATED) for p in problems.generated)
    lost = replace(lost, rollouts=(), dropped={"no_room": 8})
    after = controller.observe(state, [wrong, lost], 0)
    assert after.invalid_P.tolist() == [True, False, True]
    assert after.line.mean_2.tolist() == [0.0, 1.0]
    metrics = controller.metrics(after)
    assert (metrics["invalid_impossible"], metrics["invalid_lost"], metrics["left"]) == (1, 1, 1)
    again = controller.observe(after, [wrong, lost], 1)
    assert again.counts == after.counts  # a problem is dropped once
    assert not controller.observe(state, [hard], 0).invalid_P.any()
    unsure = Probed(share=1.0, noise=2.0)
    assert not unsure.observe(unsure.init(problems), [wrong], 0).invalid_P.any()


def test_only_generated_groups_count() -> None:
    controller = Probed()
    state = controller.init(pool([0.9]))
    fresh = group(OWN[0], 4)
    stranger = group(Problem("x", "", "", features={RATE: 0.5}), 4, origin=Origin.GENERATED)
    assert controller.observe(state, [fresh, stranger], 0) is state


def test_bad_guesses_are_refused_in_one_line() -> None:
    for features, message in [
        ({}, r"problems\.generated: 'gen' has probed_rate None, which is not a probed pass rate; write"),
        ({RATE: 1.5}, r"'gen' has probed_rate 1\.5"),
        ({RATE: float("nan")}, r"'gen' has probed_rate nan"),
        ({RATE: "half"}, r"'gen' has probed_rate 'half'"),
    ]:
        with pytest.raises(UserError, match=message):
            Probed().init(ProblemSet(OWN, [Problem("gen", "", "", features=features)]))
    two = [Problem(f"g{i}", "", "", features={RATE: 0.5, REFERENCE: f"model{i}"}) for i in range(2)]
    with pytest.raises(UserError, match=says("model0", "model1")):
        Probed().init(ProblemSet(OWN, two))
    with pytest.raises(UserError, match=says("'own3'", "twice")):
        ProblemSet(OWN, [OWN[3]])


def test_guesses_are_log_odds_away_from_certainty() -> None:
    problems = [Problem(str(rate), "", "", features={RATE: rate}) for rate in (0.0, 0.5, 0.9, 1)]
    assert np.allclose(guesses_of(problems, "here"), [np.log(1 / 999), 0, np.log(9), np.log(999)])


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
    bayes = HierarchicalBayes(mu=0.5, inference=inference, sweeps=3000, burn_in=100)
    forest = with_offsets(bayes.init(4), np.asarray(offsets))
    forest = bayes.refresh(learn(forest, [0, 1, 2], passed, tried, 1.0), 0, Stream(0))
    for root, offset in enumerate(offsets):
        alone = HierarchicalBayes(mu=0.5 + offset, inference=inference, sweeps=3000, burn_in=100)
        one = alone.init(1)
        if root < 3:
            one = learn(one, [0], [passed[root]], [tried[root]], 1.0)
        expected = alone.refresh(one, 0, Stream(1)).rate_M[0]
        assert forest.rate_M[root] == pytest.approx(expected, abs=1e-6 if inference == "fixed_point" else 0.015)
    assert forest.rate_M[3] == pytest.approx(sigmoid(np.asarray(3.0)))


def test_new_offsets_make_the_untried_stale_and_must_fit() -> None:
    forest = learn(bare_forest(3, 0.0, 0.5), [1], [4], [8], 1.0)
    quiet = BELIEF.refresh(learn(BELIEF.init(3), [1], [4], [8], 1.0), 0, Stream(0))
    assert not quiet.stale_R.any() and with_offsets(quiet, np.ones(3)).stale_R.tolist() == [True, False, True]
    with pytest.raises(UserError, match=says("forest.offset_R", "2", "3")):
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
    with pytest.raises(UserError, match=says("problems.source", "'p0'", "probed_rate", "None")):
        PROBED.init(ProblemSet([Problem("p0", "", "")]))
