"""Generated problems in solver training, chosen by a probe's guess that is corrected as the solver moves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from curriculum.controller import PassRateController
from curriculum.errors import UserError, require
from curriculum.groups import Group
from curriculum.plan import Plan, Request
from curriculum.problems import ProblemSet
from curriculum.rollouts import Origin
from curriculum.streams import Stream

RATE = "probed_rate"
"""The feature of a generated problem that holds the probe's guess of its pass rate."""

EDGE = 1e-3  # guesses are kept this far from 0 and 1


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A Gaussian belief about the line from a guess to the solver's present pass rate, both as logits.

    Attributes:
        mean_2: offset and slope; (0, 1) = the guess is right.
        covariance_22: of both.
    """

    mean_2: NDArray[np.float64]
    covariance_22: NDArray[np.float64]

    def rates(self, guesses_P: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pass rate of each problem, of whose guess the logit is given."""
        rates_P: NDArray[np.float64] = 1 / (1 + np.exp(-(self.mean_2[0] + self.mean_2[1] * guesses_P)))
        return rates_P

    def drifted(self, variance: float) -> "Calibration":
        """The belief a step later: the solver may have moved."""
        return replace(self, covariance_22=self.covariance_22 + np.diag([variance, variance / 4]))

    def observed(self, guess: float, passed: int, size: int) -> "Calibration":
        """The belief after one more group, by Laplace's approximation to the binomial likelihood.

        One group moves the mean along one direction only, so that its new mode is the root of an increasing function of
        one number, found by bisection.
        """
        x_2 = np.asarray([1.0, guess])
        direction_2 = self.covariance_22 @ x_2
        at, spread = float(self.mean_2 @ x_2), float(x_2 @ direction_2)
        low, high = float(passed - size), float(passed)
        for _ in range(60):
            middle = (low + high) / 2
            excess = middle - passed + size * _sigmoid(at + spread * middle)
            low, high = (low, middle) if excess > 0 else (middle, high)
        rate = _sigmoid(at + spread * low)
        weight = size * rate * (1 - rate)
        shrunk_22 = self.covariance_22 - np.outer(direction_2, direction_2) * weight / (1 + weight * spread)
        return Calibration(self.mean_2 + direction_2 * low, shrunk_22)


def _sigmoid(logit: float) -> float:
    return (1 + math.tanh(logit / 2)) / 2


@dataclass(frozen=True, slots=True, eq=False)
class ProbedState:
    """What is known of the generated problems, at their positions.

    Attributes:
        tried_P: groups that were rolled out.
        invalid_P: taken for invalid.
        offered, offered_in: positions proposed so far in a step, and that step.
        error: mean absolute difference between predicted and observed pass rate, in the latest step that had any.
        rate: mean observed pass rate in it.
    """

    problems: ProblemSet
    tried_P: NDArray[np.int64]
    invalid_P: NDArray[np.bool_]
    mean_2: NDArray[np.float64]
    covariance_22: NDArray[np.float64]
    offered: tuple[int, ...] = ()
    offered_in: int = -1
    error: float = 0.0
    rate: float = 0.0

    @property
    def calibration(self) -> Calibration:
        return Calibration(self.mean_2, self.covariance_22)


