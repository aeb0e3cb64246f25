"""The one contract for tasks of a single turn and of many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

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
        lost: why the episode cannot go on through no fault of the policy: what runs its commands has failed. Such a
            rollout leaves its group, as if it had never been; it is no failure. Empty = all is well.
        state: what the environment holds afterwards, as a short hash that equal states share, for replays to compare;
            empty if the observation tells all.
        seconds: that tools took.
    """

    episode: Episode
    observation: str = ""
    success: bool | None = None
    truncated: bool = False
    lost: str = ""
    state: str = ""
    seconds: float = 0.0


def check(environment: "Environment[Any]") -> None:
    """Raise UserError if this machine cannot run an environment, as far as it can say so itself."""
    getattr(environment, "check", lambda: None)()


class Environment(Protocol[Episode]):
    """Starts episodes and executes responses, a batch at a time, because rollout engines work in batches.

    Replaying a prefix is execution: saved responses go through `step` like fresh responses. An environment whose
    answers are not a function of the episode and the response makes replays diverge; they are dropped and counted.

    Episodes are immutable values: `step` returns new episodes, and equal histories make equal episodes. So a replay is
    done once for all rollouts of a request. An environment that cannot continue one episode twice has an attribute
    `forkable = False`, and is replayed once for each.

    An environment whose `step` takes long has an attribute `slow_tools = True`, and takes calls from several threads:
    then attempts do not wait for each other.

    An environment that needs something of this machine has `check()`, which raises UserError where that is missing. It
    is called before a model is loaded (see `check`).

    What an environment holds beside its episodes it gives back in `close()`, if it has one: it is called when all
    episodes of a collection have ended.
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
