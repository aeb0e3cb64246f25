"""Crossed resampling, many comparisons, and random effects, against closed forms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, t, ttest_ind

from halfway.experiments.report.statistics.crossed import (
    Array,
    CrossedMean,
    Indices,
    correct_excess,
    crossed_difference,
    crossed_mean,
    mean_of_strata,
    resamples,
    satterthwaite,
)
from halfway.experiments.report.statistics.holm import LEVEL, holm, seeds_needed, smallest_shown
from halfway.experiments.report.statistics.intervals import over_seeds
from halfway.experiments.results.when_does_it_pay.verdict_numbers import over_regimes


def table(seed: int, seeds: int, problems: int, rest: float = 0.3) -> Array:
    """seed + problem + rest, with standard deviations .1, .2 and `rest`."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(0, 0.1, (seeds, 1)), rng.normal(0, 0.2, (1, problems)), rng.normal(0, rest, (seeds, problems))
    return np.asarray(sum(parts))


def drawn_parts(draw: Callable[[Indices | None, Indices | None], float], seeds: Any, problems: Any) -> list[float]:
    """Variances of resampled means: of seeds alone, of problems alone, and the rest."""
    alone = [np.var([draw(s, None) for s in seeds]), np.var([draw(None, p) for p in problems])]
    both = np.var([draw(s, p) for s, p in zip(seeds, problems, strict=True)])
    return [float(part) for part in (*alone, both - sum(alone))]


def test_drawing_resamples_gives_the_closed_form() -> None:
    values_SP, rng = table(0, 5, 30), np.random.default_rng(1)

    def draw(seeds: Indices | None, problems: Indices | None) -> float:
        rows = values_SP if seeds is None else values_SP[seeds]
        return float((rows if problems is None else rows[:, problems]).mean())

    parts = drawn_parts(draw, resamples(5, 10_000, rng), resamples(30, 10_000, rng))
    assert crossed_mean(values_SP).stderr == pytest.approx(correct_excess(*parts) ** 0.5, rel=0.02)


def test_drawing_resamples_of_other_seeds_and_the_same_problems_gives_the_closed_form() -> None:
    left, right, rng = table(0, 4, 20), table(1, 6, 20), np.random.default_rng(2)
    left = left + np.linspace(0, 1, 20)  # problems that tell the arms apart
    whole = np.arange(20)

    def draw(seeds: Any, problems: Indices | None) -> float:
        chosen = whole if problems is None else problems
        rows = (np.arange(4), np.arange(6)) if seeds is None else seeds
        return float(left[np.ix_(rows[0], chosen)].mean() - right[np.ix_(rows[1], chosen)].mean())

    seeds = list(zip(resamples(4, 10_000, rng), resamples(6, 10_000, rng), strict=True))
    found = crossed_difference(left, right)
    assert found.stderr == pytest.approx(
        correct_excess(*drawn_parts(draw, seeds, resamples(20, 10_000, rng))) ** 0.5, rel=0.02
    )
    assert 3 < found.dof < 8 and found.values == ()


def test_the_variance_is_that_of_the_model() -> None:
    found = [crossed_mean(table(seed, 4, 10)) for seed in range(4000)]
    variance = 0.1**2 / 4 + 0.2**2 / 10 + 0.3**2 / 40
    assert np.var([mean.mean for mean in found]) == pytest.approx(variance, rel=0.06)
    # Never less than its larger part, so a little more on average.
    estimated = np.mean([mean.stderr**2 for mean in found if mean.stderr])
    assert variance < estimated < 1.25 * variance


def test_the_rest_is_taken_off_once_but_never_leaves_less_than_a_part() -> None:
    assert correct_excess(4.0, 3.0, 1.0) == 6.0
    assert correct_excess(4.0, 3.0, 6.0) == 4.0
    assert correct_excess(4.0, 0.0, 0.0) == 4.0


def test_without_problems_it_is_the_t_interval_over_seeds() -> None:
    scores = [0.2, 0.5, 0.4]
    found = crossed_mean(np.array(scores)[:, None])
    plain = over_seeds(scores)
    assert found.estimate.value == pytest.approx(plain.value) and found.estimate.values == tuple(scores)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((plain.low, plain.high))


def test_one_seed_has_the_error_over_problems_only() -> None:
    found = crossed_mean(np.array([[0.0, 1.0, 1.0, 0.0]]))
    assert found.stderr == pytest.approx((1 / 3 / 4) ** 0.5) and found.dof == 3
    assert crossed_mean(np.array([[0.5]])).stderr is None


def test_p_value_is_that_of_student() -> None:
    # With two degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2).
    found = crossed_mean(np.array([[1.0], [2.0], [3.0]]))
    t = 2 / (1 / 3) ** 0.5
    assert found.p == pytest.approx(1 - t / (2 + t * t) ** 0.5)
    assert crossed_mean(np.array([[1.0], [1.0]])).p == 0 and crossed_mean(np.zeros((2, 1))).p == 1


