"""Compares arms at equal cost on one axis: scores, planned contrasts, their errors and significance."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from halfway.experiments.report.analysis.axes import ROLLOUTS, STEPS, TOKENS, Axis
from halfway.experiments.report.analysis.curves import common_reach, keep_evaluated, problems_known, scores_at
from halfway.experiments.report.analysis.plan import Contrast, Design
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import Array, crossed_mean, mean_difference
from halfway.experiments.report.statistics.holm import LEVEL, holm, smallest_shown
from halfway.experiments.report.statistics.intervals import Estimate, unless_few

Tables = Mapping[str, Mapping[int, Array]]
"""Pass rates of the problems, (problems,), by arm and seed."""


@dataclass(frozen=True, slots=True)
class ContrastRow:
    """Held-out pass@1 of one arm minus another's.

    Attributes:
        difference: the difference, with a 95 % interval for this pair alone; up to three seeds have none.
        seeds: number of seeds of the arm that has fewer.
        p: two-sided p-value of this contrast alone; None with one seed.
        adjusted_p: p after Holm's adjustment within the family; None with one seed.
        clear: whether adjusted_p is below 0.05.
        smallest_shown: the true difference that would be significant four times out of five, given this row's standard
            error; None if that error is unknown or zero, or if it takes a difference of 1 or more.
    """

    arm: str
    reference: str
    difference: Estimate
    seeds: int
    p: float | None
    adjusted_p: float | None
    clear: bool
    smallest_shown: float | None


@dataclass(frozen=True, slots=True)
class MatchedRow:
    """An arm's held-out pass@1 at the amount that all arms have reached, linear between evaluations.

    The interval is over seeds and, if passes were recorded by problem, over problems; up to three seeds have none.
    """

    arm: str
    seeds: int
    pass_at_1: Estimate


@dataclass(frozen=True, slots=True)
class Matched:
    """All arms at one amount of one kind of cost.

    Attributes:
        axis: the kind of cost.
        amount: the largest amount that every run has reached.
        headline: whether the comparison is judged at equal cost on this axis.
        problems: number of held-out problems with recorded passes; 0 = intervals are over seeds only.
        contrasts: the planned contrasts between arms with curves, one family for Holm's adjustment; contrasts left out
            still count in the family.
    """

    axis: Axis
    amount: float
    headline: bool
    problems: int
    rows: tuple[MatchedRow, ...]
    contrasts: tuple[ContrastRow, ...]


def match(runs_of: Mapping[str, Sequence[Run]], design: Design, same: Collection[str] = ()) -> list[Matched]:
    """Compare the arms with curves at equal amounts: of the headline, steps, rollouts, tokens, and the costs.

    Empty if no arm has a curve.

    Args:
        same: arms without contrasts, since they equal another one.
    """
    having = {arm: found for arm, runs in runs_of.items() if (found := keep_evaluated(runs))}
    return [match_on(having, axis, design, same) for axis in design.axes(STEPS, ROLLOUTS, TOKENS)] if having else []


def match_on(runs_of: Mapping[str, Sequence[Run]], axis: Axis, design: Design, same: Collection[str] = ()) -> Matched:
    """Compare arms with curves at the largest amount on the axis that every run has reached."""
    used = [run for runs in runs_of.values() for run in runs]
    amount, known = common_reach(used, axis), problems_known(used, design.instances)
    tables = {
        arm: {run.seed: scores_at(run, axis, np.array([amount]), known)[0] for run in runs}
        for arm, runs in runs_of.items()
    }
    return Matched(
        axis=axis,
        amount=amount,
        headline=axis == design.headline,
        problems=len(used[0].evaluations[0].passed) if known else 0,
        rows=tuple(
            MatchedRow(
                arm, len(seeds), unless_few(crossed_mean(np.stack(list(seeds.values()))).estimate.as_rate, len(seeds))
            )
            for arm, seeds in tables.items()
        ),
        contrasts=tuple(
            contrast_rows(
                {arm: table for arm, table in tables.items() if arm not in same}, design.contrasts, design.instances
            )
        ),
    )


def contrast_rows(tables: Tables, contrasts: Sequence[Contrast], instances: int = 1) -> list[ContrastRow]:
    """Compute the contrasts between the arms of the tables, adjusted for all planned contrasts."""
    listed = [pair for pair in contrasts if pair.arm in tables and pair.reference in tables]
    rows = [_row(pair, tables, len(contrasts), instances) for pair in listed]
    adjusted = holm([row.p for row in rows], len(contrasts))
    return [
        replace(row, adjusted_p=p, clear=p is not None and p < LEVEL) for row, p in zip(rows, adjusted, strict=True)
    ]


def _row(pair: Contrast, tables: Tables, family: int, instances: int) -> ContrastRow:
    arms = tables[pair.arm], tables[pair.reference]
    places = [[_stacked(arm, place, instances) for arm in arms] for place in range(instances)]
    common = [(left, right) for left, right in places if left is not None and right is not None]
    left, right = (_stacked(arm, 0, 1) for arm in arms)
    assert left is not None and right is not None, "an arm of the tables has a run"
    found = mean_difference(common or [(left, right)])
    seeds = min(map(len, arms))
    known = seeds > 1 and found.stderr is not None
    least = smallest_shown(found.stderr, found.dof, family) if known and found.stderr else None
    return ContrastRow(
        arm=pair.arm,
        reference=pair.reference,
        difference=unless_few(found.estimate, seeds),
        seeds=seeds,
        p=found.p if known else None,
        adjusted_p=None,
        clear=False,
        smallest_shown=None if least is None or least >= 1 else least,
    )


def _stacked(arm: Mapping[int, Array], place: int, instances: int) -> Array | None:
    """The rates of an arm's runs in one instance, (seeds, problems); None without any."""
    found = [rates for seed, rates in arm.items() if seed % instances == place]
    return np.stack(found) if found else None
