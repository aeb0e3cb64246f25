"""Computes the kinds of 95 % intervals that a comparison needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

LEVEL = 0.95
FEW = 3
"""With this many seeds or fewer, single runs are shown: an interval would show little but the lack of seeds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; the bounds are None if the data allow none.

    Attributes:
        values: the seeds' values, in order, of which this is the mean; empty if it is not a mean over seeds.
    """

    value: float
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()

    @property
    def as_rate(self) -> "Estimate":
        """Cut the bounds to 0 and 1, for a rate; this loses no coverage."""
        low, high = self.low, self.high
        return replace(self, low=None if low is None else max(low, 0.0), high=None if high is None else min(high, 1.0))


def unless_few(estimate: Estimate, seeds: int) -> Estimate:
    """The same estimate; without its interval with `FEW` seeds or fewer."""
    return estimate if seeds > FEW else replace(estimate, low=None, high=None)


def few_over_seeds(values: Sequence[float]) -> Estimate:
    """Mean and Student-t interval of one value per seed; no interval with `FEW` seeds or fewer."""
    return unless_few(over_seeds(values), len(values))


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
    from scipy.special import stdtrit  # imported late: an audit of a log imports this module without scipy

    margin = float(stdtrit(dof, (1 + LEVEL) / 2)) * stderr
    return Estimate(value, value - margin, value + margin)
