"""The contract of an environment, for tasks of one turn and of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from halfway.curriculum import Problem, Unit

Episode = TypeVar("Episode")


@dataclass(frozen=True, slots=True)
class StepResult(Generic[Episode]):
    """The environment's reaction to one response.

    Attributes:
        episode: the episode after the response.
        observation: the text that the policy reads next; empty once the episode is over.
        success: None while the episode continues, then its binary outcome.
        truncated: whether a limit (on turns) ended the episode, not the policy.
        lost: why the episode cannot continue through no fault of the policy, such as a failed box. The rollout is
            removed from its group and does not count as a failure. Empty = not lost.
        state: a short hash of the environment's state, for replays to compare; empty if the observation shows the whole
            state.
        seconds: seconds of tools.
    """

    episode: Episode
    observation: str = ""
    success: bool | None = None
    truncated: bool = False
    lost: str = ""
    state: str = ""
    seconds: float = 0.0


class Environment(Protocol[Episode]):
    """Starts episodes and executes responses, in batches like engines.

    A replay of a prefix is execution: saved responses go through `step` like fresh responses. If an environment's
    answers are not a function of the episode and the response, replays diverge; they are dropped and counted.

    Episodes are immutable values: `step` returns new episodes, and equal histories make equal episodes. So one replay
    serves all rollouts of a request, see `forkable`.

    An environment is a subclass. It must have the first four members; the others have defaults.
    """

    @property
    def unit(self) -> Unit:
        """The unit of a prefix's length: "tokens" if an episode is one turn, otherwise "steps"."""
        ...

    @property
    def max_turns(self) -> int:
        """Maximum number of responses of an episode."""
        ...

    def start(self, problems: Sequence[Problem]) -> list[Episode]:
        """Start one episode per problem."""
        ...

    def step(self, episodes: Sequence[Episode], responses: Sequence[str]) -> list[StepResult[Episode]]:
        """Execute one response in each episode; none of them may be over."""
        ...

    @property
    def forkable(self) -> bool:
        """False if one episode cannot be continued twice, so that replays run once per rollout."""
        return True

    @property
    def slow_tools(self) -> bool:
        """True if `step` is slow and accepts calls from several threads; then attempts do not wait for each other."""
        return False

    def check(self) -> None:
        """Raise UserError if this machine lacks what the environment needs. Called before a model is loaded."""
        return

    def close(self) -> None:
        """Release resources besides the episodes. Called when all episodes of a collection have ended."""
        return

    def copy_for_collection(self) -> Self:
        """The environment for an overlapping collection, whose `close` must not affect the others."""
        return self
