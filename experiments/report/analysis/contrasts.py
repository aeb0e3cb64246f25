"""Compares pairs of arms where they have spent equally: the differences, their errors, and which are clear."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.curves import common_reach, evaluated, problems_told_apart, scores_at
from halfway.experiments.report.analysis.design import Contrast
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import (
    Array,
    CrossedMean,
    crossed_difference,
    crossed_mean,
)
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.statistics.multiple import LEVEL, holm, smallest_shown


@dataclass(frozen=True, slots=True)
class ContrastRow:
    """Held-out pass@1 of one arm minus another's.

    Attributes:
        difference: the difference, with a 95 % interval for this pair alone.
        seeds: number of shared seeds if paired, otherwise the number of seeds of the arm that has fewer.
        paired: whether differences are taken within each seed, over the seeds that both arms have.
        p: two-sided p-value of this contrast alone; None with one seed.
        adjusted_p: p after Holm's adjustment within the family; None with one seed.
        clear: whether adjusted_p is below .05.
        smallest_shown: the true difference that would be clear four times out of five, given this row's standard error;
            None if that error is unknown or zero.
    """

    arm: str
    reference: str
    difference: Estimate
    seeds: int
    paired: bool
    p: float | None
    adjusted_p: float | None
    clear: bool
    smallest_shown: float | None


def contrast_rows(
    runs_of: Mapping[str, Sequence[Run]],
    contrasts: Sequence[Contrast],
    axis: Axis,
    amount: float | None = None,
    instances: int = 1,
) -> list[ContrastRow]:
    """The contrasts between arms that have been evaluated, as one family for Holm's adjustment.

    Contrasts with an arm that has no curve yet are left out, but still count in the family.

    Args:
        runs_of: the runs of each arm.
        amount: the amount on the axis at which to compare; by default the largest that all runs have reached.
        instances: number of instances that the runs are from.
    """
    having = {arm: found for arm, runs in runs_of.items() if (found := evaluated(runs))}
    used = [run for runs in having.values() for run in runs]
    listed = [pair for pair in contrasts if pair.arm in having and pair.reference in having]
    if not listed:
        return []
    at = np.array([common_reach(used, axis) if amount is None else amount])
    apart = problems_told_apart(used, instances)
    tables = {arm: {run.seed: scores_at(run, axis, at, apart)[0] for run in runs} for arm, runs in having.items()}
    rows = [_row(pair, tables[pair.arm], tables[pair.reference], len(contrasts)) for pair in listed]
    adjusted = holm([row.p for row in rows], len(contrasts))
    return [
        replace(row, adjusted_p=p, clear=p is not None and p < LEVEL) for row, p in zip(rows, adjusted, strict=True)
    ]


def _row(pair: Contrast, arm: Mapping[int, Array], reference: Mapping[int, Array], family: int) -> ContrastRow:
    shared = sorted(arm.keys() & reference.keys())
    paired = len(shared) >= 2 or len(arm) == len(reference) == len(shared)
    found = difference(arm, reference, shared if paired else None)
    seeds = len(shared) if paired else min(len(arm), len(reference))
    known = seeds > 1 and found.stderr is not None
    return ContrastRow(
        arm=pair.arm,
        reference=pair.reference,
        difference=found.estimate,
        seeds=seeds,
        paired=paired,
        p=found.p if known else None,
        adjusted_p=None,
        clear=False,
        smallest_shown=smallest_shown(found.stderr, found.dof, family) if known and found.stderr else None,
    )


def difference(arm: Mapping[int, Array], reference: Mapping[int, Array], shared: Sequence[int] | None) -> CrossedMean:
    """The mean difference between two arms' pass rates, with its error over seeds and problems.

    Args:
        arm, reference: pass rates of the problems, (problems,), by seed.
        shared: the seeds within which differences are taken; None compares the means of arms with seeds of their own.
    """
    if shared is not None:
        return crossed_mean(np.stack([arm[seed] - reference[seed] for seed in shared]))
    return crossed_difference(np.stack(list(arm.values())), np.stack(list(reference.values())))
