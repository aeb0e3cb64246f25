"""Shares of time spent on rollouts and updates, and the cost of a trained token that follows from them."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.experiments.report.arms import seconds_by_part
from halfway.experiments.report.records import Run

PAPERS_ROLLOUTS = (0.78, 0.91)
"""Smallest and largest share of the hours that rollouts take in published runs (GRESO, table 2)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Shares of the seconds of all runs, without evaluation and checkpoints.

    Attributes:
        rollouts, updates: shares of the seconds.
        rho: update seconds per trained token, divided by rollout seconds per generated token; None if trained tokens
            were not recorded.
    """

    rollouts: float
    updates: float
    rho: float | None

    @property
    def inverted(self) -> bool:
        """Whether updates take more time than rollouts, the reverse of the published runs."""
        return self.updates > self.rollouts


def timing_of(runs: Sequence[Run]) -> Timing | None:
    """The timing of all runs together; None if no seconds were recorded."""
    parts = seconds_by_part(runs)
    total = sum(parts.values())
    if total <= 0:
        return None
    rollout, update = parts.get("rollout", 0.0), parts.get("update", 0.0)
    generated = sum(run.steps[-1].tokens for run in runs if run.steps)
    trained = [run.steps[-1].trained_tokens for run in runs if run.steps]
    rho = None
    if rollout > 0 and generated and None not in trained and sum(filter(None, trained)):
        rho = (update / sum(filter(None, trained))) / (rollout / generated)
    return Timing(rollout / total, update / total, rho)
