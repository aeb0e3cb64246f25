"""Compares all arms where they have spent equally: in steps, rollouts, generated tokens, or a weighted cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from halfway.experiments.report.analysis.axes import ROLLOUTS, STEPS, TOKENS, Axis
from halfway.experiments.report.analysis.contrasts import ContrastRow, contrast_rows
from halfway.experiments.report.analysis.curves import common_reach, evaluated, problems_told_apart, scores_at
from halfway.experiments.report.analysis.design import Contrast, Design
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import Array, crossed_mean
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds


@dataclass(frozen=True, slots=True)
class MatchedRow:
    """An arm at the amount that all arms have reached, interpolated linearly between evaluations and between steps.

    Attributes:
        pass_at_1: held-out pass@1; the interval is over seeds and, if passes were recorded by problem, over problems.
        degenerate: among the groups scored up to that point, the share of which all rollouts passed or none did.
        trained: groups trained up to that point.
        steps, rollouts, tokens: spent up to that point, averaged over seeds.
    """

    arm: str
    seeds: int
    pass_at_1: Estimate
    degenerate: Estimate | None
    trained: Estimate
    steps: float
    rollouts: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Matched:
    """All arms at one amount of one kind of cost.

    Attributes:
        axis: the kind of cost.
        amount: the largest amount that every run has reached.
        headline: whether the comparison is judged at equal cost on this axis.
        problems: number of held-out problems whose passes were recorded one by one; 0 = intervals are over seeds only.
        contrasts: the planned contrasts, a family of its own in Holm's adjustment.
        pairs: every pair of arms, whatever was planned, as another family; the arm with the higher mean comes first.
            Empty except for the headline.
    """

    axis: Axis
    amount: float
    headline: bool
    problems: int
    rows: tuple[MatchedRow, ...]
    contrasts: tuple[ContrastRow, ...]
    pairs: tuple[ContrastRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals of one run after each step, (steps,) each: trained, scored, and degenerate scored groups."""

    run: Run
    trained: Array
    scored: Array
    degenerate: Array

    def spent(self, axis: Axis) -> Array:
        """What the run had spent after each step, (steps,)."""
        return np.array([axis.of(step) for step in self.run.steps], np.float64)

    def until(self, axis: Axis, amount: float, running: Array) -> float:
        """A running total at the point where `amount` was spent: linear within a step, from zero at the start."""
        return float(np.interp(amount, [0.0, *self.spent(axis)], [0.0, *running]))

    def degenerate_share(self, axis: Axis, amount: float) -> float | None:
        """Share of degenerate groups among those scored until `amount` was spent; None if none was scored."""
        scored = self.until(axis, amount, self.scored)
        return self.until(axis, amount, self.degenerate) / scored if scored > 0 else None


def run_totals(run: Run) -> Totals:
    """Count a run's groups step by step."""
    scored, degenerate = np.zeros(run.num_steps), np.zeros(run.num_steps)
    for group in run.groups:
        if group.scored:
            scored[group.step] += 1
            degenerate[group.step] += group.degenerate
    trained = np.array([step.groups.get("trained", 0) for step in run.steps], np.float64)
    return Totals(run, np.cumsum(trained), np.cumsum(scored), np.cumsum(degenerate))


def matched_axes(design: Design) -> list[Axis]:
    """The axes on which arms are compared: the headline first, then steps, rollouts and tokens, then costs."""
    axes = [design.headline, STEPS, ROLLOUTS, TOKENS, *design.costs]
    return [axis for i, axis in enumerate(axes) if axis not in axes[:i]]


def match(runs_of: Mapping[str, Sequence[Run]], design: Design) -> list[Matched]:
    """Compare the arms that have curves at equal amounts on each axis; empty if no arm has a curve."""
    having = {arm: found for arm, runs in runs_of.items() if (found := evaluated(runs))}
    if not having:
        return []
    totals_of = {arm: list(map(run_totals, runs)) for arm, runs in having.items()}
    return [_match(having, totals_of, axis, design) for axis in matched_axes(design)]


def _match(
    runs_of: Mapping[str, Sequence[Run]], totals_of: Mapping[str, Sequence[Totals]], axis: Axis, design: Design
) -> Matched:
    used = [run for runs in runs_of.values() for run in runs]
    amount, apart = common_reach(used, axis), problems_told_apart(used, design.instances)
    rows = []
    for arm, runs in runs_of.items():
        scores_SP = np.stack([scores_at(run, axis, np.array([amount]), apart)[0] for run in runs])
        rows.append(_row(arm, totals_of[arm], axis, amount, scores_SP))
    return Matched(
        axis=axis,
        amount=amount,
        headline=axis == design.headline,
        problems=len(used[0].evaluations[0].passed) if apart else 0,
        rows=tuple(rows),
        contrasts=tuple(contrast_rows(runs_of, design.contrasts, axis, amount, design.instances)),
        pairs=tuple(contrast_rows(runs_of, _every_pair(rows), axis, amount, design.instances))
        if axis == design.headline
        else (),
    )


def _every_pair(rows: Sequence[MatchedRow]) -> list[Contrast]:
    ranked = sorted(rows, key=lambda row: -row.pass_at_1.value)
    return [Contrast(higher.arm, lower.arm) for higher, lower in combinations(ranked, 2)]


def _row(arm: str, totals: Sequence[Totals], axis: Axis, amount: float, scores_SP: Array) -> MatchedRow:
    shares = [share for own in totals if (share := own.degenerate_share(axis, amount)) is not None]
    steps, rollouts, tokens = (
        fmean(own.until(axis, amount, own.spent(unit)) for own in totals) for unit in (STEPS, ROLLOUTS, TOKENS)
    )
    return MatchedRow(
        arm=arm,
        seeds=len(totals),
        pass_at_1=crossed_mean(scores_SP).estimate,
        degenerate=over_seeds(shares) if shares else None,
        trained=over_seeds([own.until(axis, amount, own.trained) for own in totals]),
        steps=steps,
        rollouts=rollouts,
        tokens=tokens,
    )
