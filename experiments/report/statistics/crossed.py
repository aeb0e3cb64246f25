"""The error of a mean over seeds x problems, where every seed meets the same problems.

Two seeds are two draws of a training run, and two held-out problems two draws of a question; a conclusion that is to
hold for other runs *and* other questions must count both. The rows and columns of a table are resampled independently
of each other and the mean is taken anew: the pigeonhole bootstrap (Owen 2007, "The pigeonhole bootstrap", Annals of
Applied Statistics 1(2); McCullagh 2000, "Resampling and exchangeable arrays"). n - 1 of n rows and columns are drawn
rather than n, which makes the variance of a plain mean unbiased (Rao and Wu 1988); with few seeds it matters.

With values_SP = mean + seed_S + problem_P + rest_SP the true variance is var(seed)/S + var(problem)/P +
var(rest)/(S P). Resampling seeds alone gives A = var(seed)/S + var(rest)/(S P) on average, problems alone B =
var(problem)/P + var(rest)/(S P), and both at once counts the rest three times (Owen 2007). So the excess is known and
taken off: with C for both at once the rest is R = C - A - B, and the variance C - 2 R = 2 (A + B) - C, the moment
estimator of crossed random effects (Searle, Casella and McCulloch 1992, chapter 4); it is never less than the larger of
A and B.
"""

import math
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
        stderr: None if there is nothing to resample: one seed and one problem.
        dof: degrees of freedom for Student's t: seeds - 1, since seeds are few and problems many; with one seed
            problems - 1.
        values: one mean over problems for each seed; empty where there is no such pairing.
    """

    mean: float
    stderr: float | None
    dof: int
    values: tuple[float, ...] = ()

    @property
    def estimate(self) -> Estimate:
        """The mean with its 95 % interval."""
        if self.stderr is None:
            return Estimate(self.mean, values=self.values)
        found = student(self.mean, self.stderr, self.dof)
        return Estimate(self.mean, found.low, found.high, self.values)

    @property
    def p(self) -> float | None:
        """Two-sided p-value of a mean of zero; None without a standard error."""
        from scipy.special import stdtr

        if self.stderr is None:
            return None
        if self.stderr == 0:
            return float(self.mean == 0)
        return 2 * float(stdtr(self.dof, -abs(self.mean) / self.stderr))


def crossed_mean(values_SP: Array) -> CrossedMean:
    """The mean of a full table, with the error that infinitely many resamples would give it, less their excess.

    Args:
        values_SP: a row for each seed, a column for each problem; a single column where problems are not told apart,
            and then only seeds are resampled, which is the usual t interval over seeds.
    """
    seeds, problems = values_SP.shape
    variance = corrected(_seed_part(values_SP), _problem_part(values_SP.mean(axis=0)), _rest_part(values_SP))
    return CrossedMean(
        mean=float(values_SP.mean()),
        stderr=_root(variance, seeds, problems),
        dof=(seeds if seeds > 1 else problems) - 1,
        values=tuple(values_SP.mean(axis=1).tolist()),
    )


def crossed_difference(left_SP: Array, right_SP: Array) -> CrossedMean:
    """Mean of one table minus another's with other seeds and the same problems.

    Seeds are resampled in each table by themselves, problems in both at once. Where the seeds are the same too, take
    `crossed_mean` of the difference of the tables.
    """
    (left, problems), right = left_SP.shape, len(right_SP)
    seed_part, rest_part = (sum(map(part, (left_SP, right_SP))) for part in (_seed_part, _rest_part))
    variance = corrected(seed_part, _problem_part(left_SP.mean(axis=0) - right_SP.mean(axis=0)), rest_part)
    fewest = min(left, right)
    return CrossedMean(
        mean=float(left_SP.mean() - right_SP.mean()),
        stderr=_root(variance, max(left, right), problems),
        dof=(fewest if fewest > 1 else problems) - 1,
    )


def corrected(seeds: float, problems: float, rest: float) -> float:
    """The variance from its parts, without the excess of resampling seeds and problems at once.

    Args:
        seeds, problems: the variance if only those are resampled. rest: what resampling both adds to their sum.
    """
    return max(seeds, problems, seeds + problems - rest)


def resamples(size: int, draws: int, generator: np.random.Generator) -> Indices:
    """`draws` x (size - 1) indices drawn with replacement from 0..size-1; a single index stays, alone."""
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
