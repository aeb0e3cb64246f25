"""The contract of an environment, for tasks of one turn and of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

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


def check(environment: "Environment[Any]") -> None:
    """Run the environment's own check of this machine, if it has one. Raises UserError if the check fails."""
    getattr(environment, "check", lambda: None)()


class Environment(Protocol[Episode]):
    """Starts episodes and executes responses, in batches like engines.

    A replay of a prefix is execution: saved responses go through `step` like fresh responses. If an environment's
    answers are not a function of the episode and the response, replays diverge; they are dropped and counted.

    Episodes are immutable values: `step` returns new episodes, and equal histories make equal episodes. So one replay
    serves all rollouts of a request. An environment that cannot continue one episode twice has an attribute
    `forkable = False`, and replays once per rollout.

    An environment with a slow `step` has an attribute `slow_tools = True`, and accepts calls from several threads; then
    attempts do not wait for each other.

    An environment with requirements on this machine has `check()`, which raises UserError if one is missing. It is
    called before a model is loaded (see `check`).

    An environment with resources besides its episodes releases them in `close()`, which is called, if it exists, when
    all episodes of a collection have ended. Overlapping collections each get their own environment from
    `copy_for_collection()`, whose `close()` does not affect the others.
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
