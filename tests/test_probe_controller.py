"""The controller `probe` on scripted outcomes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from plays import group, play, propose, through_json

from controllers.probe import RATE, Calibration, Probed
from controllers.uniform import Uniform
from curriculum import Origin, Problem, ProblemSet, Request, Stream, UserError, chain
from curriculum.simulator import SimulatedRollouts
from curriculum.states import save_state

OWN = [Problem(f"own{i}", "", "") for i in range(30)]


def pool(rates: list[float], difficulties: list[float] | None = None) -> ProblemSet:
    hard = difficulties or [0.0] * len(rates)
    generated = [
        Problem(f"gen{i}", "", "", features={RATE: rate, "difficulty": d})
        for i, (rate, d) in enumerate(zip(rates, hard, strict=True))
    ]
    return ProblemSet(OWN, generated)


def guess(rate: float) -> float:
    return float(np.log(rate / (1 - rate)))


def test_it_takes_its_share_of_what_is_nearest_the_target() -> None:
    both = chain(("probe", Probed(share=0.25)), ("uniform", Uniform()))
    plan, _ = propose(both, both.init(pool([0.1, 0.45, 0.9, 0.52, 0.3, 0.6])), 0, wanted=12)
    generated = [request for request in plan.requests if request.origin is Origin.GENERATED]
    assert [request.problem.id for request in generated] == ["gen3", "gen1", "gen5"] and len(plan.requests) == 12
    assert generated[0].decisions == (("probe", "probed 0.52"),)
    assert {request.origin for request in plan.requests[3:]} == {Origin.FRESH}


def test_each_is_tried_so_often_and_then_the_own_problems_fill_up() -> None:
    both = chain(("probe", Probed(share=0.5, tries=2)), ("uniform", Uniform()))
    plans, state = play(both, both.init(pool([0.5] * 6)), range(4), wanted=8)
    counts = [sum(entry[2] == "generated" for entry in plan) for plan in plans]
    assert counts[:2] == [4, 4] and sum(counts) == 12 and all(len(plan) == 8 for plan in plans)
    assert state["probe"].tried_P.tolist() == [2] * 6


def test_a_further_round_of_a_step_takes_others() -> None:
    controller = Probed(share=1.0)
    state = controller.init(pool([0.5] * 6))
    first, state = propose(controller, state, 0, wanted=3)
    second, state = propose(controller, state, 0, wanted=3)
    assert len({request.problem.id for plan in (first, second) for request in plan.requests}) == 6


def test_without_generated_problems_nothing_happens() -> None:
    controller = Probed()
    plan, state = propose(controller, controller.init(ProblemSet(OWN)), 0)
    assert plan.requests == () and controller.metrics(state)["left"] == 0


def test_one_group_moves_the_belief_to_the_mode_of_its_posterior() -> None:
    start = Calibration(np.asarray([0.3, 0.9]), np.asarray([[1.0, 0.2], [0.2, 0.5]]))
    moved = start.observed(guess=1.5, passed=2, size=8)
    x_2, precision_22 = np.asarray([1.0, 1.5]), np.linalg.inv(start.covariance_22)
    rate = moved.rates(np.asarray([1.5]))[0]
    gradient_2 = (2 - 8 * rate) * x_2 - precision_22 @ (moved.mean_2 - start.mean_2)
    assert np.allclose(gradient_2, 0, atol=1e-8)
    curvature_22 = precision_22 + 8 * rate * (1 - rate) * np.outer(x_2, x_2)
    assert np.allclose(moved.covariance_22, np.linalg.inv(curvature_22))


def test_surprises_do_not_overshoot() -> None:
    start = Calibration(np.asarray([0.0, 1.0]), np.eye(2))
    moved = start.observed(guess=-6.0, passed=8, size=8)
    assert -6.0 < moved.mean_2 @ [1.0, -6.0] < 6.0


@pytest.mark.parametrize("skill", [-1.5, 0.0, 2.0])
def test_a_solver_that_moved_is_found_again(skill: float) -> None:
    """Guesses are those of a solver with skill 0: the chosen problems still pass half of the time."""
    rng = np.random.default_rng(0)
    difficulties = rng.normal(0, 2, 1200).tolist()
    problems = pool([1 / (1 + np.exp(d)) for d in difficulties], difficulties)
    controller, solver = Probed(share=1.0), SimulatedRollouts(skill=skill, growth=0.0)
    state, rates = controller.init(problems), []
    for step in range(20):
        plan, state = propose(controller, state, step, wanted=16)
        groups = solver.run(plan.requests, Stream(0).at(step), 0)
        rates.append(np.mean([g.pass_rate for g in groups]))
        state = controller.observe(state, groups, step)
    assert state.mean_2[0] == pytest.approx(skill, abs=0.4)
    assert np.mean(rates[5:]) == pytest.approx(0.5, abs=0.06)
    if skill:
        assert abs(rates[0] - 0.5) > 0.2


def test_what_is_all_but_impossible_or_lost_is_dropped_and_teaches_nothing() -> None:
    controller = Probed(share=1.0, tries=9)
    problems = pool([0.9, 0.5, 0.5])
    state = controller.init(problems)
    wrong, hard, lost = (group(p, 0, origin=Origin.GENERATED) for p in problems.generated)
    lost = replace(lost, rollouts=(), dropped={"no_room": 8})
    after = controller.observe(state, [wrong, lost], 0)
    assert after.invalid_P.tolist() == [True, False, True]
    assert after.mean_2.tolist() == state.mean_2.tolist()
    assert controller.metrics(after) | {"invalid": 2.0, "left": 1.0} == controller.metrics(after)
    assert not controller.observe(state, [hard], 0).invalid_P.any()


def test_only_generated_groups_count() -> None:
    controller = Probed()
    problems = pool([0.9])
    state = controller.init(problems)
    fresh = group(OWN[0], 4)
    stranger = group(Problem("x", "", "", features={RATE: 0.5}), 4, origin=Origin.GENERATED)
    assert controller.observe(state, [fresh, stranger], 0) is state


def test_its_state_survives_saving() -> None:
    both = chain(("probe", Probed(share=0.5)), ("uniform", Uniform()))
    problems = pool([0.2, 0.4, 0.6, 0.8] * 8)
    _, state = play(both, both.init(problems), range(3), wanted=6)
    restored = through_json(both, problems, state)
    assert json.dumps(save_state(restored)) == json.dumps(save_state(state))
    assert play(both, restored, range(3, 8), wanted=6)[0] == play(both, state, range(3, 8), wanted=6)[0]


def test_a_problem_without_a_guess_is_one_line() -> None:
    problems = ProblemSet(OWN, [Problem("gen", "", "")])
    with pytest.raises(UserError, match=r"problems\.generated: 'gen' has no number probed_rate"):
        Probed().init(problems)
    with pytest.raises(UserError, match=r"id 'own3' is generated and occurs twice"):
        ProblemSet(OWN, [OWN[3]])
    assert Request(problems.generated[0], 8, Origin.GENERATED).problem not in list(problems)
