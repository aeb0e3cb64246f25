"""Curricula on a difficulty column: AdaRFT's target by hand, E2H's probabilities by hand, and what they propose."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from controller_harness import child, group, play, propose, simulated

from halfway.controllers.laws.category_shares import cosine_shares, gaussian_shares
from halfway.controllers.servo import Servo
from halfway.curriculum import Origin, Problem, ProblemSet, UserError


def with_column(values: list, name: str = "difficulty") -> ProblemSet:
    return ProblemSet([Problem(f"p{i}", f"prompt {i}", "0", features={name: value}) for i, value in enumerate(values)])


PROBLEMS = with_column([float(i) for i in range(0, 100, 5)])  # 0, 5, .. 95
LEVELS = with_column([i % 4 for i in range(40)], "level")


def difficulties(plan) -> list[float]:
    return [request.problem.features["difficulty"] for request in plan.requests]


def test_the_target_of_adarft_by_hand() -> None:
    """T + 50 tanh(2 (rate - 1/2)), cut to 0..100, rate the mean over the step's fresh rollouts."""
    controller = Servo()
    state = controller.init(PROBLEMS)
    others = [child(PROBLEMS[3], (1, 8), 0), group(PROBLEMS[4], 0, origin=Origin.GENERATED)]
    others = [replace(other, lag=4) for other in others]  # late, but no evidence
    state = controller.observe(state, [group(PROBLEMS[0], 8), group(PROBLEMS[1], 6), *others], 0)
    first = 50 * math.tanh(2 * (14 / 16 - 0.5))
    assert state.target == pytest.approx(first)
    state = controller.observe(state, [group(PROBLEMS[2], 3)], 1)
    assert state.target == pytest.approx(first + 50 * math.tanh(2 * (3 / 8 - 0.5)))
    assert controller.observe(state, [group(PROBLEMS[2], 0)] * 3, 2).target == 0.0
    high = controller.observe(controller.observe(state, [group(PROBLEMS[2], 8)], 2), [group(PROBLEMS[2], 8)], 3)
    assert controller.observe(high, [group(PROBLEMS[2], 8)], 4).target == 100.0
    assert controller.observe(state, [], 2).target == state.target
    late = controller.observe(state, [replace(group(PROBLEMS[2], 8), lag=1)], 2)
    assert late.target == pytest.approx(state.target + 50 / 2 * math.tanh(2 * 0.5))


def test_a_plan_takes_what_is_nearest_the_target() -> None:
    plan, _ = propose(Servo(start=31.0), Servo(start=31.0).init(PROBLEMS), 0, wanted=4)
    assert difficulties(plan) == [30.0, 35.0, 25.0, 40.0]


def test_problems_of_equal_difficulty_take_turns() -> None:
    problems, controller = with_column([50.0] * 12 + [0.0] * 4), Servo(start=50.0)
    state, seen = controller.init(problems), Counter()
    for step in range(6):
        plan, state = propose(controller, state, step, wanted=4)
        seen.update(request.problem.id for request in plan.requests)
    assert seen == {f"p{i}": 2 for i in range(12)}


def test_a_column_of_pass_rates_is_a_hundred_times_the_failures() -> None:
    rates, controller = (
        with_column([1.0, 0.9, 0.5, 0.0], "rate"),
        Servo(difficulty="rate", column_is="pass_rate", start=95),
    )
    plan, _ = propose(controller, controller.init(rates), 0, wanted=2)
    assert [request.problem.id for request in plan.requests] == ["p3", "p2"]


def test_the_target_rises_while_more_than_half_passes_and_settles_where_half_does() -> None:
    """The simulated learner at rest passes half of the problems whose difficulty equals its skill."""
    problems = with_column([(i - 100) / 25 for i in range(200)])  # logits -4 .. 4
    controller = Servo(bounds=(-4.0, 4.0), start=-4.0, gain=1.0)
    state, targets = controller.init(problems), []
    for step in range(60):
        _, state = play(controller, state, range(step, step + 1), learner=simulated(0))
        targets.append(state.target)
    assert targets[:4] == sorted(targets[:4]) and targets[0] > -4
    assert np.mean(targets[20:]) == pytest.approx(0.0, abs=0.25)


