"""The one contract for tasks of a single turn and of many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Unit

Episode = TypeVar("Episode")


@dataclass(frozen=True, slots=True)
class StepResult(Generic[Episode]):
    """What the environment made of one response.

    Attributes:
        episode: the episode after the response.
        observation: what the policy reads next; empty once the episode is over.
        success: None while the episode goes on, else its binary outcome.
        truncated: the episode was ended by a limit (turns), not by the policy.
    """

    episode: Episode
    observation: str = ""
    success: bool | None = None
    truncated: bool = False


class Environment(Protocol[Episode]):
    """Starts episodes and executes responses, a batch at a time, because rollout engines work in batches.

    Replaying a prefix is execution: saved responses go through `step` like fresh responses. An environment whose
    answers are not a function of the episode and the response makes replays diverge; they are dropped and counted.

    Episodes are immutable values: `step` returns new episodes, and equal histories make equal episodes.
    """

    @property
    def unit(self) -> Unit:
        """What a prefix is counted in: "tokens" if an episode is one turn, else "steps"."""
        ...

    @property
    def max_turns(self) -> int:
        """The most responses an episode can take."""
        ...

    def start(self, problems: Sequence[Problem]) -> list[Episode]:
        """One new episode a problem."""
        ...

    def step(self, episodes: Sequence[Episode], responses: Sequence[str]) -> list[StepResult[Episode]]:
        """Execute one response in each episode. Episodes that are over must not be passed."""
        ...
