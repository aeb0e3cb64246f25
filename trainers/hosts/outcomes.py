"""Turns a request into a prompt and the start of its responses, a reward into a success, and tokens into a rollout."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfway.curriculum import Request, Rollout, Turn, UserError


@dataclass(frozen=True)
class Judge:
    """Decides from a reward whether a rollout succeeded.

    It reads one named reward, never a weighted sum: a success must not be shaped.

    Attributes:
        name: the reward's name, for messages.
        threshold: lowest reward that counts as a success; None = rewards must be 0 or 1.
    """

    name: str
    threshold: float | None = None

    def success(self, reward: float | None) -> bool | None:
        """True or False, or None if the rollout could not be scored (the reward is None, NaN or infinite).

        Raises:
            UserError: if there is no threshold and the reward is neither 0 nor 1.
        """
        if reward is None or not math.isfinite(reward):
            return None
        if self.threshold is not None:
            return reward >= self.threshold
        if reward not in (0, 1):
            raise UserError(
                f"reward: {self.name!r} gave {float(reward):.4g}, but success must be 0 or 1; set threshold=... to the "
                "lowest reward of a success, or success=... to a reward that is 0 or 1"
            )
        return bool(reward)


def add_hint(prompt: Any, request: Request) -> Any:
    """The prompt, text or messages, with the request's hint appended if the hint belongs in the prompt."""
    hint = request.hint
    if hint is None or hint.place == "response":
        return prompt
    added = hint.opening + hint.text
    if isinstance(prompt, str):
        return prompt + added
    *before, last = prompt
    return [*before, {**last, "content": last["content"] + added}]


def start_of(request: Request, tokenizer: Any) -> list[int]:
    """First tokens of a response: those of a prefix, of a hint for the response, or none."""
    tokens: list[int] = []
    if request.prefix is not None:
        tokens = request.prefix.turns[0].tokens_T.tolist()
    elif request.hint is not None and request.hint.place == "response":
        tokens = tokenizer.encode(request.hint.text, add_special_tokens=False)
    return tokens


def rollout_of(
    tokens: Sequence[int], success: bool, reward: float, ends: Collection[int], version: int, num_replayed: int = 0
) -> Rollout:
    """Make a single-turn rollout from a host's report. Log-probabilities and entropies are unknown and set to 0.

    Args:
        tokens: the whole response, replayed tokens first.
        ends: tokens that end a response; a response that ends with another token counts as truncated.
        version: policy version that wrote it, in learner updates.
        num_replayed: number of replayed tokens.
    """
    tokens_T = np.asarray(tokens, np.int32)
    zeros_T = np.zeros(len(tokens_T), np.float32)
    truncated = not len(tokens_T) or int(tokens_T[-1]) not in ends
    turn = Turn(tokens_T, zeros_T, zeros_T, version, "length" if truncated else "end", num_replayed)
    return Rollout((turn,), success, truncated, None if reward in (0, 1) and bool(reward) == success else reward)
