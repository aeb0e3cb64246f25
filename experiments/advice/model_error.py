"""How far simulated leads are from measured ones: a share of them, and a deviation, from contests that were trained.

A measured lead m over the plain chain is taken as share x simulated lead + an error of constant variance, by least
squares through the origin. What one contest says is checked blind on another: `covered` counts the measured leads that
lie in the interval foretold for them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CONFIDENT = 1.96
"""Standard deviations on either side of the mean that a 95 % interval has."""


class Lead(NamedTuple):
    """Of a chain over the plain one: simulated mean, standard deviation over draws, and measured mean."""

    simulated: float
    spread: float
    measured: float


@dataclass(frozen=True, slots=True)
class ModelError:
    """What to make of a simulated lead.

    Attributes:
        share: of the simulated lead, to be expected.
        deviation: standard deviation of the measured lead around that.
    """

    share: float
    deviation: float

    @classmethod
    def of(cls, leads: Iterable[Lead]) -> "ModelError":
        """Least squares through the origin; of two leads or more, not all simulated as 0."""
        pairs = [(lead.simulated, lead.measured) for lead in leads]
        share = sum(s * m for s, m in pairs) / sum(s * s for s, _ in pairs)
        return cls(share, math.sqrt(sum((m - share * s) ** 2 for s, m in pairs) / (len(pairs) - 1)))

    def expected(self, simulated: float, spread: float) -> tuple[float, float]:
        """Mean and standard deviation of the lead that training would show."""
        return self.share * simulated, math.hypot(self.share * spread, self.deviation)

    def interval(self, simulated: float, spread: float) -> tuple[float, float]:
        """95 % interval of the lead that training would show."""
        mean, deviation = self.expected(simulated, spread)
        return mean - CONFIDENT * deviation, mean + CONFIDENT * deviation

    def covered(self, leads: Sequence[Lead]) -> int:
        """How many measured leads lie in their 95 % intervals."""
        found = [(lead.measured, *self.interval(lead.simulated, lead.spread)) for lead in leads]
        return sum(low <= measured <= high for measured, low, high in found)


LAB = ModelError(share=0.31, deviation=0.072)
"""Of the 22 leads of the lab's contest, three regimes (experiments/results/predicted_ranks)."""
EXACT = ModelError(share=1.0, deviation=0.0)
"""The simulation as it is."""
