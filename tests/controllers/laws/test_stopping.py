"""Conformal thresholds: against sorting by hand, and their coverage."""

from fractions import Fraction

import numpy as np
import pytest

from halfway.controllers.laws.stopping import (
    accepted_miss,
    conformal_quantile,
    first_success_score,
    pass_rate_score,
)


def test_scores_of_a_group() -> None:
    assert [first_success_score(list(map(bool, outcome))) for outcome in ([1, 0], [0, 1], [0, 0, 1, 1], [0, 0])] == [
        0.5,
        1.0,
        0.75,
        1.0,
    ]
    assert [pass_rate_score(list(map(bool, outcome))) for outcome in ([1, 0], [0, 0], [1, 1, 1, 0])] == [0.5, 1.0, 0.25]


def test_the_quantile_is_the_place_that_the_correction_names() -> None:
    scores = [0.9, 0.1, 0.5, 0.3, 0.7]
    # (5 + 1)(1 - miss) = 3, 4.8, 5.7 and 0.3: the third, the fifth, the largest for want of a sixth, and the first.
    assert [conformal_quantile(scores, miss) for miss in (0.5, 0.2, 0.05, 0.95)] == [0.5, 0.9, 0.9, 0.1]
    assert conformal_quantile([], 0.2) == 1.0


@pytest.mark.parametrize(("number", "miss"), [(9, 0.2), (19, 0.35), (4, 0.4)])
def test_a_further_score_is_covered_as_often_as_exchangeability_says(number: int, miss: float) -> None:
    # Of n + 1 different scores in random order the last is among the lowest m with chance m / (n + 1) exactly.
    place = -((-(number + 1) * Fraction(str(1 - miss)).limit_denominator(100)) // 1)
    scores_RN = np.random.default_rng(0).random((20_000, number + 1))
    covered = [row[-1] <= conformal_quantile(list(row[:-1]), miss) for row in scores_RN]
    exact = float(place / (number + 1))
    assert exact >= 1 - miss
    assert np.mean(covered) == pytest.approx(exact, abs=4 * (exact * (1 - exact) / len(covered)) ** 0.5)


def test_the_accepted_miss_is_the_unsolved_share_and_a_margin() -> None:
    assert accepted_miss([0.2, 0.5, 1.0, 1.0], 0.05) == pytest.approx(0.55)
    assert accepted_miss([0.0] * 4, 0.01) == 0.05 and accepted_miss([1.0] * 4, 0.05) == 0.95
    assert accepted_miss([], 0.05) == 0.95
