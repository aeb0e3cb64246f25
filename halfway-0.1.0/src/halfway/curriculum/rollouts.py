"""The policy's output: turns and rollouts."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]
Unit = Literal["tokens", "steps"]
Stop = Literal["end", "length"]

NO_TOKENS: IntArray = np.zeros(0, np.int32)
NO_TOKENS.setflags(write=False)
NO_VALUES: FloatArray = np.zeros(0, np.float32)
NO_VALUES.setflags(write=False)

LATE = "late"
"""The reason why a late rollout is lost, or is not in the loss."""


class Origin(StrEnum):
    """Reason for a request, which decides for which members the outcome is evidence."""

    FRESH = "fresh"
    PREFIX = "prefix"
    GENERATED = "generated"
    HINTED = "hinted"
    STORED = "stored"


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One response of the policy and the environment's observation.

    Attributes:
        tokens_T: response tokens. The first `num_replayed` come from an earlier rollout: they are context, never in the
            loss, never in an importance ratio, never counted as generated.
        logprobs_T: natural-log probability of each token under the distribution it was sampled from; 0 where replayed.
        entropies_T: entropy of that distribution in nats; 0 where replayed. Empty in what is stored (`Group.bare`).
        policy_version: version of the (oldest) weights that sampled its new tokens, counted in learner updates; in a
            turn replayed as a whole, the version that sampled it originally.
        stop: "end" if the policy ended the turn itself, "length" if it ran out of tokens.
        num_replayed: length of the replayed part, in tokens.
        observation: response of the environment, empty in the last turn.
        observation_tokens_O: tokens of the observation, as the policy reads them.
        state: hash of the environment's state after the observation, for comparing replays; empty if there is none.
        tool_seconds: time of the environment's tools; 0 if replayed.
        spans: (version, number of tokens) in the order of its new tokens, if several versions sampled them.
        values_T: critic's value of the state before each token; 0 where replayed. None unless a controller needs
            "values".
    """

    tokens_T: IntArray
    logprobs_T: FloatArray
    entropies_T: FloatArray
    policy_version: int
    stop: Stop = "end"
    num_replayed: int = 0
    observation: str = ""
    observation_tokens_O: IntArray = field(default_factory=lambda: NO_TOKENS)
    values_T: FloatArray | None = None
    state: str = ""
    tool_seconds: float = 0.0
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def num_generated(self) -> int:
        return len(self.tokens_T) - self.num_replayed

    @property
    def versions_T(self) -> IntArray:
        """The version that sampled each token; `policy_version` for replayed tokens."""
        spans = (
            (self.policy_version, self.num_replayed),
            *(self.spans or ((self.policy_version, self.num_generated),)),
        )
        return np.repeat([version for version, _ in spans], [count for _, count in spans]).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One attempt at a problem: its turns and a binary success.

    Attributes:
        success: the raw verdict of the verifier or environment; never a shaped reward.
        truncated: true if a token, turn or context limit ended the attempt.
        reward: reward for training, if it differs from the success; None = the success.
        late: true if the attempt ran out of time. It counts as a failure in every pass rate and baseline, and is not
            trained on.
    """

    turns: tuple[Turn, ...]
    success: bool
    truncated: bool = False
    reward: float | None = None
    late: bool = False

    @property
    def num_generated(self) -> int:
        return sum(turn.num_generated for turn in self.turns)

    @property
    def policy_versions(self) -> tuple[int, ...]:
        """The versions of the weights that sampled the rollout, oldest first, without turns replayed as a whole."""
        written = [turn for turn in self.turns if turn.num_generated or not turn.num_replayed]
        own = {turn.policy_version for turn in written} | {version for turn in written for version, _ in turn.spans}
        return tuple(sorted(own))

    @property
    def trained_reward(self) -> float:
        """The reward from which advantages are computed."""
        return float(self.success) if self.reward is None else self.reward

    @property
    def num_replayed(self) -> int:
        return sum(turn.num_replayed for turn in self.turns)

    def length(self, unit: Unit) -> int:
        """Length in the units of prefixes: response tokens, or environment steps."""
        return len(self.turns) if unit == "steps" else sum(len(turn.tokens_T) for turn in self.turns)
