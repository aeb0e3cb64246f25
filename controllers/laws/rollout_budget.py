"""Laws that divide a budget of rollouts among problems by the gain of one more."""

import heapq
import math
from collections.abc import Callable, Sequence

Gain = Callable[[int, int], float]
"""(index of a group, its rollouts so far) -> gain of one more, never larger than the previous gain."""


def allocate(budget: int, least_G: Sequence[int], most_G: Sequence[int], gain: Gain) -> list[int]:
    """Rollouts of each group, exactly the budget in all, with the largest total worth.

    Each rollout goes to the group with the largest gain, which is optimal since gains fall. Ties go to the group with
    the fewest rollouts beyond its least, then to the first group.

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

    A group of N is worth (1 - p^N - (1 - p)^N) p (1 - p)^2: the probability of a mixed group, times the expected gain
    of a step on it. One more rollout adds (p^N (1 - p) + (1 - p)^N p) p (1 - p)^2.
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
    """Posterior probability that at least one of `more` rollouts passes, after `passed` of `size` did (HORA).

    With a uniform prior, the rate has a Beta(k + 1, n - k + 1) posterior, from which follows U(m) = 1 - prod over j < m
    of (n - k + 1 + j) / (n + 2 + j).
    """
    misses = math.prod((size - passed + 1 + j) / (size + 2 + j) for j in range(more))
    return 1 - misses


def hit_gain(passed: int, size: int, more: int) -> float:
    """The gain in `hit_utility` from rollout `more` + 1: the probability of `more` failures, then a success."""
    return (1 - hit_utility(passed, size, more)) * (passed + 1) / (size + 2 + more)