def test_without_problems_a_difference_is_welchs_t_test() -> None:
    left, right = [0.2, 0.5, 0.4], [0.1, 0.9, 0.7, 0.8, 0.2]
    found = crossed_difference(np.array(left)[:, None], np.array(right)[:, None])
    welch = ttest_ind(left, right, equal_var=False)
    assert (found.p, found.dof) == pytest.approx((welch.pvalue, welch.df))


def test_degrees_of_freedom_of_equal_variances_add_up() -> None:
    assert satterthwaite([(0.3, 3), (0.3, 3)]) == pytest.approx(6)
    assert satterthwaite([(0.3, 3), (0.0, 0)]) == pytest.approx(3)
    assert satterthwaite([(0.0, 3), (0.0, 2)]) == 5


def test_the_mean_of_strata_ignores_their_differences() -> None:
    low, high = (crossed_mean(np.array([[level - 0.1], [level], [level + 0.1]])) for level in (0.2, 0.8))
    found = mean_of_strata([low, high])
    assert (found.mean, found.stderr, found.dof) == pytest.approx((0.5, 0.1 / 6**0.5, 4))
    assert mean_of_strata([low, crossed_mean(np.array([[0.5]]))]).stderr is None


def test_holm_by_hand() -> None:
    # Smallest first: 4 x .01, 3 x .02, 2 x .03 = .06, 1 x .045 raised to the one before it.
    assert holm([0.03, 0.01, 0.045, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_an_unknown_p_value_counts_in_the_family() -> None:
    assert holm([0.01, None]) == [0.02, None]
    assert holm([0.01, 0.02], planned=4) == pytest.approx([0.04, 0.06])


def test_under_the_null_any_false_call_is_rare() -> None:
    rng = np.random.default_rng(0)
    calls = [min(p for p in holm(rng.random(5).tolist()) if p is not None) < LEVEL for _ in range(4000)]
    assert np.mean(calls) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(("dof", "contrasts"), [(2, 1), (7, 4), (7, 12)])
def test_the_smallest_difference_shown_is_found_four_times_of_five(dof: int, contrasts: int) -> None:
    shift = smallest_shown(2.0, dof, contrasts)
    rng = np.random.default_rng(0)
    stderrs = 2.0 * np.sqrt(rng.chisquare(dof, 40_000) / dof)
    found = rng.normal(shift, 2.0, 40_000) / stderrs
    assert np.mean(abs(found) > t.isf(LEVEL / contrasts / 2, dof)) == pytest.approx(0.8, abs=0.01)


def test_with_many_seeds_it_is_the_normal_formula() -> None:
    assert smallest_shown(1.0, 100_000, 1) == pytest.approx(norm.isf(0.025) + norm.ppf(0.8), abs=1e-3)
    assert smallest_shown(0.0, 3, 2) == 0.0


@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_the_seeds_that_a_difference_needs_are_those_of_the_textbook(effect: float, seeds: int) -> None:
    """Cohen (1992), "A power primer", table 2: a two-sided t test of two means at .05 with power .8."""
    assert seeds_needed(-effect, 1.0, 1) == pytest.approx(seeds, abs=1)
    assert seeds_needed(effect, 1.0, 1, most=20) is None


def test_regimes_that_agree_have_the_error_of_a_weighted_mean() -> None:
    found = over_regimes([CrossedMean(0.1, 0.03, 20), CrossedMean(0.1, 0.04, 20)])
    weights = np.array([1 / 0.03**2, 1 / 0.04**2])
    assert (found.mean, found.stderr, found.dof) == pytest.approx((0.1, weights.sum() ** -0.5, 1))


def test_regimes_that_differ_widen_the_error() -> None:
    # With equal errors the mean is plain, and so is its error over regimes: that of a t test over their effects.
    effects = [0.0, 0.1, 0.4]
    found = over_regimes([CrossedMean(effect, 0.01, 20) for effect in effects])
    assert found.mean == pytest.approx(np.mean(effects), abs=1e-6)
    assert found.stderr == pytest.approx(np.std(effects, ddof=1) / 3**0.5, rel=1e-3)


def test_a_single_regime_is_itself() -> None:
    alone = CrossedMean(0.1, 0.03, 20)
    assert over_regimes([alone]) is alone


def test_equal_arms_are_seldom_called_different_though_regimes_differ() -> None:
    generator = np.random.default_rng(5)
    clear = []
    for _ in range(400):
        true = generator.normal(0, 0.03, 5)
        p = over_regimes([CrossedMean(float(generator.normal(mean, 0.02)), 0.02, 24) for mean in true]).p
        clear.append(p is not None and p < 0.05)
    assert 0.005 < np.mean(clear) < 0.08
