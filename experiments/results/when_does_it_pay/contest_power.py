"""Simulates planned contests, and counts how often they detect their effect.

A regime is described by measured runs: the mean curve of its baseline, and the deviations of single runs from the
averages of their arm and instance. A simulated contest draws every run as a mean curve plus one of these deviations. An
arm that saves a share of the rollouts runs through the baseline's mean curve that much faster. Simulated contests end
that much earlier, to stay on the measured curve. Instances do not differ here, since contests compare arms within them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.random import Generator

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.curves import common_reach, scores_at
from halfway.experiments.report.analysis.pooled import POINTS, Array, Pooled, Stratum, area_gain, pool_tables, ratio
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import CrossedMean
from halfway.experiments.report.statistics.holm import LEVEL

BASELINE, ARM = "baseline", "arm"


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and spread of the runs of a regime.

    Attributes:
        grid_G: amounts, from 0 to the budget.
        mean_G: the baseline's mean curve.
        deviations_NG: deviations of single runs from arm and instance, scaled to the average of new runs.
    """

    grid_G: Array
    mean_G: Array
    deviations_NG: Array


@dataclass(frozen=True, slots=True)
class Design:
    """The size of a planned contest.

    Attributes:
        runs: number of runs of each arm, divided evenly among the instances.
        contrasts: number of contrasts in the family that Holm's adjustment covers.
    """

    runs: int
    instances: int
    contrasts: int

    @property
    def runs_each(self) -> int:
        return self.runs // self.instances


def spread_of(runs_of: Mapping[str, Sequence[Run]], baseline: str, instances: int, axis: Axis) -> Spread:
    """Describe a regime by its runs, with one learning rate per arm.

    Deviations are residuals of a model in which every arm and every instance adds its own curve, so one run of each arm
    in each instance is enough.

    Args:
        runs_of: runs by arm; seed s belongs to instance s modulo `instances`.
    """
    runs = [(arm, run) for arm, found in runs_of.items() for run in found]
    grid_G = np.linspace(0.0, common_reach([run for _, run in runs], axis), POINTS + 1)
    curves_NG = np.stack([scores_at(run, axis, grid_G, known=False)[:, 0] for _, run in runs])
    columns = [[arm == name for arm, _ in runs] for name in runs_of]
    columns += [[run.seed % instances == place for _, run in runs] for place in range(instances)]
    effects_NK = np.array(columns, np.float64).T
    free = len(runs) - int(np.linalg.matrix_rank(effects_NK))
    assert free > 0, "there are no more runs than arms and instances, so nothing is known about their spread"
    fitted_NG = effects_NK @ np.linalg.lstsq(effects_NK, curves_NG)[0]
    own = [arm == baseline for arm, _ in runs]
    return Spread(grid_G, curves_NG[own].mean(axis=0), (curves_NG - fitted_NG) * np.sqrt(len(runs) / free))


def contest(
    spread: Spread, design: Design, savings: Mapping[str, float], generator: Generator, draws: int = 2
) -> Pooled:
    """Simulate one contest.

    Args:
        savings: share of the rollouts saved by each arm; the baseline saves 0.
        draws: number of resamples, only for ratios.
    """
    shortest = 1 - max(savings.values())
    grid_G = spread.grid_G * shortest
    tables = tuple(
        {arm: _stratum(spread, grid_G, saving, design.runs_each, generator) for arm, saving in savings.items()}
        for _ in range(design.instances)
    )
    return pool_tables(tables, grid_G, draws)


def _stratum(spread: Spread, grid_G: Array, saving: float, runs: int, generator: Generator) -> Stratum:
    mean_G = np.interp(grid_G / (1 - saving), spread.grid_G, spread.mean_G)
    chosen = spread.deviations_NG[generator.integers(len(spread.deviations_NG), size=runs)]
    rates_SG = mean_G + [np.interp(grid_G, spread.grid_G, each) for each in chosen]
    return Stratum(rates_SG[:, :, None], float(grid_G[-1]))


def gain_in(pooled: Pooled, arm: str) -> CrossedMean:
    """An arm's gain in area over the baseline in a simulated contest."""
    return area_gain(pooled, arm, BASELINE, float(pooled.grid_G[-1]))


def clear(gain: CrossedMean, design: Design) -> bool:
    """True if a gain is significant at the hardest step of Holm's adjustment."""
    return gain.p is not None and gain.p < LEVEL / design.contrasts


def power_of_area(
    spread: Spread,
    design: Design,
    saving: float,
    contests: int,
    seed: int = 0,
    regimes: int = 1,
    mean: Callable[[Sequence[CrossedMean]], CrossedMean] = itemgetter(0),
) -> float:
    """The share of simulated contests whose area shows that an arm saves rollouts.

    Args:
        regimes: number of regimes with this spread in every contest.
        mean: the mean effect over the regimes.
    """
    generator = np.random.default_rng(seed)
    shown = 0
    for _ in range(contests):
        pooled = [contest(spread, design, {BASELINE: 0.0, ARM: saving}, generator) for _ in range(regimes)]
        gain = mean([gain_in(each, ARM) for each in pooled])
        shown += gain.mean > 0 and clear(gain, design)
    return shown / contests


def power_of_ratio(
    spread: Spread, design: Design, saving: float, contests: int, draws: int = 400, seed: int = 0
) -> float:
    """The share of simulated contests in which the cost to the baseline's end shows that an arm saves rollouts."""
    generator = np.random.default_rng(seed)
    shown = 0
    for _ in range(contests):
        found = ratio(contest(spread, design, {BASELINE: 0.0, ARM: saving}, generator, draws), ARM, BASELINE)
        below = found is not None and found.value is not None and found.value < 1
        shown += below and found is not None and found.p is not None and found.p < LEVEL / design.contrasts
    return shown / contests


def false_alarms(spread: Spread, design: Design, contests: int, seed: int = 1) -> float:
    """The share of simulated contests in which the area of any planned contrast between equal arms is significant."""
    generator = np.random.default_rng(seed)
    arms = [f"{ARM} {number}" for number in range(design.contrasts)]
    alarms = 0
    for _ in range(contests):
        pooled = contest(spread, design, dict.fromkeys([BASELINE, *arms], 0.0), generator)
        alarms += any(clear(gain_in(pooled, arm), design) for arm in arms)
    return alarms / contests
