"""Compares arms by their mean curves: areas under them, costs to reach a target, and chances of being the best.

The runs of two arms have nothing in common but the problems, so arms are resampled independently. What the runs of an
instance share (starting model, problems) is a stratum: every mean is a mean over instances of means over seeds, and
seeds and problems are resampled within instances. Conclusions hold for these instances.

A target is what the baseline's mean curve has at its end. An arm has reached it where its own mean curve, made to rise,
first attains it. A mean curve that never does is censored: its ratio is infinite, no more. So a single run that never
arrives moves the mean, and vetoes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.curves import amounts, first_crossings, problems_told_apart, rising, scores
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import resamples
from halfway.experiments.report.statistics.intervals import Estimate

POINTS = 64
DRAWS = 2000
SEED = 20261124

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stratum:
    """One arm's runs in one instance, on a grid of amounts that all arms share.

    Attributes:
        rates_SGP: held-out pass rates by seed, grid point and problem.
        end: mean amount that the runs had spent at their last evaluation.
    """

    rates_SGP: Array
    end: float


@dataclass(frozen=True, slots=True)
class Pooled:
    """The mean curves of arms along one axis.

    Attributes:
        grid_G: amounts, from 0 to the most that an arm has spent.
        means_AG: the mean curve of each arm, as observed.
        draws_DAG: the same in every resample.
        ends_A: mean amount that each arm had spent at its end.
    """

    arms: tuple[str, ...]
    grid_G: Array
    means_AG: Array
    draws_DAG: Array
    ends_A: Array

    def place(self, arm: str) -> int:
        return self.arms.index(arm)


@dataclass(frozen=True, slots=True)
class PooledRatio:
    """What an arm spends until it has the baseline's final score, as a multiple of what the baseline spends.

    Attributes:
        value, low, high: the ratio with its 95 % percentile interval; infinite where the arm's mean curve never gets
            there.
        never: share of the resamples in which it never gets there.
        p: two-sided p-value for a true ratio of 1.
    """

    value: float
    low: float
    high: float
    never: float
    p: float


def strata(runs_of: Mapping[str, Sequence[Run]], axis: Axis, grid_G: Array) -> dict[str, Stratum]:
    """The arms of one instance on a grid; every run needs an evaluation at its start and one later."""
    apart = problems_told_apart([run for runs in runs_of.values() for run in runs])
    return {
        arm: Stratum(
            np.stack([_on_grid(amounts(run, axis), scores(run, apart), grid_G) for run in runs]),
            float(np.mean([amounts(run, axis)[-1] for run in runs])),
        )
        for arm, runs in runs_of.items()
    }


def _on_grid(x_E: Array, y_EP: Array, grid_G: Array) -> Array:
    """Pass rates on the grid, (G, P): linear between evaluations, and constant after the last."""
    right_G = np.clip(np.searchsorted(x_E, grid_G), 1, len(x_E) - 1)
    width_G = x_E[right_G] - x_E[right_G - 1]
    share_G = np.clip((grid_G - x_E[right_G - 1]) / np.where(width_G > 0, width_G, 1.0), 0.0, 1.0)[:, None]
    rates_GP: Array = (1 - share_G) * y_EP[right_G - 1] + share_G * y_EP[right_G]
    return rates_GP


def pool(instances: Sequence[Mapping[str, Sequence[Run]]], axis: Axis, draws: int = DRAWS) -> Pooled:
    """The mean curves of the arms that all instances have.

    Args:
        instances: for each, the runs of every arm, which share their held-out problems.
    """
    arms = tuple(arm for arm in instances[0] if all(arm in runs_of for runs_of in instances))
    most = max(amounts(run, axis)[-1] for runs_of in instances for arm in arms for run in runs_of[arm])
    grid_G = np.linspace(0.0, most, POINTS + 1)
    generator = np.random.default_rng(SEED)
    means_AG, draws_DAG = np.zeros((len(arms), len(grid_G))), np.zeros((draws, len(arms), len(grid_G)))
    ends_A = np.zeros(len(arms))
    for runs_of in instances:
        tables = strata({arm: runs_of[arm] for arm in arms}, axis, grid_G)
        problems = next(iter(tables.values())).rates_SGP.shape[2]
        weights_PD = _weights(resamples(problems, draws, generator), problems).T
        for place, arm in enumerate(arms):
            rates_SGP = tables[arm].rates_SGP
            seeds_DS = _weights(resamples(len(rates_SGP), draws, generator), len(rates_SGP))
            means_AG[place] += rates_SGP.mean(axis=(0, 2)) / len(instances)
            draws_DAG[:, place] += np.einsum("ds,sgd->dg", seeds_DS, rates_SGP @ weights_PD) / len(instances)
            ends_A[place] += tables[arm].end / len(instances)
    return Pooled(arms, grid_G, means_AG, draws_DAG, ends_A)


def _weights(chosen_DN: NDArray[np.int64], size: int) -> Array:
    """How much each of `size` rows counts in every resample, (D, size)."""
    weights_DN: Array = np.stack([np.bincount(row, minlength=size) for row in chosen_DN]) / chosen_DN.shape[1]
    return weights_DN


def areas(pooled: Pooled, horizon: float) -> tuple[Array, Array]:
    """Areas under the mean curves up to an amount, divided by it: observed, (A,), and in every resample, (D, A)."""
    inside_G = pooled.grid_G <= horizon
    x_G = np.append(pooled.grid_G[inside_G], horizon)

    def mean(curve_G: Array) -> float:
        return float(np.trapezoid(np.interp(x_G, pooled.grid_G, curve_G), x_G) / horizon)

    observed_A = np.array([mean(curve_G) for curve_G in pooled.means_AG])
    drawn_DA = np.apply_along_axis(mean, 2, pooled.draws_DAG)
    return observed_A, drawn_DA


def difference(observed_A: Array, drawn_DA: Array, arm: int, reference: int) -> tuple[Estimate, float]:
    """The difference of two arms' numbers with its 95 % percentile interval, and its two-sided p-value for 0."""
    drawn_D = drawn_DA[:, arm] - drawn_DA[:, reference]
    low, high = np.percentile(drawn_D, [2.5, 97.5])
    return Estimate(float(observed_A[arm] - observed_A[reference]), float(low), float(high)), _p_value(drawn_D)


