"""Held-out scores along an axis of cost: interpolated between evaluations, made monotone, searched for a target."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.records import EvaluationRecord, Run

Array = NDArray[np.float64]
Booleans = NDArray[np.bool_]

ROUNDING = 1e-9
"""Scores that differ by less are equal, so that rounding does not separate runs with equal passes."""


def keep_evaluated(runs: Sequence[Run]) -> list[Run]:
    """Select the runs that have at least two evaluations, and thus a curve."""
    return [run for run in runs if len(run.evaluations) > 1]


def common_reach(runs: Sequence[Run], axis: Axis) -> float:
    """The largest amount that every run has spent by its last evaluation."""
    return min(axis.of(run.evaluations[-1]) for run in runs)


def problems_known(runs: Sequence[Run], instances: int = 1) -> bool:
    """True if every evaluation records passes by problem, over the same problems.

    Args:
        instances: number of instances of the runs; each has its own held-out problems.
    """
    return (
        instances == 1
        and len({len(evaluation.passed) for run in runs for evaluation in run.evaluations} | {0}) == 2
        and all(evaluation.passed for run in runs for evaluation in run.evaluations)
    )


def amounts(run: Run, axis: Axis) -> Array:
    """Cost of the run at each of its evaluations, (evaluations,)."""
    return np.array([axis.of(evaluation) for evaluation in run.evaluations], np.float64)


def scores(run: Run, known: bool) -> Array:
    """Pass rates, (evaluations, problems); if `known` is False, a single column with the mean over problems."""
    return np.array([_rates(evaluation, known) for evaluation in run.evaluations], np.float64)


def _rates(evaluation: EvaluationRecord, known: bool) -> Array:
    if not known:
        return np.array([evaluation.pass_at_1])
    return np.array(evaluation.passed, np.float64) / evaluation.samples


def scores_at(run: Run, axis: Axis, amounts_G: Array, known: bool) -> Array:
    """Pass rates at these costs, (G, problems): linear between evaluations, constant after the last."""
    x_E, y_EP = amounts(run, axis), scores(run, known)
    right_G = np.clip(np.searchsorted(x_E, amounts_G), 1, len(x_E) - 1)
    width_G = x_E[right_G] - x_E[right_G - 1]
    along_G = (amounts_G - x_E[right_G - 1]) / np.where(width_G > 0, width_G, 1.0)
    share_GP = np.where(width_G > 0, np.clip(along_G, 0, 1), 1.0)[:, None]
    rates_GP: Array = (1 - share_GP) * y_EP[right_G - 1] + share_GP * y_EP[right_G]
    return rates_GP


def fit_rising(scores_DE: Array) -> Array:
    """Isotonic regression of each row: the curve that never falls and is nearest in least squares."""
    from scipy.optimize import isotonic_regression

    return np.stack([isotonic_regression(row_E).x for row_E in scores_DE])


def first_crossings(amounts_E: Array, rising_DE: Array, targets_D: Array) -> tuple[Array, Booleans]:
    """Find where each rising, piecewise linear curve first reaches its target, up to `ROUNDING`.

    Returns:
        the amounts, (D,), the last amount if the target is never reached; and whether it is reached, (D,).
    """
    below = (rising_DE < targets_D[:, None] - ROUNDING).sum(axis=1)
    reached = below < rising_DE.shape[1]
    right = np.clip(below, 1, rising_DE.shape[1] - 1)
    rows = np.arange(len(rising_DE))
    low, high = rising_DE[rows, right - 1], rising_DE[rows, right]
    share = np.clip((targets_D - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    found = amounts_E[right - 1] + share * (amounts_E[right] - amounts_E[right - 1])
    found = np.where(below == 0, amounts_E[0], found)
    return np.where(reached, found, amounts_E[-1]), reached
