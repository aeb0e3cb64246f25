"""Reads open-instruct's logs: with `save_traces`, it writes one rollout per line.

The files are {run}_rollouts_{shard:06d}.jsonl, written by `save_rollouts_to_disk` in open_instruct/rl_utils.py, with
one `RolloutRecord` per line.
"""

from collections.abc import Sequence

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import NULL, Head, JsonLines
from halfway.experiments.audit.history import Reading


class OpenInstructRow(msgspec.Struct, gc=False):
    """The fields of a line that are read."""

    step: int
    prompt_idx: int
    prompt_tokens: msgspec.Raw
    response_tokens: msgspec.Raw
    reward: float | None = None
    ground_truth: msgspec.Raw = NULL
    dataset: msgspec.Raw = NULL


class OpenInstruct(JsonLines[OpenInstructRow]):
    """Reads open-instruct's saved rollouts."""

    trainer = "open-instruct"
    row = OpenInstructRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("prompt_tokens", "response_tokens", "reward", "step") and head.has("prompt_idx")

    def reading(self, name: str) -> Reading:
        return Reading(
            name,
            self.trainer,
            guesses=("problems are told apart by the prompt's tokens and the reference, since the log has no key",),
        )

    def rollouts(self, rows: Sequence[OpenInstructRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        responses = [bytes(row.response_tokens) for row in rows]
        return RolloutColumns(
            steps=[row.step for row in rows],
            problems=[bytes(row.prompt_tokens) for row in rows],
            answers=[bytes(row.ground_truth) for row in rows],
            rewards=[row.reward for row in rows],
            groups=[(row.step, row.prompt_idx) for row in rows],
            responses=responses,
            tokens=[length_of(response) for response in responses],
            categories=[bytes(row.dataset).decode("utf-8", "replace").strip('[]" ') for row in rows],
        )


def length_of(numbers: bytes) -> int:
    """Count the numbers in a JSON list without decoding it."""
    return numbers.count(b",") + 1 if numbers.strip(b"[] \n\t") else 0
