"""Measures how long replaying prefixes through an environment took, compared with generating as many responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.experiments.report.records import Run


@dataclass(frozen=True, slots=True)
class ReplayCosts:
    """Counts and seconds of one arm, summed over all its runs.

    Attributes:
        replays: number of requests whose prefix was replayed through the environment.
        replayed_responses: number of responses that were executed for these replays.
        replayed_seconds: seconds that tools took for the replayed responses.
        replayed_wall_seconds: wall-clock seconds of the replays, during which nothing was generated.
        responses: number of generated responses.
        tool_seconds: seconds that tools took to answer the generated responses.
        rollout_seconds: wall-clock seconds in which responses were generated and answered, without replays.
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
        """Wall-clock time per replayed response, divided by the time per generated response; None if there are none.

        Both include tools, and both are at the concurrency that the run had.
        """
        if not (self.responses and self.replayed_responses and self.rollout_seconds > 0):
            return None
        return (self.replayed_wall_seconds / self.replayed_responses) / (self.rollout_seconds / self.responses)


def replay_costs(arm: str, runs: Sequence[Run]) -> ReplayCosts | None:
    """The costs of an arm's replays; None if nothing was replayed through an environment, or nothing was recorded."""
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
