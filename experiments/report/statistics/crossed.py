"""Computes the error of a mean over seeds x problems, where every seed meets the same problems.

Seeds are draws of a training run, and held-out problems are draws of a question. A conclusion about other runs *and*
other questions must account for both. The rows and columns of the table are resampled independently and the mean is
recomputed: the pigeonhole bootstrap (Owen 2007, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2);
McCullagh 2000, "Resampling and exchangeable arrays"). Of n rows or columns, n - 1 are drawn instead of n, which makes
the variance of a plain mean unbiased (Rao and Wu 1988); this matters with few seeds.

With values_SP = mean + seed_S + problem_P + rest_SP, the true variance is var(seed)/S + var(problem)/P +
var(rest)/(S P). On average, resampling only the seeds gives A = var(seed)/S + var(rest)/(S P), resampling only the
problems gives B = var(problem)/P + var(rest)/(S P), and resampling both gives C, which counts var(rest)/(S P) three
times (Owen 2007). The excess is therefore known and is subtracted: R = C - A - B estimates var(rest)/(S P), and the
variance is C - 2 R = 2 (A + B) - C, the moment estimator of crossed random effects (Searle, Casella and McCulloch 1992,
chapter 4), but at least the larger of A and B.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfway.experiments.report.statistics.intervals import Estimate, student

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CrossedMean:
    """A mean with its standard error.

    Attributes:
        stderr: standard error; None with one seed and one problem, which cannot be resampled.
        dof: degrees of freedom for Student's t: those of the seeds, which are few, while problems are many; with one
            seed, problems - 1.
        values: one mean over problems for each seed; empty for a difference of arms.
    """

    mean: float
    stderr: float | None
    dof: float
    values: tuple[float, ...] = ()

    @property
    def estimate(self) -> Estimate:
        """The mean with its 95 % interval; without one for a single seed, or without a standard error."""
        if self.stderr is None or len(self.values) == 1:
            return Estimate(self.mean, values=self.values)
        found = student(self.mean, self.stderr, self.dof)
        return Estimate(self.mean, found.low, found.high, self.values)

    @property
    def p(self) -> float | None:
        """Two-sided p-value for a true mean of zero; None without a standard error."""
        from scipy.special import stdtr

        if self.stderr is None:
            return None
        if self.stderr == 0:
            return float(self.mean == 0)
        return 2 * float(stdtr(self.dof, -abs(self.mean) / self.stderr))


def crossed_mean(values_SP: Array) -> CrossedMean:
    """The mean of a full table, with the error of infinitely many resamples, corrected for their excess.

    Args:
        values_SP: one row per seed and one column per problem. A single column is the mean over problems; then only
            seeds are resampled, which gives the usual t interval over seeds.
    """
    seeds, problems = values_SP.shape
    variance = correct_excess(_seed_part(values_SP), _problem_part(values_SP.mean(axis=0)), _rest_part(values_SP))
    return CrossedMean(
        mean=float(values_SP.mean()),
        stderr=_root(variance, seeds, problems),
        dof=(seeds if seeds > 1 else problems) - 1,
        values=tuple(values_SP.mean(axis=1).tolist()),
    )


def crossed_difference(left_SP: Array, right_SP: Array) -> CrossedMean:
    """The mean of one table minus the mean of another with the same problems but different seeds.

    Seeds are resampled in each table separately, problems in both at once.
    """
    tables, problems = (left_SP, right_SP), left_SP.shape[1]
    lengths = [len(table) for table in tables]
    seed_parts = [(_seed_part(table), len(table) - 1) for table in tables]
    problem_part = _problem_part(left_SP.mean(axis=0) - right_SP.mean(axis=0))
    variance = correct_excess(sum(part for part, _ in seed_parts), problem_part, sum(map(_rest_part, tables)))
    return CrossedMean(
        mean=float(left_SP.mean() - right_SP.mean()),
        stderr=_root(variance, max(lengths) if problems > 1 else min(lengths), problems),
        dof=satterthwaite(seed_parts) if min(lengths) > 1 else problems - 1,
    )


def mean_of_strata(parts: Sequence[CrossedMean]) -> CrossedMean:
    """The mean of independent means, such as those of a task's instances; it says nothing about other strata."""
    variances = [None if part.stderr is None else part.stderr**2 for part in parts]
    known = [variance for variance in variances if variance is not None]
    return CrossedMean(
        mean=float(np.mean([part.mean for part in parts])),
        stderr=math.sqrt(sum(known)) / len(parts) if len(known) == len(parts) else None,
        dof=satterthwaite([(variance, part.dof) for variance, part in zip(known, parts, strict=False)]),
    )


def mean_difference(instances: Sequence[tuple[Array, Array]]) -> CrossedMean:
    """The mean over instances of one arm's mean minus another's.

    If an arm has a single run in one of several instances, the seeds' spread is unknown, and instances are the units.

    Args:
        instances: the tables of the two arms in each instance, (seeds, problems).
    """
    if len(instances) == 1 or all(len(table) > 1 for pair in instances for table in pair):
        return mean_of_strata([crossed_difference(left_SP, right_SP) for left_SP, right_SP in instances])
    return crossed_mean(np.array([[left_SP.mean() - right_SP.mean()] for left_SP, right_SP in instances]))


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each estimated with its own degrees of freedom.

    Satterthwaite (1946), "An approximate distribution of estimates of variance components"; for two means it is Welch's
    t test (1947). Zero variances add nothing, unless all are zero.
    """
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return sum(dof for _, dof in parts)
    return total**2 / sum(variance**2 / dof for variance, dof in parts if variance)


def correct_excess(seeds: float, problems: float, rest: float) -> float:
    """The variance from its parts, without the excess of resampling seeds and problems at once.

    Args:
        seeds, problems: the variance when only seeds, or only problems, are resampled.
        rest: the variance when both are resampled, minus these two.
    """
    return max(seeds, problems, seeds + problems - rest)


def resamples(size: int, draws: int, generator: np.random.Generator) -> Indices:
    """Indices drawn with replacement from 0..size-1, (draws, size - 1); with size 1 all zeros, (draws, 1)."""
    if size == 1:
        return np.zeros((draws, 1), np.int64)
    return generator.integers(size, size=(draws, size - 1))


def _seed_part(values_SP: Array) -> float:
    return float(values_SP.mean(axis=1).var(ddof=1)) / len(values_SP) if len(values_SP) > 1 else 0.0


def _problem_part(means_P: Array) -> float:
    return float(means_P.var(ddof=1)) / len(means_P) if len(means_P) > 1 else 0.0


def _rest_part(values_SP: Array) -> float:
    seeds, problems = values_SP.shape
    if seeds < 2 or problems < 2:
        return 0.0
    rest_SP = values_SP - values_SP.mean(axis=1, keepdims=True) - values_SP.mean(axis=0) + values_SP.mean()
    return float((rest_SP**2).sum() / ((seeds - 1) * (problems - 1)) / (seeds * problems))


def _root(variance: float, seeds: int, problems: int) -> float | None:
    return math.sqrt(variance) if seeds > 1 or problems > 1 else None
