"""The lab's task of several turns: commands that change an account of the environment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from halfway.curriculum import Problem, UserError, require
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.tasks.lab import ledger


@dataclass(frozen=True, slots=True)
class LedgerEpisode:
    """An immutable episode: equal histories make equal episodes.

    Attributes:
        problem_id: the problem's id, for messages.
        account: the account of the environment.
        turns: number of commands executed.
        over: whether the episode has ended.
    """

    problem_id: str
    account: ledger.Account
    turns: int = 0
    over: bool = False


@dataclass(frozen=True)
class Ledger(Environment[LedgerEpisode]):
    """Each response is one command; see `halfway.curriculum.tasks.lab.ledger` for the task.

    Attributes:
        max_turns: maximum number of commands of an episode; one that has not ended by then fails and is truncated. The
            prompt's own limit, at most nine turns, applies as well.
    """

    max_turns: int = 9

    unit = "steps"

    def __post_init__(self) -> None:
        require(self.max_turns >= 1, "environment.max_turns", self.max_turns, "give at least 1")

    def start(self, problems: Sequence[Problem]) -> list[LedgerEpisode]:
        """Start one episode per problem. Raises UserError if a prompt does not belong to this task."""
        return [LedgerEpisode(problem.id, _account(problem)) for problem in problems]

    def step(self, episodes: Sequence[LedgerEpisode], responses: Sequence[str]) -> list[StepResult[LedgerEpisode]]:
        """Execute one command in each episode. A pure function of the episodes and the responses."""
        return [self._step(episode, response) for episode, response in zip(episodes, responses, strict=True)]

    def _step(self, episode: LedgerEpisode, response: str) -> StepResult[LedgerEpisode]:
        assert not episode.over, f"the episode of problem {episode.problem_id!r} is over"
        account, observation, success = ledger.execute(episode.account, response)
        turns = episode.turns + 1
        if success is None and turns == self.max_turns:
            success = False
        after = replace(episode, account=account, turns=turns, over=success is not None)
        if success is None:
            return StepResult(after, observation)
        return StepResult(after, success=success, truncated=response != ledger.DONE)


def _account(problem: Problem) -> ledger.Account:
    try:
        return ledger.parse(problem.prompt)
    except ValueError as error:
        raise UserError(
            f"environment ledger: problem {problem.id!r} is of another task ({error}); use the source ledger"
        ) from error
