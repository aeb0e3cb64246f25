"""Reads NeMo-RL's logs: train_data_step{N}.jsonl in the log folder, with one rollout per line.

Every value is a list of one element. The files are written from nemo_rl/algorithms/grpo.py by
`Logger.log_batched_dict_as_jsonl` in nemo_rl/utils/logger.py. With dynamic sampling, `rewards` comes from the last
unfiltered batch and does not belong to the rows; `filtered_rewards` does.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile, number_in
from halfway.experiments.audit.formats.base import NULL, JsonLines

Numbers = list[float | None] | float | None


class NemoRow(msgspec.Struct):
    """The fields to read from a line."""

    rewards: Numbers = None
    filtered_rewards: Numbers = None
    content: msgspec.Raw = NULL
    token_ids: msgspec.Raw = NULL
    token_loss_mask: msgspec.Raw = NULL


class NemoRl(JsonLines[NemoRow]):
    """Reads NeMo-RL's training data."""

    trainer = "NeMo-RL"
    next_step = "in NeMo-RL: `grpo.use_dynamic_sampling=true` rolls out other problems in their place, at full price"
    row = NemoRow

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return file.has("input_lengths") and (file.has("rewards") or file.has("filtered_rewards"))

    def read(self, files: Sequence[LogFile], into: HistoryBuilder) -> None:
        training = [file for file in files if "train_data" in file.path.name]
        if training and len(training) < len(files):
            into.drop("file of validation", len(files) - len(training))
        super().read(training or files, into)

    def rollouts(self, rows: Sequence[NemoRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        step = number_in(file.path.stem) or 0
        filtered = any(row.filtered_rewards is not None for row in rows)
        if filtered:
            into.trap(
                "dynamic sampling: only the kept rows are here, and the field rewards belongs to another batch; "
                "filtered_rewards is read"
            )
            into.reading.keeps_zero_variance = False
        rewards = [_one(row.filtered_rewards if filtered else row.rewards) for row in rows]
        prompts = [prompt_tokens(row) for row in rows]
        if None in prompts:
            into.drop("rollout without token_loss_mask, which marks the end of its prompt", len(rows))
            return None
        into.guess("problems are identified by the tokens before the first trained token, as the log has no key")
        return RolloutColumns(
            steps=[step] * len(rows),
            problems=[prompt or b"" for prompt in prompts],
            rewards=rewards,
            responses=[bytes(row.content) for row in rows],
            tokens=[_trained(row) for row in rows],
        )


def prompt_tokens(row: NemoRow) -> bytes | None:
    """The tokens before the first trained token; None if the line does not have both lists."""
    tokens, mask = _list(row.token_ids), _list(row.token_loss_mask)
    if tokens is None or mask is None:
        return None
    end = next((i for i, flag in enumerate(mask) if flag), len(tokens))
    return msgspec.json.encode(tokens[:end])


def _trained(row: NemoRow) -> int:
    return sum(1 for flag in _list(row.token_loss_mask) or () if flag)


def _list(raw: msgspec.Raw) -> list[Any] | None:
    """Decode a list of numbers that may be wrapped in another list; None if it is missing, empty or damaged."""
    try:
        values = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None
    if isinstance(values, list) and len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return values if isinstance(values, list) and values else None


def _one(values: Numbers) -> float | None:
    return (values[0] if values else None) if isinstance(values, list) else values
