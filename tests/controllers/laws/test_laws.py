"""The laws: what they do at known rates, how they draw, when they stop."""

import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from controller_harness import group, problem_set

from halfway.controllers.beliefs.counts import moving_average
from halfway.controllers.contrib.rounds import choose_balanced
from halfway.controllers.contrib.varied import find_most_varied, variance_score
from halfway.controllers.greso import advance_streak, exploration_step, keep_probability
from halfway.controllers.laws.feedback import (
    Knob,
    RatioLaw,
    damp_gain,
    floor_product,
)
from halfway.curriculum.signals import standardize

LAW = RatioLaw()


@pytest.mark.parametrize("delay", [0, 1, 2, 4, 8])
def test_a_damped_gain_is_stable_under_delay_wherever_it_is_without(delay: int) -> None:
    late = [group(problem_set(1)[0], 4), replace(group(problem_set(1)[0], 4), lag=delay)]

    def distance(gain: float) -> float:
        values = [1.0] * (delay + 1)
        for _ in range(4000):
            values.append(values[-1] - gain * values[-1 - delay])
        return max(map(abs, values[-100:]))

    assert distance(damp_gain(1.95, late)) < 1e-3 and distance(damp_gain(2.05, late)) > 1e3
    assert damp_gain(0.05, late[:1]) == damp_gain(0.05, []) == 0.05


@pytest.mark.parametrize(
    ("pass_rate", "effect", "ratio"),
    [
        (0.40, +1, 0.55),  # below target, a longer head start is easier
        (0.60, +1, 0.45),  # above target -> harder
        (0.40, -1, 0.45),  # below target, a shorter handicap is easier
        (0.60, -1, 0.55),
        (0.50, +1, 0.50),  # at target -> unchanged
        (0.50, -1, 0.50),
        (0.47, +1, 0.50),  # both ends belong to the dead zone
        (0.53, +1, 0.50),
    ],
)
def test_ratio_moves_one_step_toward_the_target(pass_rate: float, effect, ratio: float):
    assert LAW.update(Knob(0.5), pass_rate, effect, 0).ratio == ratio


def test_cooldown_silences_the_next_five_updates():
    knob, ratios = Knob(0.5), []
    for _ in range(13):
        knob = LAW.update(knob, 0.0, +1, 0)
        ratios.append(knob.ratio)
    assert ratios == [0.55] * 6 + [0.6] * 6 + [0.65]


def test_cooldown_counts_updates_inside_the_dead_zone_too():
    knob = LAW.update(Knob(0.5), 0.0, +1, 0)
    for _ in range(5):
        knob = LAW.update(knob, 0.5, +1, 0)
    assert LAW.update(knob, 0.0, +1, 0).ratio == 0.6


def test_cooldown_steps_keep_moves_apart():
    law = RatioLaw(cooldown=0, cooldown_steps=3)
    knob, moved = Knob(0.5), []
    for step in range(9):
        for _ in range(4):  # several updates per step
            before, knob = knob, law.update(knob, 0.0, +1, step)
            if knob.ratio != before.ratio:
                moved.append(step)
    assert moved == [0, 3, 6]


def test_without_any_cooldown_every_update_moves():
    law = RatioLaw(cooldown=0)
    knob = Knob(0.5)
    for _ in range(3):
        knob = law.update(knob, 1.0, +1, 0)
    assert knob.ratio == 0.35


def test_ratio_stays_within_its_bounds_and_a_blocked_move_starts_no_cooldown():
    law = RatioLaw(cooldown=0)
    knob = Knob(0.5)
    for _ in range(30):
        knob = law.update(knob, 0.0, +1, 0)
    assert knob.ratio == 0.95
    for _ in range(30):
        knob = law.update(knob, 1.0, +1, 0)
    assert knob.ratio == 0.05
    at_bound = Knob(0.95)
    assert LAW.update(at_bound, 0.0, +1, 7) == at_bound


def test_repeated_steps_do_not_drift():
    law, knob = RatioLaw(cooldown=0), Knob(0.25)
    for _ in range(9):
        knob = law.update(knob, 0.0, +1, 0)
    assert knob.ratio == 0.7
    assert floor_product(knob.ratio, 10) == 7


@pytest.mark.parametrize("ideal", [0.3, 0.7])
@pytest.mark.parametrize("effect", [+1, -1])
def test_closed_loop_reaches_a_scripted_learner(ideal: float, effect):
    # The pass rate is one half at the ideal ratio, and linear in the distance from it.
    knob, belief, rates = Knob(0.5), 0.5, []
    for step in range(200):
        rate = min(max(0.5 + effect * (knob.ratio - ideal), 0.0), 1.0)
        belief = moving_average(belief, rate, 0.05)
        knob = LAW.update(knob, belief, effect, step)
        rates.append(rate)
    assert abs(rates[0] - 0.5) == pytest.approx(0.2)
    assert all(abs(rate - 0.5) <= 0.1 + 1e-9 for rate in rates[100:])


