"""Computes the kinds of 95 % intervals that a comparison needs."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95
NORMAL_QUANTILE = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; the bounds are None where the data do not allow one.

    Attributes:
        values: the values of the seeds, in their order, whose mean this is; empty if it is not a mean over seeds.
    """

    value: float
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()


def over_seeds(values: Sequence[float]) -> Estimate:
    """Mean and Student-t interval of one value per seed; no interval with fewer than two seeds."""
    assert values, "an estimate needs at least one value"
    mean, found = float(np.mean(values)), tuple(map(float, values))
    if len(values) < 2:
        return Estimate(mean, values=found)
    stderr = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return replace(student(mean, stderr, len(values) - 1), values=found)


def student(value: float, stderr: float, dof: float) -> Estimate:
    """Student-t interval from an estimated standard error with `dof` degrees of freedom."""
    margin = float(stdtrit(dof, (1 + LEVEL) / 2)) * stderr
    return Estimate(value, value - margin, value + margin)


def normal(value: float, stderr: float) -> Estimate:
    """Normal interval from a known standard error."""
    return Estimate(value, value - NORMAL_QUANTILE * stderr, value + NORMAL_QUANTILE * stderr)


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate | None:
    """Mean of all values, with a normal interval that treats clusters, but not values within a cluster, as independent.

    With C clusters and n values x, the variance is C / (C - 1) / n^2 times the sum over clusters of
    (sum of (x - mean))^2, the linearised variance of a ratio; with one value per cluster it is s^2 / n.
    None without values; no interval with a single cluster.
    """
    if not values:
        return None
    mean = float(np.mean(values))
    residuals: defaultdict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] += value - mean
    if len(residuals) < 2:
        return Estimate(mean)
    squares = sum(residual**2 for residual in residuals.values())
    return normal(mean, math.sqrt(len(residuals) / (len(residuals) - 1) * squares) / len(values))


def proportion(hits: int, total: int) -> Estimate | None:
    """The share of hits among independent cases, with its Wilson interval. None without cases."""
    if total == 0:
        return None
    z2 = NORMAL_QUANTILE**2
    share = hits / total
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    margin = math.sqrt(z2 * (share * (1 - share) / total + z2 / (4 * total**2))) / (1 + z2 / total)
    return Estimate(share, max(0.0, centre - margin), min(1.0, centre + margin))
