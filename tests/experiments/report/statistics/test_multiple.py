"""Holm by hand, and the power of a t test against simulation and the normal limit."""

import numpy as np
import pytest
from scipy.stats import norm, t

from halfway.experiments.report.statistics.multiple import LEVEL, holm, smallest_shown


def test_holm_by_hand() -> None:
    # Smallest first: 4 x .01, 3 x .02, 2 x .03 = .06, 1 x .045 raised to the one before it.
    assert holm([0.03, 0.01, 0.045, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_what_is_not_known_counts_in_the_family() -> None:
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
