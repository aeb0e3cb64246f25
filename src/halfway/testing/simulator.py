"""A learner without a model: pass rates from a logistic curve, rollouts of dummy tokens, milliseconds per step."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from halfway.curriculum import (
    NO_TOKENS,
    FloatArray,
    Group,
    Hint,
    IntArray,
    Prefix,
    Problem,
    Request,
    Rollout,
    Stream,
    Turn,
    Unit,
)
from halfway.trainers.contracts import Rollouts

PROMPT_LENGTH = 4
STEP_TOKENS = 3
VOCABULARY = 32
ANSWER_TOKENS: IntArray = np.ones(1, np.int32)
ANSWER_TOKENS.setflags(write=False)


@dataclass
class SimulatedRollouts(Rollouts):
    """Takes the place of real rollouts, to exercise controllers and the loop.

    A rollout of a problem succeeds with probability 1 / (1 + exp(-(skill - difficulty + push))). Skill grows by
    `growth` with every learner update. The push is `pull` times the replayed share for the prefix of a success, the
    negative of that for the prefix of a failure, and `pull` times its share of the reference for a hint. Equal
    requests, streams and policy versions give equal groups.

    Attributes:
        skill: skill of the starting policy, in logits.
        growth: what each learner update adds to the skill, in logits.
        spread: standard deviation of the difficulties, in logits; a problem's feature "difficulty" takes precedence.
        pull: effect of replaying a whole rollout, in logits.
        length: units in every rollout, replayed units included; at least 2.
        unit: "tokens" = one turn of `length` tokens; "steps" = `length` short turns.
        policy_version: number of learner updates behind the weights it stands for; see `sync`.
    """

    skill: float = 0.0
    growth: float = 0.02
    spread: float = 2.0
    pull: float = 4.0
    length: int = 12
    unit: Unit = "tokens"
    policy_version: int = 0

    def sync(self, version: int) -> None:
        """From now on, stand for the weights after `version` learner updates, as an engine does after a weight sync."""
        self.policy_version = version

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """One group per request, in the order of the requests."""
        seen: Counter[tuple[str, str]] = Counter()
        groups = []
        for request in requests:
            key = (request.problem.id, request.origin.value)
            groups.append(self._group(request, stream.at(*key, seen[key])))
            seen[key] += 1
        return groups

    def pass_probability(self, problem: Problem, prefix: Prefix | None, hint: Hint | None = None) -> float:
        """Probability that one rollout succeeds now."""
        logit = self.skill + self.growth * self.policy_version - self.difficulty(problem)
        if prefix is not None:
            logit += self.pull * prefix.length / self.length * (1 if prefix.parent_success else -1)
        if hint is not None:
            logit += self.pull * hint.share
        return (1 + math.tanh(logit / 2)) / 2  # the logistic function, written so that it does not overflow

    def difficulty(self, problem: Problem) -> float:
        """The problem's difficulty in logits: its feature, or a draw that depends only on its id."""
        own = problem.features.get("difficulty")
        if own is not None:
            assert not isinstance(own, tuple), "a difficulty is one number"
            return float(own)
        quantile = max(Stream(0, ("difficulty", problem.id)).uniform(), 2.0**-54)
        return NormalDist(0.0, self.spread).inv_cdf(quantile)

    def _group(self, request: Request, stream: Stream) -> Group:
        generator = stream.generator()
        probability = self.pass_probability(request.problem, request.prefix, request.hint)
        successes_N = generator.random(request.num_rollouts) < probability
        width = self.length * (STEP_TOKENS if self.unit == "steps" else 1)
        tokens_NT = generator.integers(2, VOCABULARY, (request.num_rollouts, width), np.int32)
        rollouts = tuple(
            Rollout(self._turns(request.prefix, tokens_T), bool(success))
            for success, tokens_T in zip(successes_N, tokens_NT, strict=True)
        )
        prompt_P = np.arange(2, 2 + PROMPT_LENGTH, dtype=np.int32)
        return Group(request, prompt_P, rollouts, self.unit)

    def _turns(self, prefix: Prefix | None, tokens_T: IntArray) -> tuple[Turn, ...]:
        if self.unit == "tokens":
            if prefix is None:
                return (self._turn(tokens_T),)
            replayed = np.concatenate([turn.tokens_T for turn in prefix.turns])
            return (self._turn(np.concatenate([replayed, tokens_T[len(replayed) :]]), num_replayed=len(replayed)),)
        past = prefix.turns if prefix else ()
        fresh = range(len(past), self.length)
        return past + tuple(
            self._turn(tokens_T[i * STEP_TOKENS : (i + 1) * STEP_TOKENS], answer="ok" if i + 1 < self.length else "")
            for i in fresh
        )

    def _turn(self, tokens_T: IntArray, num_replayed: int = 0, answer: str = "") -> Turn:
        entropies_T = _entropies(len(tokens_T), num_replayed)
        return Turn(
            tokens_T=tokens_T,
            logprobs_T=-entropies_T,
            entropies_T=entropies_T,
            policy_version=self.policy_version,
            num_replayed=num_replayed,
            observation=answer,
            observation_tokens_O=ANSWER_TOKENS if answer else NO_TOKENS,
        )


@lru_cache(maxsize=256)
def _entropies(length: int, num_replayed: int) -> FloatArray:
    entropies_T = np.where(np.arange(length) >= num_replayed, np.float32(0.5), np.float32(0))
    entropies_T.setflags(write=False)
    return entropies_T
