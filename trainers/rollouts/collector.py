"""From requests to scored groups: a rollout engine and an environment, turn by turn."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from halfway.curriculum.environments.base import Environment, StepResult
from halfway.curriculum.environments.replay import replay
from halfway.curriculum.groups import Group, Request
from halfway.curriculum.prefix import Prefix
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import NO_TOKENS, IntArray, Rollout, Turn, Unit
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line
from halfway.trainers.engines.base import Completion, Engine, Finished
from halfway.trainers.rollouts.background import BackgroundCalls
from halfway.trainers.rollouts.chat import Prompts, Tokenizer


@dataclass(slots=True, eq=False)
class _Attempt:
    """A rollout in the making.

    Attributes:
        stream: its own; turn t samples with the seed of `stream.at(t)`.
        context_P: all that the policy has read before its next response.
        turns: those that the environment has answered, and the last one.
        start_T: tokens of an earlier rollout that the next response begins with.
        success: None while the episode goes on.
        lost: why there will be no rollout; empty if there will be one.
    """

    stream: Stream
    problem: Problem
    episode: Any
    context_P: IntArray
    prefix: Prefix | None
    turns: list[Turn] = field(default_factory=list)
    start_T: IntArray = field(default_factory=lambda: NO_TOKENS)
    success: bool | None = None
    truncated: bool = False
    lost: str = ""

    @property
    def live(self) -> bool:
        return self.success is None and not self.lost

    @property
    def num_tokens(self) -> int:
        """Response tokens so far, replayed tokens included."""
        return sum(len(turn.tokens_T) for turn in self.turns) + len(self.start_T)

    def read(self, turn: Turn) -> None:
        """Append a turn after which the episode goes on."""
        self.turns.append(turn)
        self.context_P = np.concatenate([self.context_P, turn.tokens_T, turn.observation_tokens_O])
        self.start_T = NO_TOKENS

    def end(self, turn: Turn, success: bool, truncated: bool) -> None:
        """Append the last turn."""
        self.turns.append(turn)
        self.success, self.truncated = success, truncated


@dataclass(frozen=True)
class Collector:
    """Rolls out requests. All rollouts of a request start from the same state, so a group never mixes starts.

    A prefix in steps is replayed through the environment, without the engine. A prefix in tokens begins the first
    response: the engine reads it as context, the verifier judges the whole response. So does a hint at that place.

    A response that the token limit cut is not shown to the environment: the rollout counts as truncated and failed,
    whatever it has said so far.

    Rollouts that are lost are counted in `Group.dropped`: "diverged" if the environment answered the replayed steps
    otherwise than recorded, "no_room" if the prefix leaves no token to generate.

    Attributes:
        tokenizer: of `transformers`, or alike.
        max_response_tokens: limit on all response tokens of an episode, replayed tokens included. Observations do
            not count.
        progress: called after every turn with the number of finished rollouts of this run.
        chat, system: see `wrap` and `system` of `halfway.trainers.rollouts.chat.Prompts`.
    """

    engine: Engine
    environment: Environment[Any]
    tokenizer: Tokenizer
    max_response_tokens: int
    progress: Callable[[int], None] | None = None
    chat: bool = False
    system: str = ""

    @property
    def prompts(self) -> Prompts:
        return Prompts(self.tokenizer, self.chat, self.system)

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """One group a request, in the order of the requests.

        Raises:
            UserError: if a verifier raises, or the policy's weights have diverged.

        A rollout draws from its own part of `stream`: problem id, origin, how many requests with both came before,
        number of the rollout, turn. So its tokens do not depend on the other requests.
        """
        prompts = [self.prompts.of_request(request) for request in requests]
        attempts_of = self._begin(requests, prompts, stream)
        attempts = [attempt for group in attempts_of for attempt in group]
        self._replay(attempts)
        while live := [attempt for attempt in attempts if attempt.live]:
            self._turn(live)
            if self.progress is not None:
                self.progress(sum(not attempt.live for attempt in attempts))
        return [
            _group(request, prompt_P, group, self.environment.unit)
            for request, prompt_P, group in zip(requests, prompts, attempts_of, strict=True)
        ]

    def _begin(self, requests: Sequence[Request], prompts: Sequence[IntArray], stream: Stream) -> list[list[_Attempt]]:
        episodes = iter(self.environment.start([r.problem for r in requests for _ in range(r.num_rollouts)]))
        seen: Counter[tuple[str, str]] = Counter()
        attempts_of = []
        for request, prompt_P in zip(requests, prompts, strict=True):
            key = (request.problem.id, request.origin.value)
            group_stream = stream.at(*key, seen[key])
            seen[key] += 1
            start_T, problem, prefix = self.prompts.of_start(request), request.problem, request.prefix
            attempts_of.append(
                [
                    _Attempt(group_stream.at(number), problem, next(episodes), prompt_P, prefix, start_T=start_T)
                    for number in range(request.num_rollouts)
                ]
            )
        return attempts_of

    def _replay(self, attempts: Sequence[_Attempt]) -> None:
        """Bring attempts to where their prefix or hint ends, or mark them as lost."""
        started = [(attempt, attempt.prefix) for attempt in attempts if attempt.prefix is not None]
        stepped = [(attempt, prefix) for attempt, prefix in started if prefix.unit == "steps"]
        episodes = replay(
            self.environment,
            [attempt.episode for attempt, _ in stepped],
            [[self._decode(turn.tokens_T) for turn in prefix.turns] for _, prefix in stepped],
            [[turn.observation for turn in prefix.turns] for _, prefix in stepped],
        )
        for (attempt, prefix), episode in zip(stepped, episodes, strict=True):
            attempt.episode = episode
            attempt.lost = "diverged" if episode is None else ""
            for turn in prefix.turns:
                attempt.read(turn)
        for attempt, prefix in started:
            if prefix.unit == "tokens":
                (turn,) = prefix.turns
                attempt.start_T = turn.tokens_T
        for attempt in attempts:
            if not attempt.lost and attempt.num_tokens >= self.max_response_tokens:
                attempt.lost = "no_room"

    def _turn(self, attempts: Sequence[_Attempt]) -> None:
        """One response of every attempt, and the environment's answers, sought while the engine still samples."""

        def step(answered: Sequence[tuple[_Attempt, Turn]]) -> Sequence[StepResult[Any]]:
            return self.environment.step(
                [attempt.episode for attempt, _ in answered], [self._decode(turn.tokens_T) for _, turn in answered]
            )

        with BackgroundCalls(step) as answers:

            def finished(i: int, completion: Completion) -> None:
                turn = _response(attempts[i].start_T, completion)
                if completion.stop == "end":
                    answers.add((attempts[i], turn))
                else:
                    attempts[i].end(turn, success=False, truncated=True)

            self._generate(attempts, finished)
            for (attempt, turn), result in answers.results():
                self._answer(attempt, turn, result)

    def _generate(self, attempts: Sequence[_Attempt], finished: Finished) -> None:
        try:
            self.engine.generate(
                [np.concatenate([attempt.context_P, attempt.start_T]) for attempt in attempts],
                [self.max_response_tokens - attempt.num_tokens for attempt in attempts],
                [attempt.stream.at(len(attempt.turns)).integer() for attempt in attempts],
                finished,
            )
        except FloatingPointError as error:
            raise UserError(
                f"rollouts: {one_line(error)}; lower learner.lr or learner.max_grad_norm in the run's config.yaml "
                "and resume, without the newest checkpoint if that has diverged too"
            ) from error

    def _answer(self, attempt: _Attempt, turn: Turn, result: StepResult[Any]) -> None:
        """End the attempt, or let it read what the environment answered."""
        attempt.episode = result.episode
        used = sum(len(earlier.tokens_T) for earlier in attempt.turns) + len(turn.tokens_T)
        if result.success is not None:
            attempt.end(turn, result.success, result.truncated)
        elif used >= self.max_response_tokens:
            attempt.end(turn, success=False, truncated=True)
        else:
            tokens_O = self.prompts.of_observation(attempt.problem, result.observation)
            attempt.read(replace(turn, observation=result.observation, observation_tokens_O=tokens_O))

    def _decode(self, tokens_T: IntArray) -> str:
        return self.tokenizer.decode(tokens_T.tolist(), skip_special_tokens=True)


def _response(start_T: IntArray, completion: Completion) -> Turn:
    """The turn made of a replayed start and what the engine added to it."""
    zeros_T = np.zeros(len(start_T), np.float32)
    return Turn(
        tokens_T=np.concatenate([start_T, completion.tokens_T]),
        logprobs_T=np.concatenate([zeros_T, completion.logprobs_T]),
        entropies_T=np.concatenate([zeros_T, completion.entropies_T]),
        policy_version=completion.policy_version,
        stop=completion.stop,
        num_replayed=len(start_T),
    )


def _group(request: Request, prompt_P: IntArray, attempts: Sequence[_Attempt], unit: Unit) -> Group:
    return Group(
        request=request,
        prompt_tokens_P=prompt_P,
        rollouts=tuple(Rollout(tuple(a.turns), bool(a.success), a.truncated) for a in attempts if not a.lost),
        unit=unit,
        dropped=dict(Counter(a.lost for a in attempts if a.lost)),
    )
