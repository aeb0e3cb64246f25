"""The one contract for tasks of a single turn and of many."""

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
        observation: what the policy reads next; empty once the episode is over.
        success: None while the episode continues, then its binary outcome.
        truncated: whether a limit (on turns) ended the episode, not the policy.
        lost: why the episode cannot continue through no fault of the policy: what runs its commands has failed. Such a
            rollout is removed from its group and does not count as a failure. Empty = nothing is lost.
        state: what the environment holds afterwards, as a short hash that equal states share, for replays to compare;
            empty if the observation tells all.
        seconds: time that tools took.
    """

    episode: Episode
    observation: str = ""
    success: bool | None = None
    truncated: bool = False
    lost: str = ""
    state: str = ""
    seconds: float = 0.0


def check(environment: "Environment[Any]") -> None:
    """Run the environment's own check of this machine, if it has one. Raises UserError if that fails."""
    getattr(environment, "check", lambda: None)()


class Environment(Protocol[Episode]):
    """Starts episodes and executes responses in batches, because rollout engines work in batches.

    Replaying a prefix is execution: saved responses go through `step` like fresh responses. An environment whose
    answers are not a function of the episode and the response makes replays diverge; they are dropped and counted.

    Episodes are immutable values: `step` returns new episodes, and equal histories make equal episodes. So a replay is
    done once for all rollouts of a request. An environment that cannot continue one episode twice has an attribute
    `forkable = False`, and is replayed once for each.

    An environment whose `step` takes long has an attribute `slow_tools = True`, and accepts calls from several threads;
    then attempts do not wait for each other.

    An environment that needs something of this machine has `check()`, which raises UserError where that is missing. It
    is called before a model is loaded (see `check`).

    An environment that holds resources beside its episodes releases them in `close()`, which is called, if it exists,
    when all episodes of a collection have ended. Collections that overlap then each have one from `apart()`, whose
    `close()` leaves the others alone.
    """

    @property
    def unit(self) -> Unit:
        """The unit of a prefix's length: "tokens" if an episode is one turn, otherwise "steps"."""
        ...

    @property
    def max_turns(self) -> int:
        """The most responses an episode can take."""
        ...

    def start(self, problems: Sequence[Problem]) -> list[Episode]:
        """One new episode per problem."""
        ...

    def step(self, episodes: Sequence[Episode], responses: Sequence[str]) -> list[StepResult[Episode]]:
        """Execute one response in each episode. Episodes that are over must not be passed."""
        ...
