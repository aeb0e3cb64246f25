"""Curricula on a difficulty column: AdaRFT's target (arXiv 2504.05520), E2H's schedules (arXiv 2506.06632)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import fresh_counts, fresh_groups
from halfway.controllers.beliefs.features import Categories, ColumnIs, difficulties, levels
from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.laws.category_shares import cosine_shares, count_turns, draw_problems, gaussian_shares
from halfway.controllers.laws.choose_problems import first_by
from halfway.controllers.laws.feedback import damp_gain
from halfway.controllers.laws.slots import fill_slots
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Request, Stream, require


@dataclass(frozen=True, slots=True, eq=False)
class ServoState:
    """The target difficulty, the mean pass rate that last moved it, and how often each problem was proposed."""

    problems: ProblemSet
    target: float
    turns_P: NDArray[np.int32]
    rate: float = 0.0


@dataclass(frozen=True)
class Servo(PassRateController[ServoState]):
    """Moves from easy to hard problems along a difficulty column, at the pace of the policy or on a schedule.

    - "adarft": a plan takes the problems nearest a target difficulty T; ties go to the problems with the fewest turns
      so far (the published code repeats the same problems). After a step T <- T + gain tanh(sensitivity (rate -
      pass_rate)), clipped to `bounds`, where rate is the mean pass rate of the step's fresh rollouts. The published
      values are gain 50, sensitivity 2, pass_rate 0.5 and T from 0, on a scale of 100 times the failure rate of a
      reference model. The gain is smaller on late evidence (`halfway.controllers.laws.feedback.damp_gain`; ours).
    - "cosine", "gaussian": every slot draws one of K levels, with probabilities that depend only on the step (E2H-C and
      E2H-G, see `halfway.controllers.laws.category_shares`), and takes the next problem of that level. The published
      configuration omits the floor of "gaussian", and its code then fails; our default, 2 / (K (K + 1)), is the code's
      value for `true`.

    Attributes:
        difficulty: name of the difficulty column: numbers, or for a schedule also words, easiest first in alphabetical
            order.
        column_is: "pass_rate" = the column holds pass rates, and the difficulty is 100 (1 - rate).
        pass_rate: target pass rate of "adarft".
        gain: largest move of the target per step, in units of difficulty.
        sensitivity: how strongly the move depends on the distance from `pass_rate`.
        start: initial target difficulty.
        bounds: range of the target difficulty.
        steps: length of a schedule in training steps; its last probabilities hold from then on.
        levels: number of levels of a schedule, of about equal size; null = one level per value of the column.
        exponent: of "gaussian": the mean level is progress^exponent (K - 1); an exponent below 1 moves it faster at
            first.
        width: standard deviation of "gaussian", in levels.
        floor: lowest probability of a level under "gaussian"; null = 2 / (K (K + 1)).
    """

    rule: Literal["adarft", "cosine", "gaussian"] = "adarft"
    difficulty: str = "difficulty"
    column_is: ColumnIs = "difficulty"
    pass_rate: float = 0.5
    gain: float = 50.0
    sensitivity: float = 2.0
    start: float = 0.0
    bounds: tuple[float, float] = (0.0, 100.0)
    steps: int = 100
    levels: int | None = None
    exponent: float = 0.5
    width: float = 0.5
    floor: float | None = None

    claims = frozenset({"problems"})

    def __post_init__(self) -> None:
        require(0 < self.pass_rate < 1, "servo.pass_rate", self.pass_rate, "give a rate between 0 and 1, both excluded")
        for name in ("gain", "sensitivity", "exponent", "width"):
            require(vars(self)[name] > 0, f"servo.{name}", vars(self)[name], "give a positive number")
        low, high = self.bounds
        require(low < high, "servo.bounds", self.bounds, "give the lowest difficulty, then a higher one")
        require(low <= self.start <= high, "servo.start", self.start, f"give a difficulty within {low:g} and {high:g}")
        require(self.steps >= 1, "servo.steps", self.steps, "give the training steps of the run")
        require(self.levels is None or self.levels >= 2, "servo.levels", self.levels, "give at least 2, or null")
        require(self.floor is None or 0 <= self.floor < 1, "servo.floor", self.floor, "give 0 to below 1, or null")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"feature:{self.difficulty}"})

    def init(self, problems: ProblemSet) -> ServoState:
        """Raises UserError if the column is missing, has the wrong type, or does not yield the levels."""
        if self.rule == "adarft":
            self._difficulties(problems)
        else:
            most = 1 / len(self._levels(problems))
            require((self.floor or 0) <= most, "servo.floor", self.floor, f"give at most {most:.3g}, 1 / levels")
        return ServoState(problems, self.start, np.zeros(len(problems), np.int32))

    def propose(self, plan: Plan, state: ServoState, stream: Stream) -> tuple[Plan, ServoState]:
        if plan.missing == 0:
            return plan, state
        generator, turns_P = stream.generator(), state.turns_P

        def nearest(free_F: Positions, wanted: int) -> Positions:
            distance_F = np.abs(difficulty_P[free_F] - state.target)
            return np.asarray(free_F[first_by([distance_F, turns_P[free_F]], wanted, generator)])

        def schedule(free_F: Positions, wanted: int) -> Positions:
            return draw_problems(kinds, share_K, free_F, wanted, turns_P, generator)

        if self.rule == "adarft":
            difficulty_P = self._difficulties(state.problems)
            chosen, action = fill_slots(plan, state.problems, nearest), f"target {state.target:.3g}"
        else:
            kinds = self._levels(state.problems)
            share_K = self.shares(plan.step, len(kinds))
            chosen, action = fill_slots(plan, state.problems, schedule), self.rule
        plan = plan.add([Request(state.problems[position], plan.num_rollouts) for position in chosen], action)
        return plan, replace(state, turns_P=count_turns(turns_P, chosen))

    def shares(self, step: int, levels: int) -> Floats:
        """Probabilities of the levels of a schedule in a training step, easiest first."""
        progress = min(step / self.steps, 1.0)
        if self.rule == "cosine":
            return cosine_shares(progress, levels)
        floor = 2 / (levels * (levels + 1)) if self.floor is None else self.floor
        return gaussian_shares(progress, levels, self.exponent, self.width, floor)

    def observe(self, state: ServoState, groups: Sequence[Group], step: int) -> ServoState:
        counts = fresh_counts(groups, state.problems)
        if not counts.tried:
            return state
        rate = sum(counts.passed) / sum(counts.tried)
        gain = damp_gain(self.gain, fresh_groups(groups, state.problems))
        moved = state.target + gain * math.tanh(self.sensitivity * (rate - self.pass_rate))
        return replace(state, target=min(max(moved, self.bounds[0]), self.bounds[1]), rate=rate)

    def metrics(self, state: ServoState) -> Mapping[str, float]:
        """target (AdaRFT's; a schedule has none) and rate: see `ServoState`."""
        return {"rate": state.rate} | ({"target": state.target} if self.rule == "adarft" else {})

    def _difficulties(self, problems: ProblemSet) -> Floats:
        return difficulties(problems, self.difficulty, self.column_is, "servo.difficulty")

    def _levels(self, problems: ProblemSet) -> Categories:
        return levels(problems, self.difficulty, self.levels, self.column_is, "servo.difficulty")
