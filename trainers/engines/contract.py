"""The contract of a rollout engine: continue token contexts, and take the learner's weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from halfway.curriculum import FloatArray, IntArray
from halfway.curriculum.rollouts import Stop

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """Freshly sampled tokens. Log-probabilities and entropies (nats) belong to the sampling distribution.

    Attributes:
        entropies_T: NaN if the engine does not know them and was not asked to compute them.
        policy_version: version of the weights that sampled it, see `Engine.sync`; the oldest of several.
        spans: (version, number of tokens) in order, if several versions sampled it.
    """

    tokens_T: IntArray
    logprobs_T: FloatArray
    entropies_T: FloatArray
    stop: Stop
    policy_version: int
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def without_entropies(
        cls, tokens: Sequence[int], logprobs: Sequence[float], stop: Stop, version: int, spans: Any = ()
    ) -> "Completion":
        """A completion of an engine that does not know entropies."""
        unknown_T = np.full(len(tokens), np.nan, np.float32)
        return cls(np.asarray(tokens, np.int32), np.asarray(logprobs, np.float32), unknown_T, stop, version, spans)


STOPS: dict[str | None, Stop] = {"stop": "end", "length": "length"}
"""The stop of a completion, by vLLM's reason to finish."""

Finished = Callable[[int, Completion], None]
"""Called with the position of a sequence and its completion."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineSetup:
    """The inputs from which an engine is built.

    Attributes:
        policy: the policy with the starting weights: the learner's own module or, if that is sharded, a whole copy for
            an engine that samples from the module itself.
        model_path: source of these weights: a Hugging Face folder, or a name on a hub.
        eos_token_ids: the tokens that end a response.
        pad_token_id: any valid token.
        temperature: divides the logits; positive.
        max_sequences: maximum number of sequences decoded at once.
        policy_version: version of the weights that the engine starts with; 0 = as loaded, without an update.
        in_flight: true = `sync` may be called during sampling; sequences continue with the new weights.
        elsewhere: true = the process that samples may be on another host.
    """

    policy: "nn.Module"
    model_path: str
    eos_token_ids: Sequence[int]
    pad_token_id: int
    temperature: float = 1.0
    max_sequences: int = 512
    policy_version: int = 0
    in_flight: bool = False
    elsewhere: bool = False


class Engine(Protocol):
    """Samples continuations. Equal contexts, limits and seeds give equal completions.

    Attributes:
        serves_all: with several training processes: true = the first process samples for all and distributes the work,
            and the others only help to send the weights.
        concurrent: whether several threads may call `generate` at once.
        max_length: maximum number of tokens of prompt and response together; None = the model's.
    """

    serves_all: bool = False
    concurrent: bool = False
    max_length: int | None = None

    @property
    def replicas(self) -> int:
        """Current number of copies of the policy; different contexts in one call go to different copies."""
        return 1

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        """Continue each context until an end token (kept in the completion) or its limit.

        Args:
            contexts: token ids, one array per sequence, not padded.
            max_new_tokens: the limit of each sequence, at least 1.
            seeds: the 64-bit seed of each sequence; its draws depend on nothing else.
            finished: called once for every sequence before this method returns, if possible soon after the sequence
                ends, so that it can be judged while others are still sampled. Calls come in any order and from any
                thread, one at a time.
        """
        ...

    def sync(self, policy: "nn.Module", version: int) -> None:
        """Load the weights of the learner's policy.

        Args:
            version: version of these weights, the number of learner updates behind them. Every completion records the
                version that sampled it.
        """
        ...


@runtime_checkable
class SleepingEngine(Engine, Protocol):
    """An engine that can free its devices for others."""

    def sleep(self) -> None:
        """Free the devices until the next `sync`."""
        ...
