"""Laws that choose problems by their believed pass rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.curriculum.support.errors import require

DIGITS = 6  # distances that agree so far are a tie


@dataclass(frozen=True)
class Choice:
    """Which problems to take, given what is believed of them.

    Attributes:
        kind: "nearest" = those believed nearest the target; "band" = any whose rate lies in the band, then the nearest
            to the target; "softmax" = drawn without replacement in proportion to exp(-|rate - target| / tau);
            "straddle" = half of them the nearest at or above the target, half the nearest below it, and more of the one
            side where the other runs out. Equals are taken at random.
        target: pass rate aimed at.
        band: pass rates (low, high), both included.
        tau: temperature of "softmax", in pass rate.
    """

    kind: Literal["nearest", "band", "softmax", "straddle"] = "nearest"
    target: float = 0.5
    band: tuple[float, float] = (0.3, 0.7)
    tau: float = 0.1

    def __post_init__(self) -> None:
        require(0 < self.target < 1, "law.target", self.target, "give a pass rate between 0 and 1, both excluded")
        low, high = self.band
        require(0 <= low <= high <= 1, "law.band", self.band, "give 0 <= low <= high <= 1")
        require(self.tau > 0, "law.tau", self.tau, "give a positive temperature, or kind: nearest, its limit at 0")

    def choose(self, rate_F: Floats, wanted: int, generator: np.random.Generator) -> Positions:
        """Places of the chosen problems, best first.

        Args:
            rate_F: believed pass rates of the problems to choose from.
            wanted: how many; all of them if there are not so many.
        """
        distance_F: Floats = np.abs(rate_F - self.target)
        rounded_F: Floats = np.round(distance_F, DIGITS).astype(np.float64)
        if self.kind == "band":
            inside_F = (rate_F >= self.band[0]) & (rate_F <= self.band[1])
            return first_by([np.where(inside_F, -1.0, rounded_F)], wanted, generator)
        if self.kind == "softmax":
            return first_by([distance_F / self.tau - generator.gumbel(size=len(rate_F))], wanted, generator)
        if self.kind == "straddle":
            return _straddle(rate_F >= self.target, rounded_F, wanted, generator)
        return first_by([rounded_F], wanted, generator)


def first_by(keys: Sequence[NDArray[Any]], wanted: int, generator: np.random.Generator) -> Positions:
    """Places of the smallest values of the first key, smallest first; ties by the next key, in the end at random.

    Linear in the number of values but for the chosen ones, which are sorted.
    """
    length, key = len(keys[0]), keys[0]
    if wanted <= 0 or length == 0:
        return np.zeros(0, np.int64)
    if wanted < length:
        edge = _smallest(key, wanted)
        below, tied = np.flatnonzero(key < edge), np.flatnonzero(key == edge)
        left = wanted - len(below)
        if len(keys) > 1:
            tied = tied[first_by([each[tied] for each in keys[1:]], left, generator)]
        elif left < len(tied):
            tied = generator.choice(tied, left, replace=False, shuffle=False)
        chosen = np.concatenate([below, tied])
    else:
        chosen = np.arange(length)
    order = np.lexsort([generator.random(len(chosen)), *(each[chosen] for each in reversed(keys))])
    sorted_places: Positions = chosen[order]
    return sorted_places


def _smallest(key: NDArray[Any], place: int) -> Any:
    """The value at a place, counted from 1, in rising order.

    The first few distinct values are looked at one by one: `np.partition` takes 0.6 s for a million values that are
    nearly all equal, as those of problems never tried are.
    """
    value = key.min()
    for _ in range(4):
        if np.count_nonzero(key <= value) >= place:
            return value
        value = key[key > value].min()
    return np.partition(key, place - 1)[place - 1]


def _straddle(easy_F: NDArray[np.bool_], distance_F: Floats, wanted: int, generator: np.random.Generator) -> Positions:
    easy, hard = np.flatnonzero(easy_F), np.flatnonzero(~easy_F)
    num_hard = max(min(wanted // 2, len(hard)), min(wanted, len(hard) + len(easy)) - len(easy))
    return np.concatenate(
        [
            easy[first_by([distance_F[easy]], wanted - num_hard, generator)],
            hard[first_by([distance_F[hard]], num_hard, generator)],
        ]
    )
