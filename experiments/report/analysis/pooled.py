"""Compares arms by their mean curves: areas under them, costs to reach a target, and chances of being the best.

The runs of two arms share only the problems, so arms are resampled independently. The runs of an instance share the
starting model and the problems: an instance is a stratum. Every mean is a mean over instances of means over seeds, and
seeds and problems are resampled within instances. Conclusions hold for these instances. If some arm has a single run in
an instance, the seeds' spread within instances is unknown; then instances are the units, the same for all arms.

Areas, the primary measure, are compared by Student's t; chances and costs to a target by resampling.

A target is the final score of the baseline's mean curve, or a score fixed in advance. An arm reaches it where its own
mean curve, made monotone, first attains it. A mean curve that never does is censored: its ratio is infinite. So a
single run that never reaches the target moves the mean but decides nothing alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.curves import (
    amounts,
    first_crossings,
    fit_rising,
    problems_known,
    scores_at,
)
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import CrossedMean, mean_difference, resamples
from halfway.experiments.report.statistics.holm import LEVEL

POINTS = 64
DRAWS, MOST_WEIGHTS = 2000, 20_000_000
"""Resamples; fewer if all their weights of held-out problems would be more than this many numbers."""
SEED = 20261124

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stratum:
    """One arm's runs in one instance, on a grid of amounts shared by all arms.

    Attributes:
        rates_SGP: held-out pass rates by seed, grid point and problem.
        end: mean amount spent at the runs' last evaluations.
    """

    rates_SGP: Array
    end: float


@dataclass(frozen=True, slots=True)
class Pooled:
    """The mean curves of arms along one axis.

    Attributes:
        grid_G: amounts, from 0 to the largest amount that an arm has spent.
        strata: the runs of every arm, by instance.
        means_AG: the observed mean curve of each arm.
        draws_DAG: the mean curves in every resample.
        ends_A: mean amount that each arm has spent at its end.
        risen: by arm, the monotone curves, cached since they take most of the time.
    """

    arms: tuple[str, ...]
    grid_G: Array
    strata: tuple[dict[str, Stratum], ...]
    means_AG: Array
    draws_DAG: Array
    ends_A: Array
    risen: dict[str, Array] = field(default_factory=dict)

    def place(self, arm: str) -> int:
        return self.arms.index(arm)


@dataclass(frozen=True, slots=True)
class PooledRatio:
    """An arm's cost until its mean curve reaches a target, as a multiple of the baseline's cost.

    Attributes:
        value: the ratio; None if the arm's mean curve never reaches the target, 0 if it starts there.
        low, high: its 95 % percentile interval, None where infinite; both None without seeds to resample, or with few.
        never: share of the resamples in which the mean curve never reaches the target; None without an interval.
        p: two-sided p-value for a true ratio of 1; with few runs, at least the smallest p that they can give.
        adjusted_p: p after an adjustment over several arms.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    never: float | None = None
    p: float | None = None
    adjusted_p: float | None = None

    @property
    def clear(self) -> bool:
        """True if the ratio differs from 1 after the adjustment."""
        return self.adjusted_p is not None and self.adjusted_p < LEVEL


def strata(runs_of: Mapping[str, Sequence[Run]], axis: Axis, grid_G: Array) -> dict[str, Stratum]:
    """Put the arms of one instance on a grid; every run needs an evaluation at its start and one later."""
    known = problems_known([run for runs in runs_of.values() for run in runs])
    return {
        arm: Stratum(
            np.stack([scores_at(run, axis, grid_G, known) for run in runs]),
            float(np.mean([amounts(run, axis)[-1] for run in runs])),
        )
        for arm, runs in runs_of.items()
    }


def by_instance(runs_of: Mapping[str, Sequence[Run]], number: int) -> list[dict[str, list[Run]]]:
    """Group runs by instance: seed s belongs to instance s modulo their number.

    Instances in which some arm has no run yet are left out. If none is complete, the runs count as one instance.
    """
    parts = [
        {arm: [run for run in runs if run.seed % number == place] for arm, runs in runs_of.items()}
        for place in range(number)
    ]
    return [part for part in parts if all(part.values())] or [{arm: [*runs] for arm, runs in runs_of.items()}]


