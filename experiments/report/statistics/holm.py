"""Several contrasts at once: Holm's adjustment, and the smallest difference that the contrasts can show."""

from collections.abc import Sequence
from functools import cache

import numpy as np

LEVEL = 0.05
POWER = 0.8
NODES = 500


def holm(p_values: Sequence[float | None], planned: int | None = None) -> list[float | None]:
    """Holm's adjusted p-values (Holm 1979, "A simple sequentially rejective multiple test procedure"), in their order.

    The i-th smallest of m, counted from 0, is multiplied by m - i, and raised to the adjusted value before it if that
    is larger. The chance of rejecting any true null hypothesis of the family then stays within the level, even for
    dependent tests.

    Args:
        p_values: None = not known (yet); it stays None, and counts in m as the largest.
        planned: m, if more contrasts were planned than are listed.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    total = max(planned or 0, len(p_values))
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (total - rank) * p))
        adjusted[i] = largest
    return adjusted


def smallest_shown(stderr: float, dof: float, contrasts: int, power: float = POWER) -> float:
    """The true difference that a two-sided t test finds with probability `power`, at Holm's hardest step.

    The hardest step is Bonferroni's alpha / m; the next steps are easier once others are significant. If the true
    difference is d, the statistic is (d / stderr + Z) / S, where Z is standard normal and S^2 is a chi-square variable
    divided by its `dof` degrees of freedom. So P(|statistic| > c) is the mean over S of Phi(d / stderr - c S) +
    Phi(-d / stderr - c S), here over 500 equally likely values of S (scipy's noncentral t fails for two degrees of
    freedom and small levels).

    Args:
        contrasts: m, the number of contrasts in the family.
    """
    return stderr * _smallest_shift(dof, contrasts, power)


def seeds_needed(difference: float, spread: float, contrasts: int, most: int = 1000) -> int | None:
    """The smallest number of seeds per arm with which `smallest_shown` is at most a difference.

    Args:
        spread: standard deviation over the seeds of an arm.
        contrasts: m, the number of contrasts in the family.
        most: largest answer; None is returned if more seeds are needed.
    """
    return next(
        (
            seeds
            for seeds in range(2, most + 1)
            if smallest_shown(spread * (2 / seeds) ** 0.5, 2 * (seeds - 1), contrasts) <= abs(difference)
        ),
        None,
    )


@cache
def _smallest_shift(dof: float, contrasts: int, power: float) -> float:
    """`smallest_shown` in units of the standard error."""
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr, stdtrit

    spread = np.sqrt(2 * gammaincinv(dof / 2, (np.arange(NODES) + 0.5) / NODES) / dof)
    critical = -float(stdtrit(dof, LEVEL / contrasts / 2)) * spread

    def excess(shift: float) -> float:
        return float(np.mean(ndtr(shift - critical) + ndtr(-shift - critical))) - power

    return float(brentq(excess, 0.0, 10 + float(critical.max())))
