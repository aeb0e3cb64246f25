"""Computes series over the steps of runs, summed or averaged over seeds, and smoothed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.prefix import ParentCount
from halfway.experiments.report.analysis.starts import find_reported
from halfway.experiments.report.figures.charts import finite
from halfway.experiments.report.records import Run

Array = NDArray[np.float64]
MOST_POINTS = 200
MOST_COUNTS = 128
"""Most rollouts of a group whose pass counts a chart tells apart; pass counts of larger groups are scaled to these."""


def scale_count(passed: int, size: int, most: int = MOST_COUNTS) -> int:
    """A pass count of `size` rollouts as one of at most `most`. Only 0 becomes 0, and only `size` becomes `most`."""
    return passed if size <= most or passed <= 0 else min(max(1, passed * most // size), most - (passed < size))


def sum_counts(runs: Sequence[Run], kind: str) -> Array | None:
    """Histograms of k per step over the scored groups of one origin, over seeds, (steps, N + 1); see `scale_count`.

    None without such groups. Counted from the decision log, because the histograms in older step records count
    generated groups as fresh.
    """
    groups = [group for run in runs for group in run.groups if group.origin == kind and group.scored]
    if not groups:
        return None
    size = min(MOST_COUNTS, max(group.size for group in groups))
    total = np.zeros((max(run.num_steps for run in runs), 1 + size))
    for group in groups:
        if group.step < len(total):  # lines of steps.jsonl may be missing
            total[group.step, scale_count(group.k or 0, group.size)] += 1
    return total


def child_series(runs: Sequence[Run], parent: ParentCount) -> tuple[Array, Array, Array]:
    """Per step, summed over seeds: child groups, sum of their pass rates, and zero-variance child groups."""
    series = np.zeros((3, max(run.num_steps for run in runs)))
    for run in runs:
        for group in run.groups:
            if group.prefixed and group.parent_count == parent and group.scored and group.step < series.shape[1]:
                series[:, group.step] += (1, group.pass_rate, group.zero_variance)
    return series[0], series[1], series[2]


def report_series(run: Run, quantity: str, parent: ParentCount) -> list[tuple[int, float]]:
    """The values of a quantity that a controller reports for parents with this pass count, each after its step."""
    found = ((step.step, find_reported(step.controllers, quantity, parent)) for step in run.steps)
    return [(step, value) for step, value in found if value is not None]


def points(values_T: Array) -> list[dict[str, Any]]:
    """The finite values of a series as rows of a chart, at most about `MOST_POINTS` of them."""
    every = -(-len(values_T) // MOST_POINTS)
    return [
        {"step": step, "x": step, "y": finite(values_T[step])}
        for step in range(0, len(values_T), every or 1)
        if np.isfinite(values_T[step])
    ]


def smooth_ratio(numerators: Array, denominators: Array) -> Array:
    """Ratio of sums in a centred window of about a tenth of the run, (steps,); NaN if the denominator is zero."""
    window = np.ones(2 * max(1, round(len(numerators) / 20)) + 1)
    top, bottom = (np.convolve(values, window, mode="full") for values in (numerators, denominators))
    cut = slice(len(window) // 2, len(window) // 2 + len(numerators))
    return divide(top[cut], bottom[cut])


def smooth_shares(counts: Array) -> Array:
    """Share of each column of (steps, columns) counts in a centred window; zero without counts."""
    total = counts.sum(axis=1)
    return np.nan_to_num(np.stack([smooth_ratio(column, total) for column in counts.T], axis=1))


def ragged_mean(series: Sequence[Array]) -> Array:
    """Mean at each step over the seeds that reached it, (steps of the longest run,)."""
    stacked = np.full((len(series), max(map(len, series))), np.nan)
    for row, values in zip(stacked, series, strict=True):
        row[: len(values)] = values
    counted = np.isfinite(stacked).sum(axis=0)
    return divide(np.nansum(stacked, axis=0), counted)


def divide(numerators: Array, denominators: Array) -> Array:
    """Elementwise quotients; NaN where the denominator is zero up to rounding."""
    known = np.asarray(denominators) > 1e-9
    return np.where(known, numerators / np.where(known, denominators, 1.0), np.nan)
