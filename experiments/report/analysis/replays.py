"""What replaying prefixes through an environment took, beside generating as many responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.experiments.report.records import Run


@dataclass(frozen=True, slots=True)
class ReplayCosts:
    """Of one arm, all its runs together.

    Attributes:
        replays, replayed_responses: requests whose prefix was replayed through the environment, and the responses that
            were executed for it.
        replayed_seconds: that tools took for these.
        replayed_wall_seconds: in which they were executed, while nothing was generated.
        responses, tool_seconds: generated responses, and what tools took to answer these.
        rollout_seconds: in which they were generated and answered, on the wall clock.
    """

    arm: str
    replays: int
    replayed_responses: int
    replayed_seconds: float
    replayed_wall_seconds: float
    responses: int
    tool_seconds: float
    rollout_seconds: float

    @property
    def ratio(self) -> float | None:
        """Time of a replayed response over time of a generated one, its tools included, as many at once as the run had
        of each; None if nothing was generated."""
        if not (self.responses and self.replayed_responses and self.rollout_seconds > 0):
            return None
        return (self.replayed_wall_seconds / self.replayed_responses) / (self.rollout_seconds / self.responses)


def replay_costs(arm: str, runs: Sequence[Run]) -> ReplayCosts | None:
    """None if nothing was replayed through an environment, or nothing of it was recorded."""
    steps = [step for run in runs for step in run.steps]

    def total(name: str) -> float:
        return sum(step.tools.get(name, 0) for step in steps)

    if not total("replays"):
        return None
    wall = total("replayed_wall_seconds")
    return ReplayCosts(
        arm=arm,
        replays=int(total("replays")),
        replayed_responses=int(total("replayed_responses")),
        replayed_seconds=total("replayed_seconds"),
        replayed_wall_seconds=wall,
        responses=int(total("responses")),
        tool_seconds=total("seconds"),
        rollout_seconds=sum(step.timing.get("rollout", 0.0) for step in steps if step.tools) - wall,
    )
