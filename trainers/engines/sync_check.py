"""A check after each weight sync that engine and learner still hold the same policy."""

import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from halfway.curriculum import FloatArray, IntArray, Stream, UserError
from halfway.trainers.distributed.collectives import broadcast_from_first
from halfway.trainers.engines.contract import Completion, Engine

# Long enough to fill blocks of a prefix cache, so that a stale cache is detected too.
CONTEXT_TOKENS, NEW_TOKENS = 160, 16


class Scorer(Protocol):
    """The part of the learner that the check needs."""

    @property
    def policy(self) -> Any: ...
    def logprobs(self, context_P: IntArray, tokens_T: IntArray) -> FloatArray: ...


@dataclass(frozen=True)
class SyncCheck:
    """Compares engine and learner on tokens that the engine samples after fixed contexts, one for each of its replicas.

    Attributes:
        vocab_size: size of the vocabulary from which the fixed contexts are drawn.
        max_length: maximum number of tokens that the engine accepts. Below 176 tokens, the contexts are shorter.
        samples: true if the engine of this process samples. If the first process samples for all, the others only help
            to compute the learner's log-probabilities.
        tolerance: largest acceptable mean of |log-probability in the engine - in the learner| over the tokens of a
            replica, in nats. A mean, since the maximum of many rounding errors grows with the number of replicas.
    """

    engine: Engine
    learner: Scorer
    vocab_size: int
    max_length: int
    tolerance: float
    samples: bool = True

    @classmethod
    def between(cls, engine: Engine, learner: Scorer, max_length: int, tolerance: float) -> "SyncCheck":
        """The check for an engine and the learner of this process.

        Args:
            max_length: maximum number of tokens that the engine accepts; 0 = what it reports itself, or the maximum of
                the model.
        """
        model = learner.policy.config.get_text_config()
        samples = int(os.environ.get("RANK", "0")) == 0 or not engine.serves_all
        room = max_length or engine.max_length or model.max_position_embeddings
        return cls(engine, learner, model.vocab_size, room, tolerance, samples)

    def __call__(self) -> float:
        """The largest mean difference over the replicas, in nats.

        Raises:
            UserError: if it exceeds the tolerance or is NaN.
        """
        length = max(1, min(CONTEXT_TOKENS, self.max_length - NEW_TOKENS))
        stream = Stream(0).at("sync_check")
        sampled = self._sample(length, stream) if self.samples else []
        # An end token may come early, but all processes must score the same sequences.
        sequences = broadcast_from_first([(context_P, done.tokens_T) for context_P, done in sampled])
        expected = [self.learner.logprobs(context_P, tokens_T) for context_P, tokens_T in sequences]
        if not sampled:
            return 0.0
        gaps = [
            np.abs(done.logprobs_T.astype(np.float64) - expected_T).mean()
            for (_, done), expected_T in zip(sampled, expected, strict=True)
        ]
        gap = float(np.max(gaps))  # NaN if any of them is
        if not gap <= self.tolerance:
            raise UserError(
                f"rollouts.sync_tolerance: after a weight sync the engine's log-probabilities are {gap:.2g} nats from "
                f"the learner's on average, more than {self.tolerance:g}; the engine has other weights or another "
                "temperature, or reads other tokens"
            )
        return gap

    def _sample(self, length: int, stream: Stream) -> list[tuple[IntArray, Completion]]:
        """One sequence per replica, with different contexts, since equal contexts would all go to the first replica."""
        shape = (max(1, self.engine.replicas), length)
        contexts = list(stream.generator().integers(0, self.vocab_size, shape).astype(np.int32))
        limits, seeds = [NEW_TOKENS] * len(contexts), [stream.integer()] * len(contexts)
        return list(zip(contexts, self.engine.generate(contexts, limits, seeds), strict=True))
