"""Feedback laws that move a ratio by pass rates. Each is a pure function or a frozen value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from halfway.curriculum import Group

Effect = Literal[1, -1]

# Repeated steps of 0.05 do not add up exactly in binary. Ratios are kept on this grid, so that floor(ratio * length)
# is what a reader computes by hand.
DECIMALS = 10
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Knob:
    """A ratio under feedback control, with the state of its cooldown.

    Attributes:
        ratio: the value in use.
        wait: updates left before the next move.
        moved_at: training step of the last move; None before the first.
    """

    ratio: float
    wait: int = 0
    moved_at: int | None = None


@dataclass(frozen=True, slots=True)
class RatioLaw:
    """Moves a ratio by one step when the believed pass rate leaves a dead zone around the target.

    Rollout Pass-Rate Control, section 2.2: no move inside the dead zone, one fixed step outside it, and a cooldown. The
    bounds are ours; we do not know the paper's.

    Attributes:
        deadzone: pass rates (low, high) between which, both included, nothing happens.
        step: size of a move.
        bounds: range of the ratio. A move that a bound prevents entirely starts no cooldown.
        cooldown: number of updates after a move that change nothing.
        cooldown_steps: minimum number of training steps between two moves; 0 = no such bound.
    """

    deadzone: tuple[float, float] = (0.47, 0.53)
    step: float = 0.05
    bounds: tuple[float, float] = (0.05, 0.95)
    cooldown: int = 5
    cooldown_steps: int = 0

    def update(self, knob: Knob, pass_rate: float, effect: Effect, training_step: int) -> Knob:
        """The knob after one more update of the belief.

        Args:
            pass_rate: believed pass rate of the rollouts that the ratio steers.
            effect: +1 if a larger ratio raises it (a longer head start), -1 if it lowers it (a longer handicap, or
                more left to do).
            training_step: the step in which the update happens.
        """
        if knob.wait > 0:
            return Knob(knob.ratio, knob.wait - 1, knob.moved_at)
        if knob.moved_at is not None and training_step - knob.moved_at < self.cooldown_steps:
            return knob
        easier = (pass_rate < self.deadzone[0]) - (pass_rate > self.deadzone[1])
        ratio = bound(knob.ratio + easier * effect * self.step, self.bounds)
        return knob if easier == 0 or ratio == knob.ratio else Knob(ratio, self.cooldown, training_step)


def damp_gain(gain: float, groups: Sequence[Group]) -> float:
    """The gain of an integrating controller for delayed evidence: gain x sin(pi / (4 d + 2)).

    With a delay of d steps, x <- x + gain (target - x) is stable only for a gain below 2 sin(pi / (4 d + 2)): 2, 1,
    0.62, 0.45, 0.35 for d = 0 to 4. So the gain keeps its ratio to that bound; without delay it is unchanged.

    Args:
        groups: the evidence; d is the largest of their lags.
    """
    delay = max((group.lag for group in groups), default=0)
    return gain * math.sin(math.pi / (4 * delay + 2))


def floor_product(ratio: float, length: int) -> int:
    """floor(ratio * length), corrected where floating point just misses an exact integer."""
    return math.floor(ratio * length + TOLERANCE)


def bound(value: float, bounds: tuple[float, float]) -> float:
    """The value within its bounds, on the grid of ratios."""
    return round(min(max(value, bounds[0]), bounds[1]), DECIMALS)
