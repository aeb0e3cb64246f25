"""An item response model: the pass rate of a problem as a function of the share of its solution in the hint."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# The grid of the fit. Its weak priors: half of the rollouts pass with about two fifths of the solution, and the rate
# rises mostly within a quarter of it.
_SLOPES = np.geomspace(2.0, 64.0, 16)
_LOCATIONS = np.linspace(-1.0, 2.0, 61)
_GUESSES = np.array([0.0, 0.05, 0.1, 0.2])
_SLOPE_M, _LOCATION_M, _GUESS_M = (axis.ravel() for axis in np.meshgrid(_SLOPES, _LOCATIONS, _GUESSES, indexing="ij"))
_LOG_PRIOR_M = -0.5 * (np.log(_SLOPE_M / 8.0) / 0.8) ** 2 - 0.5 * ((_LOCATION_M - 0.4) / 0.35) ** 2 - 20.0 * _GUESS_M


REMEMBERED = 8
"""Trials kept per problem: if each trial halves the weight of those before, older ones hardly count."""


class Trial(NamedTuple):
    """k of N rollouts passed with this share of the solution. Counts may be fractions: older trials weigh less."""

    share: float
    passed: float
    size: float


def response(share: ArrayLike, slope: ArrayLike, location: ArrayLike, guess: ArrayLike) -> Floats:
    """The three-parameter logistic curve c + (1 - c) / (1 + exp(-a (x - b))) (Birnbaum 1968), as in SEELE.

    Args:
        share: x, the share of the solution in the hint.
        slope, location, guess: a, b and c; c is the pass rate without any ability.
    """
    logit = np.asarray(slope) * (np.asarray(share) - np.asarray(location))
    curve: Floats = guess + (1 - np.asarray(guess)) * (1 + np.tanh(logit / 2)) / 2
    return curve


def discount_trials(trials: Sequence[Trial], forget: float) -> list[Trial]:
    """Weigh trials, oldest first: each has (1 - forget) times the weight of the next one."""
    ages = range(len(trials) - 1, -1, -1)
    weights = [(1 - forget) ** age for age in ages]
    return [Trial(t.share, t.passed * w, t.size * w) for t, w in zip(trials, weights, strict=True)]


def predict_rates(trials: Sequence[Trial], shares_S: ArrayLike) -> Floats:
    """Predict the pass rate at each share: the mean curve under the posterior on the grid.

    SEELE fits one curve to the rounds of a step. The posterior mean is as good with many rounds, and stays moderate
    with one round or none.
    """
    log_M = _LOG_PRIOR_M.copy()
    for share, passed, size in trials:
        rate_M = np.clip(response(share, _SLOPE_M, _LOCATION_M, _GUESS_M), 1e-9, 1 - 1e-9)
        log_M += passed * np.log(rate_M) + (size - passed) * np.log1p(-rate_M)
    weight_M = np.exp(log_M - log_M.max())
    weight_M /= weight_M.sum()
    rates_SM = response(np.asarray(shares_S, np.float64)[:, None], _SLOPE_M, _LOCATION_M, _GUESS_M)
    rates_S: Floats = rates_SM @ weight_M
    return rates_S


def choose_share(trials: Sequence[Trial], shares_S: ArrayLike, target: float, forget: float = 0.0) -> int:
    """Index of the share with the believed pass rate nearest the target: the smallest such share, or the first share
    without trials."""
    if not trials:
        return 0
    return int(np.abs(predict_rates(discount_trials(trials, forget), shares_S) - target).argmin())
