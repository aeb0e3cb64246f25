"""Reads the completions that TRL and ms-swift log.

TRL 1.16 with `log_completions=True` writes OUT/completions/completions_{step:05d}.parquet, with one row per rollout and
one column per reward function (`GRPOTrainer.log` in trl/trainer/grpo_trainer.py). The table holds what is in the
trainer's queues when it logs, which is one generation batch. ms-swift 4.6 with `--log_completions` writes
OUT/completions.jsonl, with one line per logging step and a list for each of the same columns
(swift/rlhf_trainers/grpo_trainer.py and swift/megatron/trainers/rollout_mixin.py).
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import Head, JsonLines, Reader
from halfway.experiments.audit.history import Reading
from halfway.experiments.audit.parquet import tables

NO_REWARD = {"step", "gen_step", "prompt", "completion", "advantage", "advantages", "entropy", "image", "images"}
BY_PROMPT = "problems are told apart by their prompts, since the log has no key"
Values = Sequence[Any]


class Trl(Reader):
    """Reads TRL's completions in Parquet."""

    trainer = "TRL"

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.kind == ".parquet" and head.has("step", "prompt", "completion", "advantage")

    @classmethod
    def run_of(cls, found: Found) -> Path:
        return found.path.parent

    def reading(self, name: str) -> Reading:
        return Reading(name, self.trainer, guesses=(BY_PROMPT,))

    def read(self, files: Sequence[Found], into: HistoryBuilder) -> None:
        steps: list[int] = []
        before = b""
        for found in files:
            columns = tables(found.path, into.drop)
            if columns is None or not columns["prompt"]:
                continue
            rollouts = from_columns(columns, self.choices.reward, into)
            same = _digest(rollouts)
            if same == before:
                into.drop("rollout that the file before has too", len(rollouts.steps))
                into.trap("the same batch was logged at several steps (steps_per_generation); it is counted once")
                continue
            before = same
            steps.append(rollouts.steps[0])
            into.add(rollouts)
        into.traps |= dict.fromkeys(gaps(steps))


class Swift(JsonLines[dict[str, msgspec.Raw]]):
    """Reads ms-swift's completions."""

    trainer = "ms-swift"
    row = dict[str, msgspec.Raw]

    @classmethod
    def knows(cls, head: Head) -> bool:
        known = head.has("prompt", "completion", "advantages") and (head.has("step") or head.has("gen_step"))
        return known and head.opens("prompt") == b"["

    def reading(self, name: str) -> Reading:
        return Reading(name, self.trainer, guesses=(BY_PROMPT,))

    def rollouts(
        self, rows: Sequence[Mapping[str, msgspec.Raw]], found: Found, into: HistoryBuilder
    ) -> RolloutColumns | None:
        for row in rows:
            columns = _lists(row, into)
            if columns:
                into.add(from_columns(columns, self.choices.reward, into))
        return None


def from_columns(columns: Mapping[str, Values], reward: str, into: HistoryBuilder) -> RolloutColumns:
    """The rollouts of one logged batch.

    Args:
        columns: the values of each column.
        reward: the column that the user chose as the reward; "" = the sum of all columns that may be rewards.
        into: takes the notes about which columns were used.
    """
    numeric = [name for name, values in columns.items() if name not in NO_REWARD and _numeric(values)]
    named = [name for name in numeric if "reward" in name.lower()]
    chosen = [reward] if reward in numeric else named or numeric
    if len(chosen) > 1:
        into.guess(f"the reward is the sum of {', '.join(chosen)} with weights 1; --reward NAME chooses one of them")
    elif chosen:
        into.guess(f"the reward is the column {chosen[0]}")
    length = len(columns["prompt"])
    rows = [[column[i] for column in map(columns.__getitem__, chosen)] for i in range(length)]
    return RolloutColumns(
        steps=[int(step) for step in columns.get("step", columns.get("gen_step", [0] * length))],
        problems=[_bytes(prompt) for prompt in columns["prompt"]],
        rewards=[_total(row) for row in rows],
        responses=[_bytes(text) for text in columns["completion"]],
    )


def gaps(steps: Sequence[int]) -> list[str]:
    """What gaps between the logged steps may mean, in words; empty if there are none.

    A table holds one generation batch, so batches between two logged steps may be lost.
    """
    apart = np.diff(np.unique(np.asarray(steps, np.int64)))
    if not len(apart) or apart.max() == 1:
        return []
    usual = int(np.bincount(apart).argmax())
    return [
        f"most tables are {usual} steps apart: if logging_steps is larger than steps_per_generation, the batches "
        "between are lost"
        if usual > 1
        else f"{int((apart - 1).sum())} steps between the tables are missing"
    ]


def _total(row: Sequence[Any]) -> float | None:
    """The sum of a row's rewards; None or NaN, from a reward function that does not apply to the row, adds nothing.

    None if no function applies.
    """
    given = [float(value) for value in row if value is not None and value == value]
    return sum(given) if given else None


def _numeric(values: Values) -> bool:
    kinds = Counter(type(value) for value in values if value is not None)
    return bool(kinds) and set(kinds) <= {int, float, bool}


def _bytes(value: Any) -> bytes:
    if isinstance(value, msgspec.Raw | bytes):
        return bytes(value)
    return value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value)


def _digest(rollouts: RolloutColumns) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for prompt, response in zip(rollouts.problems, rollouts.responses or (), strict=True):
        digest.update(_bytes(prompt) + b"\0" + response + b"\0")
    return digest.digest()


def _lists(row: Mapping[str, msgspec.Raw], into: HistoryBuilder) -> dict[str, Values] | None:
    """The columns of one line, with prompts and completions undecoded; None if the line is not such a record."""
    try:
        found: dict[str, Values] = {
            name: msgspec.json.decode(row[name], type=list[msgspec.Raw]) for name in ("prompt", "completion")
        }
        for name, raw in row.items():
            if name not in found and bytes(raw)[:1] == b"[":
                found[name] = msgspec.json.decode(raw)
        length = len(found["prompt"])
        if any(len(values) != length for name, values in found.items() if name in NO_REWARD | {"completion"}):
            into.drop("line whose columns are not of one length")
            return None
        return {name: values for name, values in found.items() if len(values) == length}
    except (msgspec.DecodeError, KeyError, ValueError):
        into.drop("line that is no such record")
        return None
