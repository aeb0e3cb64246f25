"""`bots`, which chooses by evidence about other problems."""

import numpy as np
import pytest
from controller_harness import group, play, problem_set, propose, simulated
from messages import says

from halfway.controllers.contrib.bots import Bots, BotsBelief, capability, interpolate_rates
from halfway.controllers.laws.choose_problems import Choice
from halfway.curriculum import Problem, ProblemSet, UserError


def with_rates(rates: list[tuple[float, float]]) -> ProblemSet:
    return ProblemSet(
        [
            Problem(f"p{i}", f"prompt {i}", "0", features={"weak_rate": weak, "strong_rate": strong})
            for i, (weak, strong) in enumerate(rates)
        ]
    )


PROBLEMS = with_rates([(0.1, 0.5), (0.3, 0.7), (0.0, 1.0), (0.6, 0.9)])


def test_two_steps_by_hand() -> None:
    """lambda 0.1, rho 0.2, groups of 8; a and b of the paper are 1 more than the counts."""
    controller = Bots(rho=0.2)
    state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[0], 2), group(PROBLEMS[1], 4)], 0)
    c = ((0.25 + 0.5) / 2 - 0.2) / (0.6 - 0.2 + 1e-6)
    assert state.capability == pytest.approx(c)
    rates = [0.1 + 0.4 * c, 0.3 + 0.4 * c, c, 0.6 + 0.3 * c]
    pseudo = 0.2 * 8
    passed = np.asarray([2, 4, pseudo * rates[2], pseudo * rates[3]])
    tried = np.asarray([8, 8, pseudo, pseudo])
    assert np.allclose(state.forest.passed_M, passed) and np.allclose(state.forest.tried_M, tried)

    state = controller.observe(state, [group(PROBLEMS[3], 0)], 1)
    c = 0.9 * c + 0.1 * (0.0 - 0.6) / (0.3 + 1e-6)
    assert state.capability == pytest.approx(c)
    rates = np.clip([0.1 + 0.4 * c, 0.3 + 0.4 * c, c, 0], 0, 1)
    assert np.allclose(state.forest.passed_M, 0.9 * passed + [*(pseudo * rates[:3]), 0])
    assert np.allclose(state.forest.tried_M, 0.9 * tried + [pseudo, pseudo, pseudo, 8])
    assert state.error == pytest.approx(np.clip(0.6 + 0.3 * c, 0, 1))


def test_the_recursion_of_the_published_code() -> None:
    """a <- (1 - l) a + l + (1 - rho) s + rho m p', p' the observed rate where there is one; the same of failures."""
    controller, problems, draws = Bots(rho=0.3), problem_set(30), np.random.default_rng(0)
    weak, strong = problems.column("weak_rate"), problems.column("strong_rate")
    state, a, b, cap = controller.init(problems), np.ones(30), np.ones(30), None
    for step in range(15):
        tried = draws.choice(30, 6, replace=False)
        rates = draws.integers(0, 9, 6) / 8
        groups = [group(problems[i], round(8 * rate)) for i, rate in zip(tried, rates, strict=True)]
        state = controller.observe(state, groups, step)
        now = (rates.mean() - weak[tried].mean()) / (strong[tried].mean() - weak[tried].mean() + 1e-6)
        cap = now if cap is None else 0.9 * cap + 0.1 * now
        guess = np.clip((strong - weak) * cap + weak, 0, 1)
        guess[tried] = rates
        own = np.zeros(30)
        own[tried] = 1
        a = 0.9 * a + 0.1 + 0.7 * own * guess * 8 + 0.3 * guess * 8
        b = 0.9 * b + 0.1 + 0.7 * own * (1 - guess) * 8 + 0.3 * (1 - guess) * 8
    assert np.allclose(controller.belief.beta.posterior(state.forest, slice(None)), (a, b))


def test_capability_is_a_place_between_the_reference_models() -> None:
    assert capability(0.4, 0.2, 0.6) == pytest.approx(0.5, abs=1e-5)
    assert interpolate_rates(np.asarray([0.0, 0.9]), np.asarray([1.0, 1.0]), 2.0).tolist() == [1.0, 1.0]
    assert interpolate_rates(np.asarray([0.2]), np.asarray([0.6]), -1.0).tolist() == [0.0]


def test_the_default_is_the_published_example() -> None:
    controller = Bots()
    assert (controller.rho, controller.belief.forgetting, controller.belief.decay_on) == (0.1, 0.9, "step")
    assert controller.belief.beta.draw and controller.law == Choice("nearest", target=0.5)


def test_an_adaptive_rho_is_halved_when_predictions_err() -> None:
    """After a step with the strong model's outcomes, nothing passes: the prediction is off by more than 0.25."""
    controller = Bots(rho=0.4, adaptive=True)
    state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[2], 8)], 0)
    assert state.rho == 0.4
    state = controller.observe(state, [group(PROBLEMS[2], 0)], 1)
    assert state.error > 0.25 and state.rho == 0.2


def test_implicit_evidence_finds_the_right_problems_before_they_were_tried() -> None:
    """One step of a learner at rest between two reference models: only rho > 0 tells the untried problems apart."""
    problems, learner = problem_set(400), simulated(0)
    rates = {p.id: learner.pass_probability(p, None) for p in problems}

    def distance(rho: float) -> float:
        controller = Bots(rho=rho, belief=BotsBelief())
        _, state = play(controller, controller.init(problems), range(4), learner=learner)
        plans = [propose(controller, state, 4, seed=seed)[0] for seed in range(20)]
        fresh = [r.problem.id for plan in plans for r in plan.requests]
        return float(np.mean([abs(rates[each] - 0.5) for each in fresh]))

    assert distance(0.9) < 0.75 * distance(0.0)


def test_without_implicit_evidence_no_columns_are_needed() -> None:
    bare = ProblemSet([Problem("p0", "", "0")])
    assert Bots(rho=0.0).needs == frozenset()
    controller = Bots(rho=0.0)
    assert controller.observe(controller.init(bare), [group(bare[0], 4)], 0).capability is None
    assert Bots().needs == {"feature:weak_rate", "feature:strong_rate"}
    with pytest.raises(UserError, match=says("'p0'", "feature", "'weak_rate'")):
        Bots().init(bare)


def test_references_that_are_no_pass_rates_are_refused() -> None:
    with pytest.raises(UserError, match=says("bots.reference", "weak_rate", "strong_rate", 0.1, 50)):
        Bots().init(with_rates([(0.1, 50.0)]))
