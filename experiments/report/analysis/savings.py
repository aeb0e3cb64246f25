"""Compares every arm's mean curve with the baseline's along each measure of cost: areas, costs to a target, chances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from halfway.experiments.report.analysis.axes import ROLLOUTS, TOKENS, Axis
from halfway.experiments.report.analysis.curves import common_reach, keep_evaluated
from halfway.experiments.report.analysis.plan import Design
from halfway.experiments.report.analysis.pooled import (
    DRAWS,
    Pooled,
    PooledRatio,
    area_gain,
    areas,
    best_shares,
    by_instance,
    final_scores,
    pool,
    ratio,
    spent_until,
)
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.holm import LEVEL, holm
from halfway.experiments.report.statistics.intervals import FEW, Estimate, unless_few

END = "end"
"""The goal of reaching the baseline's final score; other goals are scores fixed in advance, as text."""


@dataclass(frozen=True, slots=True)
class SavingRow:
    """One arm along one measure of cost. One seed has no p-values; up to three have no intervals or chances.

    Attributes:
        area: mean height of the mean curve up to the amount that all runs have spent.
        gain: the area minus the baseline's, with a 95 % interval; None for the baseline, or without a baseline.
        p, adjusted_p: two-sided p-value for a true gain of 0; and after Holm's adjustment over the arms.
        best: share of the resamples in which the arm has the largest area, among the arms with four seeds or more.
        ratios: by goal, the arm's cost as a multiple of the baseline's; None if the baseline never reaches the goal, or
            starts there. Empty for the baseline.
    """

    arm: str
    seeds: int
    area: float
    gain: Estimate | None = None
    p: float | None = None
    adjusted_p: float | None = None
    best: float | None = None
    ratios: Mapping[str, PooledRatio | None] = field(default_factory=dict)

    @property
    def clear(self) -> bool:
        """True if the area differs from the baseline's after the adjustment."""
        return self.adjusted_p is not None and self.adjusted_p < LEVEL


@dataclass(frozen=True, slots=True)
class Goal:
    """A score, and the cost until the baseline's mean curve reaches it; None if it never does."""

    score: float
    spent: float | None


@dataclass(frozen=True, slots=True)
class Savings:
    """The mean curves of all arms along one measure of cost.

    Attributes:
        amount: the largest amount that every run has spent, the end of areas.
        goals: the baseline's final score, and the targets fixed in advance; empty if the baseline has no curve.
    """

    axis: Axis
    amount: float
    baseline: str
    goals: Mapping[str, Goal]
    rows: tuple[SavingRow, ...]


def savings(runs_of: Mapping[str, Sequence[Run]], design: Design, draws: int = DRAWS) -> list[Savings]:
    """Compare the arms with curves along each measure of cost; empty if no arm has a curve.

    Args:
        draws: number of resamples.
    """
    having = {arm: found for arm, runs in runs_of.items() if (found := keep_evaluated(runs))}
    used = [run for runs in having.values() for run in runs]
    spent = [(axis, common_reach(used, axis)) for axis in design.axes(ROLLOUTS, TOKENS)] if used else []
    return [_along(having, axis, amount, design, draws) for axis, amount in spent if amount > 0]


def _along(runs_of: Mapping[str, Sequence[Run]], axis: Axis, amount: float, design: Design, draws: int) -> Savings:
    pooled, baseline = pool(by_instance(runs_of, design.instances), axis, draws), design.baseline
    found = areas(pooled, amount)
    several = [pooled.place(arm) for arm, runs in runs_of.items() if len(runs) > FEW]
    best = dict(zip(several, best_shares(found[1][:, several]).tolist(), strict=True)) if len(several) > 1 else {}
    rows = {
        arm: SavingRow(arm, len(runs), float(area), best=best.get(i))
        for i, ((arm, runs), area) in enumerate(zip(runs_of.items(), found[0], strict=True))
    }
    if baseline not in rows:
        return Savings(axis, amount, baseline, {}, tuple(rows.values()))
    others = _adjusted(
        [_beside(row, rows[baseline], pooled, amount, design.targets) for row in rows.values() if row.arm != baseline]
    )
    return Savings(
        axis, amount, baseline, _goals(pooled, design), tuple({**rows, **{row.arm: row for row in others}}.values())
    )


def _goals(pooled: Pooled, design: Design) -> dict[str, Goal]:
    goals = {}
    ends_D = final_scores(pooled, design.baseline)
    for name, score in {END: float(ends_D[0]), **{f"{target:g}": target for target in design.targets}}.items():
        spent = float(spent_until(pooled, design.baseline, np.full_like(ends_D, score))[0])
        goals[name] = Goal(score, None if np.isinf(spent) else spent)
    return goals


def _beside(row: SavingRow, baseline: SavingRow, pooled: Pooled, amount: float, targets: Sequence[float]) -> SavingRow:
    """Add the comparisons with the baseline to a row; no intervals or p-values if the seeds' spread is unknown."""
    gain = area_gain(pooled, row.arm, baseline.arm, amount)
    ratios = {END: ratio(pooled, row.arm, baseline.arm)}
    ratios |= {f"{target:g}": ratio(pooled, row.arm, baseline.arm, target) for target in targets}
    runs = [len(table[arm].rates_SGP) for table in pooled.strata for arm in (row.arm, baseline.arm)]
    if len(pooled.strata) > 1 or min(runs) > 1:
        seeds = min(row.seeds, baseline.seeds)
        if seeds <= FEW:
            ratios = {goal: each and replace(each, low=None, high=None, never=None) for goal, each in ratios.items()}
        return replace(row, gain=unless_few(gain.estimate, seeds), p=gain.p, ratios=ratios)
    alone = {goal: each and PooledRatio(each.value) for goal, each in ratios.items()}
    return replace(row, gain=Estimate(gain.mean), ratios=alone)


def _adjusted(rows: Sequence[SavingRow]) -> list[SavingRow]:
    """Add Holm's adjustment over the arms to rows, once for the areas and once per goal."""
    goals = rows[0].ratios if rows else {}
    by_goal = {goal: holm([each.p if (each := row.ratios[goal]) else None for row in rows]) for goal in goals}
    gains = holm([row.p for row in rows])
    adjusted = []
    for i, row in enumerate(rows):
        ratios = {goal: each and replace(each, adjusted_p=by_goal[goal][i]) for goal, each in row.ratios.items()}
        adjusted.append(replace(row, adjusted_p=gains[i], ratios=ratios))
    return adjusted