@dataclass(frozen=True)
class Probed(PassRateController[ProbedState]):
    """Gives a share of every plan to generated problems whose pass rate is guessed to be nearest the target.

    The guesses come with the problems (`problems.generated`), from a probe that was trained once. The solver moves on;
    so the guesses go through a line (offset and slope, in logits) that is fitted to the outcomes, with forgetting. A
    group that nobody passes although that was all but impossible speaks against the problem: it is not tried again,
    nor is one whose rollouts were all lost. Without generated problems nothing happens.

    It comes before the member that chooses the data set's own problems.

    Attributes:
        share: of a plan, rounded down.
        target: pass rate.
        tries: most groups of one generated problem in all.
        drift: variance that the offset gains with every step that observes generated problems, in squared logits;
            the slope gains a quarter of it.
        doubt: standard deviation of the offset before the first outcome, in logits; the slope's is a half of it.
        impossible: a group without a success marks a problem as invalid if its chance was below this.
    """

    share: float = 0.5
    target: float = 0.5
    tries: int = 1
    drift: float = 0.01
    doubt: float = 1.0
    impossible: float = 1e-4

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "probe.share", self.share, "give a share above 0, at most 1")
        require(0 < self.target < 1, "probe.target", self.target, "give a pass rate between 0 and 1")
        require(self.tries >= 1, "probe.tries", self.tries, "give at least 1")
        require(self.drift >= 0, "probe.drift", self.drift, "give 0 (= the solver stands still) or more")
        require(self.doubt > 0, "probe.doubt", self.doubt, "give a positive number of logits")
        require(0 <= self.impossible < 1, "probe.impossible", self.impossible, "give 0 (= never) or a small chance")

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"generated"})

    def init(self, problems: ProblemSet) -> ProbedState:
        """Raises UserError if a generated problem has no guess."""
        for problem in problems.generated:
            if not isinstance(problem.features.get(RATE), int | float):
                raise UserError(
                    f"problems.generated: {problem.id!r} has no number {RATE}; add that feature to the file"
                )
        number = len(problems.generated)
        variances = np.diag([self.doubt**2, (self.doubt / 2) ** 2])
        return ProbedState(problems, np.zeros(number, np.int64), np.zeros(number, np.bool_), np.eye(2)[1], variances)

    def propose(self, plan: Plan, state: ProbedState, stream: Stream) -> tuple[Plan, ProbedState]:
        own = sum(request.decided_by(plan.member) for request in plan.requests)
        wanted = min(plan.missing, math.floor(self.share * plan.wanted) - own)
        if wanted <= 0 or not state.problems.generated:
            return plan, state
        if state.offered_in != plan.step:
            state = replace(state, offered=(), offered_in=plan.step)
        free_P = (state.tried_P < self.tries) & ~state.invalid_P
        free_P[list(state.offered)] = False
        rates_P = state.calibration.rates(_guesses(state.problems))
        order = np.lexsort([stream.generator().random(len(rates_P)), np.abs(rates_P - self.target)])
        chosen = [int(i) for i in order if free_P[i]][:wanted]
        for i in chosen:
            request = Request(state.problems.generated[i], plan.num_rollouts, Origin.GENERATED)
            plan = plan.add([request], f"probed {rates_P[i]:.2f}")
        return plan, replace(state, offered=(*state.offered, *chosen))

    def observe(self, state: ProbedState, groups: Sequence[Group], step: int) -> ProbedState:
        position = {problem.id: i for i, problem in enumerate(state.problems.generated)}
        generated = [g for g in groups if g.request.origin is Origin.GENERATED and g.request.problem.id in position]
        if not generated:
            return state
        guesses_P = _guesses(state.problems)
        before, after = state.calibration, state.calibration.drifted(self.drift)
        tried_P, invalid_P = state.tried_P.copy(), state.invalid_P.copy()
        errors, rates = [], []
        for group in generated:
            i = position[group.request.problem.id]
            tried_P[i] += 1
            if group.size == 0:
                invalid_P[i] = True
                continue
            predicted = float(before.rates(guesses_P[i : i + 1])[0])
            errors.append(abs(predicted - group.pass_rate))
            rates.append(group.pass_rate)
            if group.num_passed == 0 and (1 - predicted) ** group.size < self.impossible:
                invalid_P[i] = True
            else:
                after = after.observed(float(guesses_P[i]), group.num_passed, group.size)
        return replace(
            state,
            tried_P=tried_P,
            invalid_P=invalid_P,
            mean_2=after.mean_2,
            covariance_22=after.covariance_22,
            error=float(np.mean(errors)) if errors else state.error,
            rate=float(np.mean(rates)) if rates else state.rate,
        )

    def metrics(self, state: ProbedState) -> Mapping[str, float]:
        """offset, slope: of the calibration; left: generated problems that may still be proposed; invalid: taken for
        invalid; error, rate: see `ProbedState`."""
        free_P = (state.tried_P < self.tries) & ~state.invalid_P
        return {
            "offset": float(state.mean_2[0]),
            "slope": float(state.mean_2[1]),
            "left": float(free_P.sum()),
            "invalid": float(state.invalid_P.sum()),
            "error": state.error,
            "rate": state.rate,
        }


def _guesses(problems: ProblemSet) -> NDArray[np.float64]:
    """The logit of every guess."""
    rates_P = np.clip([float(problem.features[RATE]) for problem in problems.generated], EDGE, 1 - EDGE)
    guesses_P: NDArray[np.float64] = np.log(rates_P / (1 - rates_P))
    return guesses_P
