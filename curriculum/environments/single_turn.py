"""Tasks of one turn: the policy answers once and a verifier judges."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from halfway.curriculum import Problem
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.tasks.verifiers.exact_numeric import Lost
from halfway.curriculum.tasks.verifiers.verify import find_verifier, verify_all


@dataclass(frozen=True, slots=True)
class SingleTurnEpisode:
    """A problem and its response; None until the policy answers."""

    problem: Problem
    response: str | None = None


@dataclass(frozen=True)
class SingleTurn(Environment[SingleTurnEpisode]):
    """Every episode is one response, judged by the problem's verifier.

    Responses are text without special tokens. The collector fails responses cut by the token limit; they do not come
    here.
    """

    unit = "tokens"
    max_turns = 1

    def start(self, problems: Sequence[Problem]) -> list[SingleTurnEpisode]:
        """Start one episode per problem. Raises UserError for an unknown verifier, before any rollout."""
        for name in sorted({problem.verifier for problem in problems}):
            find_verifier(name)
        return [SingleTurnEpisode(problem) for problem in problems]

    def step(
        self, episodes: Sequence[SingleTurnEpisode], responses: Sequence[str]
    ) -> list[StepResult[SingleTurnEpisode]]:
        """Judge one response per episode. Raises UserError if a verifier raises."""
        for episode in episodes:
            assert episode.response is None, f"the episode of problem {episode.problem.id!r} is over"
        verdicts = verify_all([episode.problem for episode in episodes], responses)
        return [
            StepResult(replace(episode, response=response), lost=verdict.reason)
            if isinstance(verdict, Lost)
            else StepResult(replace(episode, response=response), success=verdict)
            for episode, response, verdict in zip(episodes, responses, verdicts, strict=True)
        ]
