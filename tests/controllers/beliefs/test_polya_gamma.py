"""Polya-Gamma draws against the known moments and transform."""

import math

import numpy as np
import pytest

from halfway.controllers.beliefs.polya_gamma import SMALL_TILT, draw, moments

DRAWS = 40_000


def series_cumulant(tilt: float, order: int, last: int = 200_000) -> float:
    """Cumulant of PG(1, c) by summing (order - 1)! w_r^order."""
    r = np.arange(1, last + 1)
    weights = 2 / (((2 * r - 1) * math.pi) ** 2 + tilt * tilt)
    return math.factorial(order - 1) * float((weights**order).sum())


@pytest.mark.parametrize("tilt", [0.0, 0.01, 0.2499, 0.2501, 1.0, 4.0, 12.0])
def test_moments_are_those_of_the_series(tilt: float):
    mean, variance = moments(np.asarray([tilt, -tilt]))
    assert mean == pytest.approx([series_cumulant(tilt, 1)] * 2, rel=1e-5)
    assert variance == pytest.approx([series_cumulant(tilt, 2)] * 2, rel=2e-8)


def test_moments_at_zero_and_across_the_change_of_formula():
    assert [m[0] for m in moments(np.zeros(1))] == [1 / 4, 1 / 24]
    below, above = (np.asarray(moments(np.asarray([SMALL_TILT + side]))) for side in (-1e-9, 1e-9))
    assert below == pytest.approx(above, rel=2e-8)


@pytest.mark.parametrize(("shape", "tilt"), [(0.05, 0.0), (0.7, 1.0), (1.0, 0.0), (7.3, -2.5), (80.0, 4.0)])
def test_mean_and_variance_of_draws(shape: float, tilt: float):
    x = draw(np.full(DRAWS, shape), np.full(DRAWS, tilt), np.random.default_rng(1))
    mean, variance = (shape * m[0] for m in moments(np.asarray([tilt])))
    assert x.mean() == pytest.approx(mean, abs=4.5 * math.sqrt(variance / DRAWS))
    fourth = shape * series_cumulant(tilt, 4, 2000) + 3 * variance**2
    assert x.var() == pytest.approx(variance, abs=4.5 * math.sqrt((fourth - variance**2) / DRAWS))


@pytest.mark.parametrize(("shape", "tilt", "t"), [(0.6, 0.0, 3.0), (8.0, 1.5, 0.4), (2.5, -3.0, 2.0)])
def test_laplace_transform(shape: float, tilt: float, t: float):
    # E exp(-w t) = (cosh(c/2) / cosh(sqrt(c^2/4 + t/2)))^b checks the whole distribution, not two moments.
    x = np.exp(-t * draw(np.full(DRAWS, shape), np.full(DRAWS, tilt), np.random.default_rng(2)))
    exact = (math.cosh(tilt / 2) / math.cosh(math.sqrt(tilt * tilt / 4 + t / 2))) ** shape
    assert x.mean() == pytest.approx(exact, abs=4.5 * x.std() / math.sqrt(DRAWS))


@pytest.mark.parametrize(("tilt", "limit"), [(0.0, 1e-4), (3.0, 1e-3), (6.0, 3e-3)])
def test_third_cumulant_of_the_closed_tail(tilt: float, limit: float):
    mean, variance = (m[0] for m in moments(np.asarray([tilt])))
    weights = np.asarray([2 / (((2 * r - 1) * math.pi) ** 2 + tilt * tilt) for r in (1, 2)])
    tail_mean, tail_variance = mean - weights.sum(), variance - (weights**2).sum()
    third = 2 * (weights**3).sum() + 2 * tail_variance**2 / tail_mean
    assert third == pytest.approx(series_cumulant(tilt, 3), rel=limit)