def test_cosine_by_hand() -> None:
    """K = 4, S = 10: from .4 .3 .2 .1, through equal shares half-way, to .1 .2 .3 .4."""
    assert cosine_shares(0.0, 4) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert cosine_shares(0.5, 4) == pytest.approx([0.25] * 4)
    assert cosine_shares(1.0, 4) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    third = 0.5 * (1 + math.cos(math.pi / 3))  # .75
    assert cosine_shares(1 / 3, 3) == pytest.approx([(third * (3 - i) + (1 - third) * (i + 1)) / 6 for i in range(3)])
    assert all(cosine_shares(t, 5).min() >= 1 / 15 - 1e-12 for t in np.linspace(0, 1, 11))


def test_gaussian_by_hand() -> None:
    """K = 3, t = T / 4, exponent 1/2: the mean is at level 1, and the neighbours weigh exp(-2) of it at width 1/2."""
    side = math.exp(-2) / (1 + 2 * math.exp(-2))
    expected = [0.1 + 0.7 * side, 0.1 + 0.7 * (1 - 2 * side), 0.1 + 0.7 * side]
    assert gaussian_shares(0.25, 3, 0.5, 0.5, 0.1) == pytest.approx(expected)
    assert gaussian_shares(0.0, 3, 0.5, 0.5, 0.0)[0] == pytest.approx(1 / (1 + math.exp(-2) + math.exp(-8)))
    assert gaussian_shares(0.25, 3, 0.5, 1e-3, 0.0) == pytest.approx([0, 1, 0])  # no 0 / 0


def test_the_default_floor_is_what_the_published_code_uses_for_true() -> None:
    assert Servo("gaussian").shares(0, 4).min() == pytest.approx(0.1, abs=0.01)
    assert Servo("gaussian", floor=0.0).shares(0, 4).min() < 1e-6


@pytest.mark.parametrize("rule", ["cosine", "gaussian"])
def test_slots_follow_the_schedule_and_levels_take_turns(rule: str) -> None:
    controller = Servo(rule, difficulty="level", steps=10)
    state, late = controller.init(LEVELS), Counter()
    for step in (0, 5, 10, 400):
        counts: Counter[int] = Counter()
        for seed in range(150):
            plan, _ = propose(controller, state, step, wanted=8, seed=seed)
            counts.update(request.problem.features["level"] for request in plan.requests)
            assert len({request.problem.id for request in plan.requests}) == 8
        shares = controller.shares(step, 4)
        assert [counts[level] / 1200 for level in range(4)] == pytest.approx(list(shares), abs=0.06)
        late = counts if step == 400 else late
    assert late[3] > late[0]
    for step in range(10):
        plan, state = propose(controller, state, step, wanted=8)
    for level in range(4):
        turns = state.turns_P[level::4]
        assert turns.max() - turns.min() <= 1


def test_levels_of_numbers_are_quantiles_and_of_rates_the_highest_first() -> None:
    controller = Servo("cosine", levels=4)
    kinds = controller._levels(PROBLEMS)
    assert [len(kinds.members(level)) for level in range(4)] == [5] * 4
    assert kinds.members(0).tolist() == [0, 1, 2, 3, 4]
    rates = with_column([0.9, 0.9, 0.1, 0.1], "rate")
    kinds = Servo("cosine", difficulty="rate", column_is="pass_rate")._levels(rates)
    assert kinds.members(0).tolist() == [0, 1] and kinds.names == ("10", "90")


@pytest.mark.parametrize(
    ("options", "problems", "says"),
    [
        ({"difficulty": "grade"}, PROBLEMS, "'p0' has no feature 'grade'; add the column"),
        ({}, with_column(["a", "b"]), "servo.difficulty: 'difficulty' is not a finite number for every problem"),
        (
            {"column_is": "pass_rate"},
            PROBLEMS,
            "servo.difficulty: 'difficulty' goes from 0 to 95, which are not pass rates",
        ),
        (
            {"rule": "cosine"},
            PROBLEMS,
            "servo.difficulty: the feature 'difficulty' has the value '0.0' for one problem only",
        ),
        (
            {"rule": "gaussian", "difficulty": "level", "floor": 0.3},
            LEVELS,
            "servo.floor: must be at",
        ),
    ],
    ids=["absent", "words", "no rates", "singles", "floor"],
)
def test_a_bad_column_is_refused_in_one_line(options: dict, problems: ProblemSet, says: str) -> None:
    with pytest.raises(UserError) as error:
        Servo(**options).init(problems)
    assert says in str(error.value) and "\n" not in str(error.value)