def ratio(pooled: Pooled, arm: str, baseline: str) -> PooledRatio:
    """What an arm spends until it has the baseline's final score, divided by all that the baseline spends."""
    own, beside = pooled.place(arm), pooled.place(baseline)
    spent = pooled.ends_A[beside]

    def logarithms(curves_DG: Array, targets_D: Array) -> Array:
        crossings_D, reached_D = first_crossings(pooled.grid_G, rising(curves_DG), targets_D)
        # At least a hundredth of the grid's step, for an arm that has the target from the start.
        return np.where(reached_D, np.log(np.maximum(crossings_D, pooled.grid_G[1] / 100) / spent), np.inf)

    end = int(np.searchsorted(pooled.grid_G, spent).clip(max=len(pooled.grid_G) - 1))
    observed = logarithms(pooled.means_AG[[own]], pooled.means_AG[[beside], end])[0]
    drawn_D = logarithms(pooled.draws_DAG[:, own], pooled.draws_DAG[:, beside, end])
    low, high = np.quantile(drawn_D, [0.025, 0.975], method="inverted_cdf")
    return PooledRatio(
        float(np.exp(observed)),
        float(np.exp(low)),
        float(np.exp(high)),
        float(np.isinf(drawn_D).mean()),
        _p_value(drawn_D),
    )


def _p_value(drawn_D: Array) -> float:
    """Two-sided p-value for 0, from resamples of a number: twice the smaller share on either side of it."""
    beyond = min(int((drawn_D <= 0).sum()), int((drawn_D >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(drawn_D) + 1))


def best_shares(drawn_DA: Array) -> Array:
    """How often each arm has the highest number of all, (A,); arms that tie share."""
    best_DA = drawn_DA == drawn_DA.max(axis=1, keepdims=True)
    shares_A: Array = (best_DA / best_DA.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares_A
