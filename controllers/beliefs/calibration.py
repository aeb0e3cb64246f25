"""Calibrates a probe's fixed predictions of pass rates by the outcomes of the changing solver."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from halfway.controllers.beliefs.forest import Floats
from halfway.controllers.beliefs.logit_normal import POINTS, WEIGHTS, sigmoid
from halfway.curriculum import Problem, UserError, require

RATE = "probed_rate"
"""Problem feature with the probe's prediction of the pass rate."""

REFERENCE = "probed_by"
"""Problem feature with the name of the reference model whose activations the probe read."""

EDGE = 1e-3  # smallest distance of a guess from 0 and 1
SLOPE_DOUBT = 0.5  # the slope's share of the offset's standard deviation


class Residual(NamedTuple):
    """A normal belief about a problem's distance from the line, in logits, based on its own outcomes."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A Gaussian belief about the line from a probe's guess to the solver's current pass rate, both as logits.

    Attributes:
        mean_2: offset and slope; (0, 1) = the guess is right.
        covariance_22: covariance of offset and slope.
    """

    mean_2: Floats
    covariance_22: Floats

    def logits(self, guesses_P: Floats) -> Floats:
        """Predict the log-odds of pass rates from guesses as log-odds."""
        logits_P: Floats = self.mean_2[0] + self.mean_2[1] * guesses_P
        return logits_P

    def drift(self, variance: float) -> "Line":
        """The belief one step later: the variance of the offset grows by `variance`, that of the slope by a quarter."""
        return replace(self, covariance_22=self.covariance_22 + np.diag([variance, variance * SLOPE_DOUBT**2]))

    def chance_of_none(self, guess: float, own: Residual, size: int) -> float:
        """Probability that no rollout of a group passes."""
        x_2 = np.asarray([1.0, guess])
        deviation = math.sqrt(float(x_2 @ self.covariance_22 @ x_2) + own.variance)
        rates = sigmoid(float(self.mean_2 @ x_2) + own.mean + deviation * POINTS)
        return float(WEIGHTS @ (1 - rates) ** size)

    def learn(self, guess: float, own: Residual, passed: int, size: int) -> "tuple[Line, Residual]":
        """Update line and residual by one group of the problem, with Laplace's approximation of the likelihood.

        The group's log-odds are the sum of offset, slope times guess and residual, independent before the update. The
        group moves their joint mean along one direction only, so the new mode is the root of an increasing function of
        one number, found by bisection. The covariance between line and residual is dropped. The mode replaces the mean;
        over 800 groups that biases a slope of 1 by 0.03 to 0.13, more for a larger `own`.
        """
        x_2 = np.asarray([1.0, guess])
        direction_2 = self.covariance_22 @ x_2
        at, spread = float(self.mean_2 @ x_2) + own.mean, float(x_2 @ direction_2) + own.variance
        low, high = float(passed - size), float(passed)
        for _ in range(60):
            middle = (low + high) / 2
            if middle - passed + size * ((1 + math.tanh((at + spread * middle) / 2)) / 2) > 0:
                high = middle
            else:
                low = middle
        rate = _sigmoid(at + spread * low)
        weight = size * rate * (1 - rate)
        shrink = weight / (1 + weight * spread)
        line = Line(self.mean_2 + direction_2 * low, self.covariance_22 - np.outer(direction_2, direction_2) * shrink)
        return line, Residual(own.mean + own.variance * low, own.variance - own.variance**2 * shrink)


@dataclass(frozen=True)
class Calibration:
    """Options of the calibration of guesses.

    Attributes:
        doubt: prior standard deviation of the line's offset, in logits; the slope's is half of it.
        drift: variance that the offset gains in every step with outcomes, in squared logits; the slope gains a quarter
            of it. 0 = the solver does not change.
    """

    doubt: float = 1.0
    drift: float = 0.01

    def __post_init__(self) -> None:
        require(0 < self.doubt <= 20, "calibration.doubt", self.doubt, "give a number of logits above 0, at most 20")
        drift = 0 <= self.drift <= 20
        require(drift, "calibration.drift", self.drift, "give 0 (= a solver that does not change) to 20 squared logits")

    def start(self) -> Line:
        """The belief before any outcome: the guess is right."""
        return Line(np.asarray([0.0, 1.0]), np.diag([self.doubt**2, (self.doubt * SLOPE_DOUBT) ** 2]))


def guesses_of(problems: Sequence[Problem], where: str) -> Floats:
    """Read the probe's guess for every problem, as log-odds.

    Args:
        where: the configuration field of the problems, for error messages.

    Raises:
        UserError: if a problem has no guess, or the guesses come from several reference models.
    """
    rates: list[float] = []
    for problem in problems:
        rate = problem.features.get(RATE)
        if not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise UserError(
                f"{where}: {problem.id!r} has {RATE} {rate!r}, which is not a probed pass rate; write the problems "
                "with `halfway propel export`"
            )
        rates.append(float(rate))
    references = sorted({str(problem.features.get(REFERENCE, "")) for problem in problems})
    if len(references) > 1:
        raise UserError(
            f"{where}: probed with several reference models ({', '.join(references)}), whose predictions do not "
            "compare; export all problems by one study"
        )
    rates_P = np.clip(np.asarray(rates, np.float64), EDGE, 1 - EDGE)
    guesses_P: Floats = np.log(rates_P / (1 - rates_P))
    guesses_P.setflags(write=False)
    return guesses_P


def _sigmoid(logit: float) -> float:
    return (1 + math.tanh(logit / 2)) / 2
