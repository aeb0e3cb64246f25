"""Laws that choose rollouts of a group: which of them train, and what a group's outcome is worth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Places = NDArray[np.intp]


def balanced_choice(successes_N: Sequence[bool], keep: int) -> list[int]:
    """The indices of the first rollouts of each outcome: half of `keep` from each if there are enough (Reinforce-Ada).

    If `keep` is odd, the extra one is a failure where there is one.
    """
    passed = [i for i, success in enumerate(successes_N) if success]
    failed = [i for i, success in enumerate(successes_N) if not success]
    num_passed = min(len(passed), max(keep // 2, keep - len(failed)))
    return sorted(passed[:num_passed] + failed[: keep - num_passed])


def most_varied(rewards_N: ArrayLike, keep: int) -> Places:
    """The indices of the `keep` rollouts whose rewards have the largest variance, in order (PODS, algorithm 2).

    They are some of the largest and some of the smallest rewards; every split between the two is tried. Among equal
    splits, the one with most of the largest rewards wins.
    """
    values_N = np.asarray(rewards_N, np.float64)
    order_N, size = np.argsort(values_N, kind="stable"), len(values_N)
    splits = [np.concatenate([order_N[: keep - high], order_N[size - high :]]) for high in range(keep, -1, -1)]
    best: Places = max(splits, key=lambda split: round(float(values_N[split].var()), 12))
    return np.sort(best)


def variance_score(passed: int, size: int) -> float:
    """The sample variance of a group's successes as a share of the largest one possible (VCRL).

    k (N - k) / (N (N - 1)), divided by its maximum, which is N / (4 (N - 1)) for even N and (N + 1) / (4 N) for odd N.
    0 for a group of fewer than two.
    """
    if size < 2:
        return 0.0
    largest = size / (4 * (size - 1)) if size % 2 == 0 else (size + 1) / (4 * size)
    return passed * (size - passed) / (size * (size - 1)) / largest


def standardized(rewards_N: ArrayLike, virtual: Sequence[float] = (), epsilon: float = 1e-6) -> NDArray[Any]:
    """(r - mean) / (standard deviation + epsilon), with the statistics of the real and the virtual rewards together;
    the number of degrees of freedom is one less than the number of rewards."""
    values_N = np.asarray(rewards_N, np.float64)
    known = np.concatenate([values_N, np.asarray(virtual, np.float64)])
    return np.asarray((values_N - known.mean()) / (known.std(ddof=1) + epsilon))