def pool(instances: Sequence[Mapping[str, Sequence[Run]]], axis: Axis, draws: int = DRAWS) -> Pooled:
    """Compute the mean curves of the arms that all instances have.

    Args:
        instances: the runs of every arm in each instance; they share their held-out problems.
    """
    arms = tuple(arm for arm in instances[0] if all(arm in runs_of for runs_of in instances))
    most = max(amounts(run, axis)[-1] for runs_of in instances for arm in arms for run in runs_of[arm])
    grid_G = np.linspace(0.0, most, POINTS + 1)
    tables = tuple(strata({arm: runs_of[arm] for arm in arms}, axis, grid_G) for runs_of in instances)
    problems = max(cell.rates_SGP.shape[2] for table in tables for cell in table.values())
    return pool_tables(tables, grid_G, min(draws, MOST_WEIGHTS // problems))


def pool_tables(tables: tuple[dict[str, Stratum], ...], grid_G: Array, draws: int) -> Pooled:
    """Compute the mean curves of the arms from their runs in every instance."""
    arms = tuple(tables[0])
    generator = np.random.default_rng(SEED)
    shares_DI = _instance_shares(tables, draws, generator)
    means_AG, draws_DAG = np.zeros((len(arms), len(grid_G))), np.zeros((draws, len(arms), len(grid_G)))
    for table, share_D in zip(tables, shares_DI.T, strict=True):
        problems = next(iter(table.values())).rates_SGP.shape[2]
        weights_PD = _weights(resamples(problems, draws, generator), problems).T
        for place, arm in enumerate(arms):
            rates_SGP = table[arm].rates_SGP
            seeds_DS = _weights(resamples(len(rates_SGP), draws, generator), len(rates_SGP))
            means_AG[place] += rates_SGP.mean(axis=(0, 2)) / len(tables)
            draws_DAG[:, place] += np.einsum("d,ds,sgd->dg", share_D, seeds_DS, rates_SGP @ weights_PD)
    ends_A = np.array([np.mean([table[arm].end for table in tables]) for arm in arms])
    return Pooled(arms, grid_G, tables, means_AG, draws_DAG, ends_A)


def _instance_shares(tables: Sequence[Mapping[str, Stratum]], draws: int, generator: np.random.Generator) -> Array:
    """Weight of each instance in every resample, (D, instances)."""
    if _seeds_repeat(tables):
        return np.full((draws, len(tables)), 1 / len(tables))
    return _weights(resamples(len(tables), draws, generator), len(tables))


def _seeds_repeat(tables: Sequence[Mapping[str, Stratum]]) -> bool:
    """True if the seeds' spread is known: every arm has several runs in every instance, or there is one instance."""
    return len(tables) == 1 or all(len(cell.rates_SGP) > 1 for table in tables for cell in table.values())


def _weights(chosen_DN: NDArray[np.int64], size: int) -> Array:
    """Weight of each of `size` rows in every resample, (D, size)."""
    weights_DN: Array = np.stack([np.bincount(row, minlength=size) for row in chosen_DN]) / chosen_DN.shape[1]
    return weights_DN


def areas(pooled: Pooled, horizon: float) -> tuple[Array, Array]:
    """Areas under the mean curves up to an amount, divided by it: observed, (A,), and in every resample, (D, A)."""
    weights_G = area_weights(pooled.grid_G, horizon)
    observed_A: Array = pooled.means_AG @ weights_G
    drawn_DA: Array = pooled.draws_DAG @ weights_G
    return observed_A, drawn_DA


def area_weights(grid_G: Array, horizon: float) -> Array:
    """Contribution of each point of a curve to the area under it up to an amount, divided by that amount, (G,)."""
    x_N = np.append(grid_G[grid_G < horizon], horizon)
    # An area is linear in its curve: these are the areas under the curves that are 1 at one point of the grid.
    areas_G = [np.trapezoid(np.interp(x_N, grid_G, unit_G), x_N) for unit_G in np.eye(len(grid_G))]
    return np.array(areas_G) / horizon


def area_gain(pooled: Pooled, arm: str, reference: str, horizon: float) -> CrossedMean:
    """The area under an arm's mean curve up to an amount minus the reference's, with its error."""
    weights_G = area_weights(pooled.grid_G, horizon)

    def areas_of(cell: Stratum) -> Array:
        areas_SP: Array = np.tensordot(cell.rates_SGP, weights_G, (1, 0))
        return areas_SP

    return mean_difference([(areas_of(table[arm]), areas_of(table[reference])) for table in pooled.strata])


def spent_until(pooled: Pooled, arm: str, targets_D: Array) -> Array:
    """Cost of an arm until its mean curve reaches a target: observed, then in every resample, (1 + D,).

    Infinite if the curve never reaches it.

    Args:
        targets_D: the target of the observed curve, then of every resample, (1 + D,).
    """
    crossings_D, reached_D = first_crossings(pooled.grid_G, _risen(pooled, arm), targets_D)
    return np.where(reached_D, crossings_D, np.inf)


def final_scores(pooled: Pooled, arm: str) -> Array:
    """Height of an arm's mean curve at the mean amount that its runs have spent: observed, then resampled.

    Slightly lower if the monotone curve is lower there, so that an arm always reaches its own end.
    """
    end = int(np.searchsorted(pooled.grid_G, pooled.ends_A[pooled.place(arm)]).clip(max=len(pooled.grid_G) - 1))
    lower_D: Array = np.minimum(_curves(pooled, arm)[:, end], _risen(pooled, arm)[:, end])
    return lower_D


def _curves(pooled: Pooled, arm: str) -> Array:
    """An arm's mean curve, observed, then in every resample, (1 + D, G)."""
    place = pooled.place(arm)
    curves_DG: Array = np.vstack([pooled.means_AG[place], pooled.draws_DAG[:, place]])
    return curves_DG


def _risen(pooled: Pooled, arm: str) -> Array:
    if arm not in pooled.risen:
        pooled.risen[arm] = fit_rising(_curves(pooled, arm))
    return pooled.risen[arm]


def ratio(pooled: Pooled, arm: str, baseline: str, target: float | None = None) -> PooledRatio | None:
    """An arm's cost until a target, divided by the baseline's.

    None if the baseline's mean curve never reaches the target, or starts there.

    Args:
        target: a score; by default the baseline's final score.
    """
    targets_D = final_scores(pooled, baseline) if target is None else np.full(1 + len(pooled.draws_DAG), target)
    beside_D = spent_until(pooled, baseline, targets_D)
    if not 0 < beside_D[0] < np.inf:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        logs_D = np.log(spent_until(pooled, arm, targets_D)) - np.log(beside_D)
    logs_D[np.isnan(logs_D)] = 0.0  # neither reaches the target, or both start there: no difference
    observed, drawn_D = logs_D[0], logs_D[1:]
    low, high = np.quantile(drawn_D, [0.025, 0.975], method="inverted_cdf")
    value, low, high = (None if np.isposinf(bound) else float(np.exp(bound)) for bound in (observed, low, high))
    p = max(_p_value(drawn_D), _least_p(pooled, arm, baseline))
    return PooledRatio(value, low, high, float(np.isposinf(drawn_D).mean()), p)


def _p_value(drawn_D: Array) -> float:
    """Two-sided p-value for 0, from resamples of a number: twice the smaller share on either side of 0."""
    beyond = min(int((drawn_D <= 0).sum()), int((drawn_D >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(drawn_D) + 1))


def _least_p(pooled: Pooled, *pair: str) -> float:
    """The smallest two-sided p-value that two arms' runs can give: of a permutation test with one arm always ahead.

    Resamples of few runs never go beyond the observed ones. Two runs ahead of two others are ahead in every resample,
    but also in one of three comparisons of equal arms.
    """
    tables = [{arm: table[arm] for arm in pair} for table in pooled.strata]
    if not _seeds_repeat(tables):
        return min(1.0, 2 * 0.5 ** len(tables))
    runs = [[len(cell.rates_SGP) for cell in table.values()] for table in tables]
    ways: int = math.prod(math.comb(left + right, left) for left, right in runs)
    return min(1.0, 2 / ways)


def best_shares(drawn_DA: Array) -> Array:
    """Share of resamples in which each arm has the highest number, (A,); ties are divided."""
    best_DA = drawn_DA == drawn_DA.max(axis=1, keepdims=True)
    shares_A: Array = (best_DA / best_DA.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares_A
