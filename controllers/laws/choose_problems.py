"""Laws that choose problems by their believed pass rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.curriculum import require
from halfway.curriculum.signals import expected_update_mass

LEAST = 1e-12  # lower bound on a worth, so that its logarithm is finite
DIGITS = 6  # distances that agree to this many decimal places are tied
SAMPLE = 1024  # size of the sample from which a bound on the smallest values is guessed
SPARE = 2  # number of ranks by which the guess is raised, so that it is rarely too small

ChoiceKind = Literal["nearest", "band", "mass", "straddle"]


@dataclass(frozen=True)
class Choice:
    """Chooses problems by their believed pass rates.

    Attributes:
        kind: "nearest" = nearest the target; "band" = random within the band, then nearest the target; "mass" = drawn
            without replacement in proportion to pass@N - rate, the expected update mass under MaxRL, see
            `halfway.curriculum.signals.expected_update_mass`; "straddle" = half the nearest at or above the target and
            half the nearest below it, with more from one side if the other runs out. Ties are broken at random.
        target: target pass rate.
        band: pass rates (low, high), both included.
    """

    kind: ChoiceKind = "nearest"
    target: float = 0.5
    band: tuple[float, float] = (0.3, 0.7)

    def __post_init__(self) -> None:
        require(0 < self.target < 1, "law.target", self.target, "give a pass rate between 0 and 1, both excluded")
        low, high = self.band
        require(0 <= low <= high <= 1, "law.band", self.band, "give two numbers with 0 <= low <= high <= 1")

    @property
    def aim(self) -> float | None:
        """The target, if only the problems believed nearest it are taken; otherwise None."""
        return self.target if self.kind == "nearest" else None

    def choose(self, rate_F: Floats, wanted: int, generator: np.random.Generator, size: int = 8) -> Positions:
        """Indices of the chosen problems, best first.

        Args:
            rate_F: believed pass rates of the problems to choose from.
            wanted: number of problems; all if there are fewer.
            size: N, rollouts of a group.
        """
        if self.kind == "mass":
            return first_by([draw_keys(expected_update_mass(rate_F, size), generator)], wanted, generator)
        gap_F: Floats = rate_F - self.target
        if self.kind == "straddle":
            return _straddle(gap_F, wanted, generator)
        distance_F: Floats = np.abs(gap_F, out=gap_F)
        if self.kind == "band":
            distance_F[(rate_F >= self.band[0]) & (rate_F <= self.band[1])] = -1.0
        return first_by([distance_F], wanted, generator, DIGITS)


def draw_keys(worth_F: Floats, generator: np.random.Generator, sharpness: float = 1.0) -> Floats:
    """Keys by which `first_by` draws without replacement in proportion to worth^sharpness."""
    keys_F: Floats = -sharpness * np.log(np.maximum(worth_F, LEAST)) - generator.gumbel(size=len(worth_F))
    return keys_F


def first_by(
    keys: Sequence[NDArray[Any]], wanted: int, generator: np.random.Generator, digits: int | None = None
) -> Positions:
    """Indices of the smallest values of the first key, smallest first; ties go by the next key, in the end at random.

    The time is linear in the number of values, apart from sorting the chosen ones.

    Args:
        digits: values of the first key that agree to this many decimal places are a tie; None = equal values only.
    """
    length, key = len(keys[0]), keys[0]
    if wanted <= 0 or length == 0:
        return np.zeros(0, np.int64)
    if wanted >= length:
        return _sort(np.arange(length), keys, generator, digits)
    edge, margin = _smallest(key, wanted), 0.0 if digits is None else 10.0**-digits
    near_F, equal_F = key <= edge + margin, key == edge
    others = int(
        np.count_nonzero(near_F) - np.count_nonzero(equal_F)
    )  # below the edge, or rounding may make them equal
    if digits is not None and others > np.count_nonzero(key < edge - margin):
        within = np.flatnonzero(near_F)  # no others can be chosen, so only these are rounded
        rounded = [np.round(key[within], digits), *(other[within] for other in keys[1:])]
        return np.asarray(within[first_by(rounded, wanted, generator)])
    below = np.flatnonzero(key < edge) if others else np.zeros(0, np.int64)
    left = wanted - len(below)
    if len(keys) > 1:
        tied = np.flatnonzero(equal_F)
        tied = tied[first_by([other[tied] for other in keys[1:]], left, generator)]
    else:
        tied = _some_true(equal_F, left, generator)
    return _sort(np.concatenate([below, tied]), keys, generator, digits)


def _sort(
    places: Positions, keys: Sequence[NDArray[Any]], generator: np.random.Generator, digits: int | None
) -> Positions:
    values = [values[places] for values in keys]
    if digits is not None:
        values[0] = np.round(values[0], digits)
    sorted_places: Positions = places[np.lexsort([generator.random(len(places)), *reversed(values)])]
    return sorted_places


def _some_true(flags_F: NDArray[np.bool_], number: int, generator: np.random.Generator) -> Positions:
    """`number` random indices of true values. If a quarter of all are true, indices are tried at random, which avoids
    listing them."""
    length, chosen = len(flags_F), np.zeros(0, np.int64)
    if 8 * number < length and 4 * np.count_nonzero(flags_F) > length:
        while len(chosen) < number:
            tried = np.concatenate([chosen, generator.integers(0, length, 8 * number + 16)])
            tried = tried[flags_F[tried]]
            chosen = tried[np.sort(np.unique(tried, return_index=True)[1])]
        return chosen[:number]
    tied = np.flatnonzero(flags_F)
    return generator.choice(tied, number, replace=False, shuffle=False) if number < len(tied) else tied


def _smallest(key: NDArray[Any], place: int) -> Any:
    """The value at a rank, counted from 1, in ascending order.

    A sample suggests a bound, and only values below it are partitioned: `np.partition` of a million values takes 10 ms,
    and 0.6 s if nearly all of them are equal, as they are for problems never tried.
    """
    step = max(1, len(key) // SAMPLE)
    sample = np.sort(key[::step])
    rank = place // step
    while rank < len(sample):
        bound = sample[min(rank + SPARE, len(sample) - 1)]
        if np.count_nonzero(key <= bound) >= place:
            below = key[key < bound]
            return np.partition(below, place - 1)[place - 1] if len(below) >= place else bound
        rank = 2 * rank + SPARE
    return np.partition(key, place - 1)[place - 1]


def _straddle(gap_F: Floats, wanted: int, generator: np.random.Generator) -> Positions:
    """Half of the indices from the gaps at or above 0, half from those below, nearest first."""
    length, easy_F = len(gap_F), gap_F >= 0
    num_easy = int(np.count_nonzero(easy_F))
    num_hard = max(min(wanted // 2, length - num_easy), min(wanted, length) - num_easy)
    above_F, below_F = np.where(easy_F, gap_F, np.inf), np.where(easy_F, np.inf, -gap_F)
    easy = first_by([above_F], min(wanted - num_hard, num_easy), generator, DIGITS)
    return np.concatenate([easy, first_by([below_F], num_hard, generator, DIGITS)])
