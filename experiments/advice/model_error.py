"""Models how simulated leads relate to measured leads, by a factor and a deviation from contests that were trained.

A measured lead m over the plain chain is taken as share x simulated lead + an error of constant variance, by least
squares through the origin. A fit to one contest is checked blind on another: `covered` counts the measured leads that
lie in their predicted intervals.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CONFIDENT = 1.96
"""Half-width of a 95 % interval, in standard deviations."""


class Lead(NamedTuple):
    """A chain's lead over the plain chain: simulated mean, standard deviation over draws, and measured mean."""

    simulated: float
    spread: float
    measured: float


@dataclass(frozen=True, slots=True)
class ModelError:
    """How a simulated lead translates into a lead in training.

    Attributes:
        share: the share of a simulated lead that is to be expected in training.
        deviation: standard deviation of the measured lead around that.
    """

    share: float
    deviation: float

    @classmethod
    def of(cls, leads: Iterable[Lead]) -> "ModelError":
        """Fit by least squares through the origin to two or more leads; some simulated lead must differ from 0."""
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
"""Fitted to the 22 leads of the lab's contest in three regimes (experiments/results/predicted_ranks)."""
EXACT = ModelError(share=1.0, deviation=0.0)
"""The simulation without any error."""
