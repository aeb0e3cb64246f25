"""Series over the steps of runs, summed or averaged over seeds, and smoothed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.prefix import ParentCount
from halfway.experiments.report.prefix_metrics import reported
from halfway.experiments.report.records import Run

Array = NDArray[np.float64]


def summed_counts(runs: Sequence[Run], kind: str) -> Array | None:
    """Histogram of k a step, (steps, N + 1), of the scored groups of one origin, summed over seeds; None without any.
    From the decision log: the histograms of the steps once counted generated groups as fresh groups."""
    groups = [group for run in runs for group in run.groups if group.origin == kind and group.scored]
    if not groups:
        return None
    total = np.zeros((max(run.num_steps for run in runs), 1 + max(group.size for group in groups)))
    for group in groups:
        total[group.step, group.k] += 1
    return total


def child_series(runs: Sequence[Run], parent: ParentCount) -> tuple[Array, Array, Array]:
    """A value per step, summed over seeds: child groups, the sum of their pass rates, and how many are degenerate."""
    series = np.zeros((3, max(run.num_steps for run in runs)))
    for run in runs:
        for group in run.groups:
            if group.prefixed and group.parent_count == parent and group.scored and group.step < series.shape[1]:
                series[:, group.step] += (1, group.pass_rate, group.degenerate)
    return series[0], series[1], series[2]


def reported_series(run: Run, quantity: str, parent: ParentCount) -> tuple[list[int], list[float]]:
    """Steps and values of what a controller reports about these parents."""
    points = [
        (step.step, value) for step in run.steps if (value := reported(step.controllers, quantity, parent)) is not None
    ]
    return [x for x, _ in points], [y for _, y in points]


def response_lengths(run: Run) -> Array:
    """Generated tokens per rollout, one value per step."""
    rollouts = np.diff([step.rollouts for step in run.steps], prepend=0)
    tokens = np.diff([step.tokens for step in run.steps], prepend=0)
    return divide(tokens, rollouts)


def smoothed_ratio(numerators: Array, denominators: Array) -> Array:
    """Sum over sum in a centred window of about a tenth of the run; not a number where nothing was counted."""
    window = np.ones(2 * max(1, round(len(numerators) / 20)) + 1)
    top, bottom = (np.convolve(values, window, mode="full") for values in (numerators, denominators))
    cut = slice(len(window) // 2, len(window) // 2 + len(numerators))
    return divide(top[cut], bottom[cut])


def smoothed_shares(counts: Array) -> Array:
    """Shares of each column in a centred window; zero where nothing was counted."""
    total = counts.sum(axis=1)
    return np.nan_to_num(np.stack([smoothed_ratio(column, total) for column in counts.T], axis=1))


def ragged_mean(series: Sequence[Array]) -> Array:
    """Mean over seeds at each step, of those that got there."""
    stacked = np.full((len(series), max(map(len, series))), np.nan)
    for row, values in zip(stacked, series, strict=True):
        row[: len(values)] = values
    counted = np.isfinite(stacked).sum(axis=0)
    return divide(np.nansum(stacked, axis=0), counted)


def divide(numerators: Array, denominators: Array) -> Array:
    """Quotients; not a number where the denominator is zero, or was meant to be before rounding."""
    known = np.asarray(denominators) > 1e-9
    return np.where(known, numerators / np.where(known, denominators, 1.0), np.nan)
