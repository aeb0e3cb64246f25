"""Laws that divide a budget of rollouts: how many each problem gets, and what one more is worth."""

import heapq
import math
from collections.abc import Callable, Sequence

Gain = Callable[[int, int], float]
"""(index of a group, rollouts it has) -> what one more is worth; never more than the previous one."""


def allocate(budget: int, least_G: Sequence[int], most_G: Sequence[int], gain: Gain) -> list[int]:
    """Rollouts of each group, exactly the budget in all, with the largest total worth.

    One rollout after the other goes where it is worth most. Since gains fall, that is the optimum, which dynamic
    programming would find too. Ties go to the group that has been given the fewest rollouts beyond its least, then to
    the first group.

    Args:
        least_G, most_G: bounds on each group; the budget lies between their sums.
    """
    assert sum(least_G) <= budget <= sum(most_G), "the budget has to lie between the bounds"
    size_G = list(least_G)
    waiting = [(-gain(i, n), 0, i) for i, n in enumerate(size_G) if n < most_G[i]]
    heapq.heapify(waiting)
    for _ in range(budget - sum(least_G)):
        _, more, i = heapq.heappop(waiting)
        size_G[i] += 1
        if size_G[i] < most_G[i]:
            heapq.heappush(waiting, (-gain(i, size_G[i]), more + 1, i))
    return size_G


def signal_gain(rate: float, size: int) -> float:
    """The gain of one more rollout in the knapsack's objective (Knapsack RL).

    A group of N is worth (1 - p^N - (1 - p)^N) p (1 - p)^2: the chance of a mixed group, times what a
    step on it is expected to gain. One more rollout adds (p^N (1 - p) + (1 - p)^N p) p (1 - p)^2.
    """
    mixed = math.pow(rate, size) * (1 - rate) + math.pow(1 - rate, size) * rate
    return mixed * rate * (1 - rate) ** 2


def sufficient_size(rate: float, certainty: float) -> float:
    """About how many rollouts make a group mixed with that probability: log(1 - certainty) / log(max(p, 1 - p)),
    rounded up; unbounded for a certainty of 1. `rate` is neither 0 nor 1."""
    if certainty == 1:
        return math.inf
    return math.ceil(math.log(1 - certainty) / math.log(max(rate, 1 - rate)) - 1e-9)


def hit_utility(passed: int, size: int, more: int) -> float:
    """The posterior chance that at least one of `more` rollouts passes, after `passed` of `size` did (HORA).

    With a uniform prior, the rate has a Beta(k + 1, n - k + 1) posterior, from which follows U(m) = 1 - prod over j < m
    of (n - k + 1 + j) / (n + 2 + j).
    """
    misses = math.prod((size - passed + 1 + j) / (size + 2 + j) for j in range(more))
    return 1 - misses


def hit_gain(passed: int, size: int, more: int) -> float:
    """The gain in `hit_utility` from rollout number `more` + 1: the chance of `more` misses, and then a hit."""
    return (1 - hit_utility(passed, size, more)) * (passed + 1) / (size + 2 + more)
