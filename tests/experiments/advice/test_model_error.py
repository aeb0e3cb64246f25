"""How far simulated leads are from measured ones."""

import math

import pytest

from halfway.experiments.advice.model_error import EXACT, LAB, Lead, ModelError

HARD = (
    Lead(0.324, 0.010, 0.292),
    Lead(0.317, 0.012, 0.036),
    Lead(0.318, 0.011, 0.038),
    Lead(0.162, 0.055, -0.002),
    Lead(0.119, 0.039, -0.038),
    Lead(-0.306, 0.001, -0.038),
    Lead(-0.189, 0.009, -0.063),
    Lead(-0.143, 0.037, -0.199),
)
MIDDLE = (
    Lead(0.302, 0.071, 0.176),
    Lead(0.285, 0.048, 0.064),
    Lead(-0.106, 0.042, 0.007),
    Lead(-0.041, 0.049, -0.001),
    Lead(-0.068, 0.129, -0.090),
)
"""Leads of the contest in experiments/results/predicted_ranks."""


def test_the_share_is_that_of_least_squares_through_the_origin() -> None:
    found = ModelError.of([Lead(1.0, 0.0, 0.5), Lead(2.0, 0.0, 1.0), Lead(-1.0, 0.0, -0.5)])
    assert found.share == pytest.approx(0.5) and found.deviation == pytest.approx(0.0)
    found = ModelError.of([Lead(1.0, 0.0, 0.3), Lead(1.0, 0.0, 0.1)])
    assert found.share == pytest.approx(0.2)
    assert found.deviation == pytest.approx(math.sqrt(0.1**2 + 0.1**2))


def test_what_is_expected_holds_both_errors() -> None:
    mean, deviation = ModelError(0.5, 0.3).expected(0.4, 0.8)
    assert mean == pytest.approx(0.2) and deviation == pytest.approx(0.5)
    assert EXACT.expected(0.4, 0.1) == (0.4, 0.1)


def test_what_is_used_is_what_the_contests_say() -> None:
    pooled = ModelError.of([*HARD, *MIDDLE])
    assert (round(pooled.share, 2), round(pooled.deviation, 3)) == (LAB.share, LAB.deviation)


def test_each_regime_foretells_the_other_blind() -> None:
    assert EXACT.covered(HARD) <= 3 and EXACT.covered(MIDDLE) == 3
    assert ModelError.of(HARD).covered(MIDDLE) == 5
    assert ModelError.of(MIDDLE).covered(HARD) >= 6
