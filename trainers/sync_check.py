"""Weight sync with a check: do engine and learner still stand for the same policy?"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from accelerate.utils import broadcast_object_list

from curriculum.errors import UserError
from curriculum.rollouts import FloatArray, IntArray
from curriculum.streams import Stream
from trainers.engines.base import Engine

# Long enough to fill blocks of a prefix cache, so that a cache left over from older weights shows too.
CONTEXT_TOKENS, NEW_TOKENS = 160, 16


class Scorer(Protocol):
    """The learner, as far as the check needs it."""

    def logprobs(self, context_P: IntArray, tokens_T: IntArray) -> FloatArray: ...


@dataclass(frozen=True)
class SyncCheck:
    """Compares engine and learner on tokens that the engine samples after a fixed context.

    Attributes:
        vocab_size: the context is drawn from all of it, always the same.
        max_length: most tokens the engine holds. Where it is below 176 tokens the context is shorter.
        samples: whether this process's engine samples. If the first process's does so for all of them, this one only
            helps to compute the learner's log-probabilities.
        tolerance: largest acceptable |log-probability in the engine - in the learner| of a token, in nats.
    """

    engine: Engine
    learner: Scorer
    vocab_size: int
    max_length: int
    tolerance: float
    samples: bool = True

    def __call__(self) -> float:
        """The largest difference found, in nats.

        Raises:
            UserError: if it is beyond the tolerance, or no number.
        """
        length = max(1, min(CONTEXT_TOKENS, self.max_length - NEW_TOKENS))
        stream = Stream(0).at("sync_check")
        context_P = stream.generator().integers(0, self.vocab_size, length).astype(np.int32)
        sampled = self.engine.generate([context_P], [NEW_TOKENS], [stream.integer()])[0] if self.samples else None
        # An end token may come early, and all processes have to score the same sequence.
        [tokens_T] = broadcast_object_list([None if sampled is None else sampled.tokens_T])
        expected_T = self.learner.logprobs(context_P, tokens_T)
        if sampled is None:
            return 0.0
        gap = float(np.abs(sampled.logprobs_T.astype(np.float64) - expected_T).max())
        if not gap <= self.tolerance:
            raise UserError(
                f"rollouts.sync_tolerance: after a weight sync the engine's log-probabilities are {gap:.2g} nats from "
                f"the learner's, more than {self.tolerance:g}; the engine does not hold the learner's weights"
            )
        return gap
