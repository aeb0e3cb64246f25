"""Rollouts of a learner without a model: they err somewhere, or they pass."""

from collections.abc import Sequence

import numpy as np

from halfway.curriculum.groups import Group, Request
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.rollouts import NO_TOKENS, Rollout, Turn
from halfway.curriculum.simulation.skills import Floats, Positions, SkillLearner
from halfway.curriculum.streams import Stream

ERROR = 1
VOCABULARY = 2**20
MOST_GIVEN = 0.99
PASSED, FAILED = Rollout((), True), Rollout((), False)


class SkillRollouts:
    """The rollouts of a `SkillLearner`.

    An attempt errs at a constant rate on its way, so that it passes with probability p = exp(-rate) in all. After a
    prefix of a success, or a hint, that covers share s of the way, it passes with probability p^(1 - s); so it does
    after a prefix of a failure whose error comes later, and otherwise `recovery` times as often. Which prefixes hold
    the error follows from the place, drawn at random, where the failure erred.

    Attributes:
        length: tokens of a rollout, replayed tokens included.
        tokens: whether rollouts have tokens; without them, groups cost next to nothing.
    """

    def __init__(self, learner: SkillLearner, problems: ProblemSet, length: int = 24, tokens: bool = True):
        self.learner, self.problems = learner, problems
        self.length, self.tokens = length, tokens

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """One group per request, in the order of the requests. The learner has one replica."""
        if not requests:
            return []
        generator = stream.generator()
        where_M = np.array([self.problems.position(request.problem.id) for request in requests])
        rates_M = self.learner.rates(where_M[None])[0]
        return [self._group(request, rate, generator) for request, rate in zip(requests, rates_M.tolist(), strict=True)]

    def given(self, request: Request) -> float:
        """The share of a rollout that a request gives it."""
        if request.prefix is not None:
            return min(request.prefix.length / self.length, MOST_GIVEN)
        return min(request.hint.share, MOST_GIVEN) if request.hint is not None else 0.0

    def _group(self, request: Request, rate: float, generator: np.random.Generator) -> Group:
        given, size = self.given(request), request.num_rollouts
        held = request.prefix is not None and any((turn.tokens_T == ERROR).any() for turn in request.prefix.turns)
        chance = rate ** (1 - given) * (self.learner.dynamics.recovery if held else 1.0)
        passed_N = generator.random(size) < chance
        if not self.tokens:
            return Group(request, NO_TOKENS, tuple(PASSED if passed else FAILED for passed in passed_N))
        tokens_NT = generator.integers(2, VOCABULARY, (size, self.length), np.int32)
        entropies_NT = generator.random((size, self.length), np.float32)
        start = 0
        if request.prefix is not None:
            replayed_T = np.concatenate([turn.tokens_T for turn in request.prefix.turns])
            start = len(replayed_T)
            tokens_NT[:, :start], entropies_NT[:, :start] = replayed_T, 0
        errs_N = _error_places(rate, start, self.length, generator.random(size))
        if not held:
            failed_F = np.flatnonzero(~passed_N)
            tokens_NT[failed_F, errs_N[failed_F]] = ERROR
        version = self.learner.updates
        rollouts = tuple(
            Rollout((Turn(tokens_T, -entropies_T, entropies_T, version, num_replayed=start),), bool(passed))
            for tokens_T, entropies_T, passed in zip(tokens_NT, entropies_NT, passed_N, strict=True)
        )
        return Group(request, np.arange(2, 6, dtype=np.int32), rollouts)


def _error_places(rate: float, start: int, length: int, uniform_N: Floats) -> Positions:
    """Tokens at which failures err, from `start` on: an exponential time, known to end before the rollout does."""
    hazard = -np.log(max(rate, 1e-12)) / length
    left = -np.expm1(-hazard * (length - start))
    if left < 1e-12:
        return np.asarray(start + (uniform_N * (length - start)).astype(np.int64))
    passed_N = (-np.log1p(-uniform_N * left) / hazard).astype(np.int64)
    return np.asarray(np.minimum(start + passed_N, length - 1))
