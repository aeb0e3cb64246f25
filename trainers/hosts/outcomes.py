"""From what a host's reward says to a success, and from its tokens to a rollout."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from halfway.curriculum.rollouts import Rollout, Turn
from halfway.curriculum.support.errors import UserError


@dataclass(frozen=True)
class Judge:
    """Tells success from a reward. A success is raw, so it is read off one named reward and never off a shaped sum.

    Attributes:
        name: of the reward, for messages.
        threshold: a reward of at least this is a success; None = rewards are 0 or 1 already.
    """

    name: str
    threshold: float | None = None

    def success(self, reward: float | None) -> bool | None:
        """None for a rollout that could not be scored.

        Raises:
            UserError: for a reward that is neither 0 nor 1 where there is no threshold.
        """
        if reward is None or math.isnan(reward):
            return None
        if self.threshold is not None:
            return reward >= self.threshold
        if reward not in (0, 1):
            raise UserError(
                f"reward: {self.name!r} gave {float(reward):.4g}, and a success is 0 or 1; say threshold=..., from "
                "which on a rollout is a success, or success=... with a reward that is 0 or 1"
            )
        return bool(reward)


def rollout_of(
    tokens: Sequence[int],
    success: bool,
    reward: float,
    ends: Collection[int],
    version: int,
    num_replayed: int = 0,
) -> Rollout:
    """A rollout of one turn from what a host has: its probabilities and entropies are not known and stand as 0.

    Args:
        tokens: of the whole response, those that were replayed first.
        ends: tokens with which a response ends; one that ends otherwise ran out of tokens.
        version: updates behind the weights that wrote it.
    """
    tokens_T = np.asarray(tokens, np.int32)
    zeros_T = np.zeros(len(tokens_T), np.float32)
    truncated = not len(tokens_T) or int(tokens_T[-1]) not in ends
    turn = Turn(tokens_T, zeros_T, zeros_T, version, "length" if truncated else "end", num_replayed)
    return Rollout((turn,), success, truncated, None if reward in (0, 1) and bool(reward) == success else reward)
