"""Turns requests into scored groups with an engine and an environment, turn by turn."""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import numpy as np

from halfway.curriculum import Group, IntArray, Request, Stream, Turn, UserError
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.environments.replay import Divergence, replay
from halfway.curriculum.groups import ReplayCost
from halfway.curriculum.support.extras import one_line
from halfway.trainers.engines.contract import Completion, Engine, Finished
from halfway.trainers.rollouts.attempts import Attempt, Cohort, Replays, begun_anew, response_of, short_reason
from halfway.trainers.rollouts.chat import Prompts, Tokenizer
from halfway.trainers.rollouts.overlapping import BackgroundCalls, Overlapping


class Judging:
    """Measures the time of an environment: verifiers, tests, tools. Several threads may use it; their times add up.

    Attributes:
        seconds: wall-clock time of all calls that have ended.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the time inside, even if it ends with an exception."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            with self._lock:
                self.seconds += spent


@dataclass(frozen=True)
class Collector:
    """Rolls out requests. All rollouts of a request start from the same state, so a group never mixes starts.

    The environment replays a prefix in steps, without the engine. A prefix in tokens starts the first response: the
    engine reads it as context, and the verifier judges the whole response. A hint for the response works like that too.

    The environment does not see a response cut by the token limit: the rollout counts as truncated and failed.

    If a replay differs from the record, its request becomes a fresh one, rolled out from the start of the problem.
    `Group.dropped` counts lost rollouts: by the environment's message if it failed (`short_reason`), as "no_room" if
    the prefix leaves no token to generate.

    All attempts take their turns together, unless the environment has `slow_tools`: then an attempt
    continues as soon as its own tool has returned, while other tools and the engine are working. The engine's batches
    then depend on timing, and so may the last digits of its sums.

    An attempt that has not ended after `max_seconds` is ended between two turns, or while its tool works, and fails: it
    counts in every pass rate and baseline, but its tokens are not trained on (see `Rollout.late`).

    Attributes:
        tokenizer: a tokenizer of `transformers`, or one like it.
        max_response_tokens: limit on all response tokens of an episode, replayed tokens included. Observations do
            not count.
        progress: called after every turn with the number of finished rollouts of this run.
        chat, system: see `wrap` and `system` of `halfway.trainers.rollouts.chat.Prompts`.
        max_context_tokens: limit on all tokens of an episode, prompt and observations included; 0 = none.
        replays: counts replays.
        judging: measures the time of the environment.
        max_seconds: time limit of one run, see above; 0 = no limit.
    """

    engine: Engine
    environment: Environment[Any]
    tokenizer: Tokenizer
    max_response_tokens: int
    progress: Callable[[int], None] | None = None
    chat: bool = False
    system: str = ""
    max_context_tokens: int = 0
    replays: Replays = field(default_factory=lambda: Replays(1.0))
    judging: Judging = field(default_factory=Judging)
    max_seconds: float = 0.0
    end_tokens: tuple[int, ...] = ()

    @property
    def judge_seconds(self) -> float:
        """See `halfway.trainers.contracts.Judged`."""
        return self.judging.seconds

    @property
    def prompts(self) -> Prompts:
        return Prompts(self.tokenizer, self.chat, self.system)

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """Return one group per request, in order.

        Raises:
            UserError: if a verifier raises, or the policy's weights have diverged.

        A rollout draws from its own part of `stream`: problem id, origin, number of earlier requests with both, number
        of the rollout, turn. A restarted request draws from a part of that. So its tokens do not depend on the other
        requests.
        """
        cohorts = self._start_all(self._begin(requests, stream))
        attempts = [attempt for cohort in cohorts for attempt in cohort.attempts]
        try:
            deadline = time.monotonic() + (self.max_seconds or math.inf)
            if self.environment.slow_tools:
                self._overlap(attempts, deadline)
            else:
                self._in_step(attempts, deadline)
        finally:
            self.environment.close()
        return [cohort.group(self.environment.unit) for cohort in cohorts]

    def _in_step(self, attempts: Sequence[Attempt], deadline: float) -> None:
        """Roll out turn by turn, all attempts together; the deadline ends those that are left."""
        while live := [attempt for attempt in attempts if attempt.live]:
            if time.monotonic() >= deadline:
                for attempt in live:
                    attempt.cut()
                return
            self._turn(live)
            self._report(attempts)

    def _report(self, attempts: Sequence[Attempt]) -> None:
        if self.progress is not None:
            self.progress(sum(not attempt.live for attempt in attempts))

    def _begin(self, requests: Sequence[Request], stream: Stream) -> list[Cohort]:
        """Make the attempts of every request, at the start of its problem."""
        prompts = [self.prompts.of_request(request) for request in requests]
        episodes = iter(self.environment.start([r.problem for r in requests for _ in range(r.num_rollouts)]))
        seen: Counter[tuple[str, str]] = Counter()
        cohorts = []
        for request, prompt_P in zip(requests, prompts, strict=True):
            key = (request.problem.id, request.origin.value)
            group_stream = stream.at(*key, seen[key])
            seen[key] += 1
            start_T, problem, prefix = self.prompts.of_start(request), request.problem, request.prefix
            attempts = [
                Attempt(group_stream.at(number), problem, next(episodes), prompt_P, prefix, start_T=start_T)
                for number in range(request.num_rollouts)
            ]
            cohorts.append(Cohort(request, prompt_P, attempts, group_stream))
        return cohorts

    def _start_all(self, cohorts: Sequence[Cohort]) -> list[Cohort]:
        """Move the attempts to the end of their prefix or hint, or mark them as lost.

        If a replay differs from the record, its request becomes a fresh request with fresh attempts.
        """
        stepped = {
            i: cohort.attempts[:1] if self.environment.forkable else cohort.attempts
            for i, cohort in enumerate(cohorts)
            if (prefix := cohort.request.prefix) is not None and prefix.unit == "steps"
        }
        ends, cost_of = self._replay(stepped)
        replayed = list(cohorts)
        for i in stepped:
            cohort = replace(cohorts[i], replay_cost=cost_of.get(i))
            divergence = next((end for end in ends[i] if isinstance(end, Divergence)), None)
            if divergence is not None and divergence.lost:
                for attempt in cohort.attempts:
                    attempt.lost = short_reason(divergence.why)
            else:
                self.replays.count(divergence)
            if divergence is None:
                for attempt, episode in zip(cohort.attempts, cycle(ends[i]), strict=False):
                    attempt.resume(episode)
            elif not divergence.lost:
                [anew] = self._begin([begun_anew(cohort.request, divergence)], cohort.stream.at("anew"))
                cohort = replace(anew, replay_cost=cohort.replay_cost)
            replayed[i] = cohort
        for attempt in (attempt for cohort in replayed for attempt in cohort.attempts):
            if attempt.prefix is not None and attempt.prefix.unit == "tokens":
                (turn,) = attempt.prefix.turns
                attempt.start_T = turn.tokens_T
            if not attempt.lost and self._room(attempt) <= 0:
                attempt.lost = "no_room"
        return replayed

    def _replay(
        self, attempts_of: Mapping[int, Sequence[Attempt]]
    ) -> tuple[dict[int, list[Any]], dict[int, ReplayCost]]:
        """Replay prefixes in steps through the environment.

        Args:
            attempts_of: the attempts to replay for, by index of their request; one attempt may serve the whole request.

        Returns:
            By index, the end of each attempt's replay, an episode or a divergence; and the cost.
        """
        listed = [
            (i, attempt, attempt.prefix.turns) for i in attempts_of for attempt in attempts_of[i] if attempt.prefix
        ]
        seconds_of: defaultdict[int, list[float]] = defaultdict(list)
        began = time.perf_counter()
        ends = replay(
            self.environment,
            [attempt.episode for _, attempt, _ in listed],
            [[self._decode(turn.tokens_T) for turn in turns] for _, _, turns in listed],
            [[turn.observation for turn in turns] for _, _, turns in listed],
            [[turn.state for turn in turns] for _, _, turns in listed],
            executed=lambda number, seconds: seconds_of[listed[number][0]].append(seconds),
        )
        wall = (time.perf_counter() - began) / max(sum(map(len, seconds_of.values())), 1)
        cost_of = {i: ReplayCost(len(spent), sum(spent), wall * len(spent)) for i, spent in seconds_of.items()}
        ends_of: defaultdict[int, list[Any]] = defaultdict(list)
        for (i, _, _), end in zip(listed, ends, strict=True):
            ends_of[i].append(end)
        return ends_of, cost_of

    def _room(self, attempt: Attempt) -> int:
        """Maximum number of tokens of the next response."""
        room = self.max_response_tokens - attempt.num_tokens
        if not self.max_context_tokens:
            return room
        return min(room, self.max_context_tokens - len(attempt.context_P) - len(attempt.start_T))

    def _overlap(self, attempts: Sequence[Attempt], deadline: float) -> None:
        """Roll out with tools and engine working at once, see `Overlapping`."""

        def sample(some: Sequence[Attempt], receive: Callable[[Attempt, Turn], None]) -> None:
            self._generate(some, lambda i, completion: receive(some[i], self._response(some[i], completion)))

        def judge(attempt: Attempt, turn: Turn) -> StepResult[Any]:
            [result] = self._judge([attempt.episode], [self._decode(turn.tokens_T)])
            return result

        Overlapping(sample, judge, self._answer, self.engine.concurrent, deadline).run(
            attempts, lambda: self._report(attempts)
        )

    def _turn(self, attempts: Sequence[Attempt]) -> None:
        """Sample one response per attempt; the environment answers while the engine still samples."""

        def step(answered: Sequence[tuple[Attempt, Turn]]) -> Sequence[StepResult[Any]]:
            texts = [self._decode(turn.tokens_T) for _, turn in answered]
            return self._judge([attempt.episode for attempt, _ in answered], texts)

        with BackgroundCalls(step) as answers:

            def finished(i: int, completion: Completion) -> None:
                turn = self._response(attempts[i], completion)
                if completion.stop == "end":
                    answers.add((attempts[i], turn))
                else:
                    attempts[i].end(turn, success=False, truncated=True)

            self._generate(attempts, finished)
            for (attempt, turn), result in answers.results():
                self._answer(attempt, turn, result)

    def _response(self, attempt: Attempt, completion: Completion) -> Turn:
        """Make the turn of a completion. Raises UserError if it continues after an end token, or ended without one."""
        if self.end_tokens and np.isin(completion.tokens_T[:-1], self.end_tokens).any():
            raise UserError(
                f"rollouts.engine: a response continues after an end token of {list(self.end_tokens)}; have the engine "
                "stop at these tokens"
            )
        left_out = completion.stop == "end" and not np.isin(completion.tokens_T[-1:], self.end_tokens).any()
        if self.end_tokens and left_out:
            raise UserError(
                f"rollouts.engine: a response ended without one of the end tokens {list(self.end_tokens)}; have the "
                "engine return the token too, or no response learns to end"
            )
        return response_of(attempt.start_T, completion)

    def _judge(self, episodes: Sequence[Any], texts: Sequence[str]) -> list[StepResult[Any]]:
        """Get the environment's answers and time them; not for replays."""
        with self.judging.timed():
            return self.environment.step(episodes, texts)

    def _generate(self, attempts: Sequence[Attempt], finished: Finished) -> None:
        try:
            self.engine.generate(
                [np.concatenate([attempt.context_P, attempt.start_T]) for attempt in attempts],
                [self._room(attempt) for attempt in attempts],
                [attempt.stream.at(len(attempt.turns)).integer() for attempt in attempts],
                finished,
            )
        except FloatingPointError as error:
            raise UserError(
                f"rollouts: {one_line(error)}; lower learner.lr or learner.max_grad_norm in the run's config.yaml "
                "and resume, without the newest checkpoint if that has diverged too"
            ) from error

    def _answer(self, attempt: Attempt, turn: Turn, result: StepResult[Any]) -> None:
        """End the attempt, or add the environment's answer to its context."""
        attempt.episode = result.episode
        turn = replace(turn, tool_seconds=result.seconds) if result.seconds else turn
        used = sum(len(earlier.tokens_T) for earlier in attempt.turns) + len(turn.tokens_T)
        if result.lost:
            attempt.lost = short_reason(result.lost)
        elif result.success is not None:
            attempt.end(turn, result.success, result.truncated)
        elif used >= self.max_response_tokens:
            attempt.end(turn, success=False, truncated=True)
        else:
            tokens_O = self.prompts.of_observation(attempt.problem, result.observation, turn.tokens_T)
            context = len(attempt.context_P) + len(turn.tokens_T) + len(tokens_O)
            if self.max_context_tokens and context >= self.max_context_tokens:
                attempt.end(turn, success=False, truncated=True)
                return
            seen = replace(turn, observation=result.observation, observation_tokens_O=tokens_O, state=result.state)
            attempt.read(seen)

    def _decode(self, tokens_T: IntArray) -> str:
        return self.tokenizer.decode(tokens_T.tolist(), skip_special_tokens=True)