def test_moving_average_half_life():
    assert moving_average(0.5, 1.0, 0.05) == pytest.approx(0.525)
    half_life = math.log(2) / -math.log(0.95)
    assert half_life == pytest.approx(13.5, abs=0.02)
    value = 1.0
    for _ in range(27):  # two half-lives
        value = moving_average(value, 0.0, 0.05)
    assert value == pytest.approx(0.25, abs=0.002)


def test_streaks_count_visits_of_one_kind():
    visits = [(8, 8), (8, 8), (0, 8), (0, 8), (0, 8), (1, 8), (8, 8)]
    streak, separate, joint = 0, [], []
    for passed, size in visits:
        streak = advance_streak(streak, passed, size, "separate")
        separate.append(streak)
    streak = 0
    for passed, size in visits:
        streak = advance_streak(streak, passed, size, "joint")
        joint.append(streak)
    assert separate == [1, 2, -1, -2, -3, 0, 1]
    assert joint == [1, 2, -3, -4, -5, 0, 1]


@pytest.mark.parametrize(("passed", "size", "streak"), [(1, 16, 0), (63, 64, 0), (0, 16, -1), (64, 64, 1)])
def test_streaks_judge_exact_counts(passed: int, size: int, streak: int):
    # Mean rewards of 0.11 and 0.98 would call 1 of 16 hard and 63 of 64 easy.
    assert advance_streak(0, passed, size) == streak


def test_keep_probability():
    assert [keep_probability(0.5, z) for z in (0, 1, 2, 3)] == [1.0, 0.5, 0.25, 0.125]
    assert keep_probability(0.5, 7) == 0.01
    assert keep_probability(0.5, 7, floor=0.0) == 0.5**7


def test_exploration_falls_at_or_above_the_target_and_rises_below_it():
    assert exploration_step(0.5, share=0.25, target=0.25) == 0.49
    assert exploration_step(0.5, share=0.30, target=0.25) == 0.49
    assert exploration_step(0.5, share=0.24, target=0.25) == 0.51
    assert exploration_step(0.05, share=1.0, target=0.25) == 0.05
    assert exploration_step(0.95, share=0.0, target=0.25) == 0.95


@pytest.mark.parametrize(("ratio", "length", "units"), [(0.29, 100, 29), (0.25, 7, 1), (0.55, 20, 11), (0.05, 10, 0)])
def test_floor_product_survives_binary_fractions(ratio: float, length: int, units: int):
    assert floor_product(ratio, length) == units


@pytest.mark.parametrize("keep", [2, 3, 4, 6, 7])
def test_the_most_varied_rollouts_are_the_best_of_all_subsets(keep: int) -> None:
    generator = np.random.default_rng(keep)
    for _ in range(20):
        for rewards in (generator.random(7), generator.integers(0, 2, 7), generator.integers(0, 4, 7)):
            places = find_most_varied(rewards, keep)
            assert len(set(places.tolist())) == keep and list(places) == sorted(places)
            best = max(np.var(np.asarray(rewards, float)[list(subset)]) for subset in combinations(range(7), keep))
            assert np.var(np.asarray(rewards, float)[places]) == pytest.approx(best)


@pytest.mark.parametrize("size", [2, 3, 8, 9, 16])
def test_the_largest_variance_score_is_one_for_even_and_odd_groups(size: int) -> None:
    scores = [variance_score(passed, size) for passed in range(size + 1)]
    assert max(scores) == pytest.approx(1.0) and scores[size // 2] == pytest.approx(1.0)
    assert scores[0] == scores[size] == 0.0
    largest = max(np.var([1.0] * k + [0.0] * (size - k), ddof=1) for k in range(size + 1))
    for passed, score in enumerate(scores):
        variance = np.var([1.0] * passed + [0.0] * (size - passed), ddof=1)
        assert score == pytest.approx(variance / largest)
    assert variance_score(1, 1) == variance_score(0, 0) == 0.0


def test_a_balanced_choice_has_half_of_each_outcome_where_it_can() -> None:
    for outcomes in product((False, True), repeat=6):
        for keep in (2, 3, 4):
            chosen = choose_balanced(outcomes, keep)
            passed = sum(outcomes[i] for i in chosen)
            assert len(chosen) == len(set(chosen)) == keep
            assert passed == min(sum(outcomes), max(keep // 2, keep - (6 - sum(outcomes))))
    assert choose_balanced([True, True, False, True, False, False], 4) == [0, 1, 2, 4]


def test_standardized_rewards_with_a_virtual_one() -> None:
    # All of four failed, and one virtual success: mean 1/5, sample variance (4/25 * 4 + 16/25) / 4 ... = 1/5.
    found = standardize([0, 0, 0, 0], [1.0], epsilon=0.0)
    assert found == pytest.approx([-0.2 / np.sqrt(0.2)] * 4)
    assert standardize([1, 0], epsilon=0.0) == pytest.approx([np.sqrt(0.5), -np.sqrt(0.5)])
    assert standardize([1, 1, 1]) == pytest.approx([0, 0, 0])
