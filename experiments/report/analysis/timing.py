"""Where the seconds went, and what they say a trained token costs on the machine that ran this."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.experiments.report.arms import seconds_by_part
from halfway.experiments.report.records import Run

PAPERS_ROLLOUTS = (0.78, 0.91)
"""Share of the hours that rollouts take in the sources (GRESO, table 2)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Over all runs, without evaluation and checkpoints.

    Attributes:
        rollouts, updates: shares of the seconds.
        rho: seconds of a trained token over seconds of a generated one; None where trained tokens were not recorded.
    """

    rollouts: float
    updates: float
    rho: float | None

    @property
    def inverted(self) -> bool:
        """Whether updates take more time than rollouts, unlike in the sources."""
        return self.updates > self.rollouts


def timing_of(runs: Sequence[Run]) -> Timing | None:
    """None without recorded seconds."""
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
