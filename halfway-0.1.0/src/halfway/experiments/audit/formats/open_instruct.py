"""Reads open-instruct's saved rollouts, with one rollout per line."""

from typing import ClassVar

import msgspec

from halfway.experiments.audit.formats.base import NULL, Columns, JsonLines


class OpenInstructRow(msgspec.Struct, gc=False):
    step: int
    prompt_idx: int
    prompt_tokens: msgspec.Raw
    response_tokens: msgspec.Raw
    reward: float | None = None
    ground_truth: msgspec.Raw = NULL
    dataset: msgspec.Raw = NULL
    advantage: float | None = None

    @property
    def category(self) -> str:
        """The data set's name, possibly in a list; "" for none."""
        name = msgspec.json.decode(self.dataset)
        return str(name[0] if isinstance(name, list) and name else name or "")

    @property
    def length(self) -> int:
        """The number of tokens in the response, counted without decoding their list."""
        tokens = bytes(self.response_tokens)
        return tokens.count(b",") + 1 if tokens.strip(b"[] \n\t") else 0


class OpenInstruct(JsonLines[OpenInstructRow]):
    """Reads open-instruct's saved rollouts: with `save_traces`, one rollout per line.

    The files are {run}_rollouts_{shard:06d}.jsonl, written by `save_rollouts_to_disk` in open_instruct/rl_utils.py.
    """

    trainer = "open-instruct"
    next_step = "in open-instruct: `--active_sampling` rolls out other problems in their place, at full price"
    known_by = ("prompt_tokens", "response_tokens", "reward", "step", "prompt_idx")
    guesses = ("problems are identified by the prompt's tokens and the reference, since the log has no key",)
    row = OpenInstructRow
    columns: ClassVar[Columns] = {
        "steps": "step",
        "problems": "prompt_tokens",
        "answers": "ground_truth",
        "rewards": "reward",
        "groups": lambda row: (row.step, row.prompt_idx),
        "responses": "response_tokens",
        "tokens": "length",
        "categories": "category",
        "advantages": "advantage",
    }
