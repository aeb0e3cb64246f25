"""How many rollouts each problem gets: against brute force, dynamic programming and enumeration."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import integrate, stats

from halfway.controllers.laws.allocation import allocate, hit_gain, hit_utility, signal_gain, sufficient_size

RATES = [(0.5, 0.1, 0.9), (0.02, 0.3, 0.5), (0.0, 0.25, 1.0), (0.7, 0.7, 0.7)]


def value(rate: float, size: int) -> float:
    return (1 - rate**size - (1 - rate) ** size) * rate * (1 - rate) ** 2


def knapsack(rates: Sequence[float], budget: int, least: int, most: int) -> float:
    """The best total, by dynamic programming over the problems."""
    best = {0: 0.0}
    for rate in rates:
        best = {
            spent: max(
                best[spent - size] + value(rate, size) for size in range(least, most + 1) if spent - size in best
            )
            for spent in range(budget + 1)
            if any(spent - size in best for size in range(least, most + 1))
        }
    return best[budget]


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("budget", [6, 9, 14, 24])
def test_the_knapsack_is_the_best_of_all_splits(rates: Sequence[float], budget: int) -> None:
    given = allocate(budget, [2] * 3, [16] * 3, lambda i, n: signal_gain(rates[i], n))
    assert sum(given) == budget and all(2 <= size <= 16 for size in given)
    splits = [split for split in product(range(2, 17), repeat=3) if sum(split) == budget]
    best = max(sum(map(value, rates, split)) for split in splits)
    assert sum(map(value, rates, given)) == pytest.approx(best, abs=1e-12)
    assert knapsack(rates, budget, 2, 16) == pytest.approx(best, abs=1e-12)


def test_gains_add_up_to_the_value_and_fall() -> None:
    for rate in (0.01, 0.2, 0.5, 0.95):
        gains = [signal_gain(rate, size) for size in range(1, 40)]
        assert np.cumsum(gains) == pytest.approx([value(rate, size) for size in range(2, 41)])
        assert np.all(np.diff(gains) <= 0)


def test_equals_share_evenly_and_bounds_hold() -> None:
    assert allocate(10, [2] * 4, [9] * 4, lambda i, n: 0.0) == [3, 3, 2, 2]
    assert allocate(9, [2, 2, 2], [3, 3, 9], lambda i, n: -i) == [3, 3, 3]
    assert allocate(0, [], [], lambda i, n: 0.0) == []
    with pytest.raises(AssertionError):
        allocate(5, [2] * 3, [9] * 3, lambda i, n: 0.0)


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("certainty", [0.5, 0.9])
def test_the_sufficient_size_is_the_first_at_which_the_likelier_outcome_alone_is_unlikely(
    rate: float, certainty: float
) -> None:
    size = int(sufficient_size(rate, certainty))
    assert max(rate, 1 - rate) ** size <= 1 - certainty + 1e-9 < max(rate, 1 - rate) ** (size - 1) + 2e-9
    assert sufficient_size(rate, 1.0) == float("inf")


@pytest.mark.parametrize(("passed", "size", "more"), [(0, 4, 1), (0, 4, 7), (2, 4, 3), (4, 4, 2), (1, 6, 5), (3, 8, 0)])
def test_the_hit_utility_is_the_posterior_chance_of_a_success(passed: int, size: int, more: int) -> None:
    posterior = stats.beta(passed + 1, size - passed + 1)
    by_quadrature, _ = integrate.quad(lambda rate: posterior.pdf(rate) * (1 - (1 - rate) ** more), 0, 1)
    assert hit_utility(passed, size, more) == pytest.approx(by_quadrature, abs=1e-9)
    # The same by counting: with a uniform prior every number of successes in all rollouts together is equally likely.
    whole = size + more
    total = sum(Fraction(comb(size, passed) * comb(more, k - passed), comb(whole, k)) for k in range(passed, whole + 1))
    none = Fraction(comb(size, passed), comb(whole, passed))
    assert hit_utility(passed, size, more) == pytest.approx(float(1 - none / total))
    assert hit_gain(passed, size, more) == pytest.approx(
        hit_utility(passed, size, more + 1) - hit_utility(passed, size, more)
    )


@pytest.mark.parametrize("passed", [(0, 0, 4), (0, 1, 2), (3, 1, 0), (4, 4, 4)])
@pytest.mark.parametrize("budget", [3, 8, 12])
def test_greedy_reaches_the_largest_total_hit_utility(passed: Sequence[int], budget: int) -> None:
    given = allocate(budget, [0] * 3, [budget] * 3, lambda i, more: hit_gain(passed[i], 4, more))
    splits = [split for split in product(range(budget + 1), repeat=3) if sum(split) == budget]

    def total(split: Sequence[int]) -> float:
        return sum(hit_utility(k, 4, more) for k, more in zip(passed, split, strict=True))

    assert total(given) == pytest.approx(max(map(total, splits)), abs=1e-12)
