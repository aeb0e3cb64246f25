"""Controllers that choose by evidence about others, or about older weights: `bots`, `dare`."""

from collections.abc import Sequence

import numpy as np
import pytest
from controller_harness import group, play, problem_set, propose, simulated

from halfway.controllers.beliefs.implicit import capability, predicted
from halfway.controllers.beliefs.importance import importance_rate
from halfway.controllers.bots import Bots, BotsBelief
from halfway.controllers.chains import members
from halfway.controllers.dare import Dare, DareState
from halfway.controllers.laws.choice import Choice
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Problem, ProblemSet, Session, UserError, chain


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
    assert predicted(np.asarray([0.0, 0.9]), np.asarray([1.0, 1.0]), 2.0).tolist() == [1.0, 1.0]
    assert predicted(np.asarray([0.2]), np.asarray([0.6]), -1.0).tolist() == [0.0]


def test_the_default_is_the_published_example() -> None:
    controller = Bots()
    assert (controller.rho, controller.belief.forgetting, controller.belief.decay_on) == (0.1, 0.9, "step")
    assert controller.belief.beta.draw and controller.law == Choice("nearest", target=0.5)


def test_an_adaptive_rho_is_halved_when_predictions_err() -> None:
    """After a step in which all is as the strong model, nothing passes: the prediction is off by more than 0.25."""
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
    with pytest.raises(UserError, match="'p0' has no feature 'weak_rate'"):
        Bots().init(bare)


def test_references_that_are_no_pass_rates_are_refused() -> None:
    with pytest.raises(UserError, match=r"^bots.reference: weak_rate, strong_rate go from 0.1 to 50; name columns of"):
        Bots().init(with_rates([(0.1, 50.0)]))


SOME = problem_set(6)
HALVES = [False, False, True, True]


def test_weights_bring_a_rate_up_to_date() -> None:
    same = importance_rate([0.3] * 4, HALVES, 5.0, 2.0)
    assert (same.rate, same.size, same.weighted) == (0.5, pytest.approx(4.0), True)
    # The successes have become three times as likely: 6 of 8 parts of the weight, and 8^2 / (1 + 1 + 9 + 9) rollouts.
    estimate = importance_rate([0.0, 0.0, np.log(3), np.log(3)], HALVES, 5.0, 2.0)
    assert (estimate.rate, estimate.size) == (pytest.approx(0.75), pytest.approx(3.2))


def test_below_the_effective_sample_size_the_plain_rate_is_taken() -> None:
    ratios = [0.0, 0.0, 0.0, np.log(9)]  # 12^2 / 84 rollouts
    assert importance_rate(ratios, HALVES, 5.0, 1.7)[:2] == (pytest.approx(10 / 12), pytest.approx(144 / 84))
    assert importance_rate(ratios, HALVES, 5.0, 1.8) == (0.5, pytest.approx(144 / 84), False)


def test_a_log_ratio_is_clipped() -> None:
    clipped = importance_rate([-99.0, 99.0], [False, True], 2.0, 0.0)
    assert clipped.rate == pytest.approx(np.exp(2) / (np.exp(2) + np.exp(-2)))
    assert clipped == importance_rate([-2.0, 2.0], [False, True], 2.0, 0.0)


def seen(dare: Dare, passed: Sequence[int]) -> DareState:
    """The state after a group of four of each of the first problems, in order."""
    groups = [group(problem, k, 4) for problem, k in zip(SOME, passed, strict=False)]
    return dare.observe(dare.init(SOME), groups, 0)


def likelier_successes(groups: Sequence[Group]) -> list[np.ndarray]:
    return [np.array([np.log(3) if r.success else 0.0 for r in g.rollouts]) for g in groups]


def test_the_groups_with_the_oldest_estimates_are_scored_and_a_new_group_replaces_an_old_one() -> None:
    dare, asked = Dare(per_step=2), []

    def score(groups: Sequence[Group]) -> list[np.ndarray]:
        asked.append([g.request.problem.id for g in groups])
        return likelier_successes(groups)

    state = seen(dare, [2, 2, 2])
    assert state.rate_P.tolist() == [0.5] * 6
    state = dare.rescored(state, score)
    assert state.rate_P.tolist() == pytest.approx([0.75, 0.75, 0.5, 0.5, 0.5, 0.5])
    assert (state.size, state.fallback) == (pytest.approx(3.2), 0.0)
    state = dare.observe(state, [group(SOME[2], 1, 4)], 1)
    state = dare.rescored(dare.rescored(state, score), score)
    assert asked == [["p0", "p1"], ["p0", "p1"], ["p2", "p0"]]
    assert state.rate_P[2] == pytest.approx(3 / 6)  # one success of weight 3, three failures


def test_the_oldest_groups_go_when_there_are_too_many_and_their_estimates_stay() -> None:
    state = seen(Dare(capacity=2), [1, 2, 3])
    assert list(state.groups) == ["p1", "p2"] and state.rate_P[:3].tolist() == [0.25, 0.5, 0.75]


def test_nothing_is_scored_where_nothing_is_stored() -> None:
    dare = Dare()
    state = dare.init(SOME)
    assert dare.rescored(state, lambda groups: pytest.fail("nothing to score")) is state


def test_problems_are_drawn_near_the_target_by_the_estimates() -> None:
    dare = members([{"dare": {"law": {"kind": "nearest"}}}])[0].part
    state = dare.rescored(seen(dare, [4, 0, 3, 0, 4, 1]), likelier_successes)  # 3 of 4: 9 / 10; 1 of 4: one half
    plan, _ = propose(dare, state, 1, wanted=2)
    assert [request.problem.id for request in plan.requests] == ["p5", "p2"]
    assert Dare().law.kind == members([{"dare": {"law": {"tau": 0.2}}}])[0].part.law.kind == "softmax"


def test_a_trainer_that_scores_nothing_refuses_it() -> None:
    with pytest.raises(UserError, match=r"controllers\.dare needs the likelihood of earlier rollouts .*this trainer"):
        Session(SOME, chain(("dare", Dare())), 4)
    Session(SOME, chain(("uniform", Uniform())), 4)
