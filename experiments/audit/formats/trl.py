"""Reads the completions that TRL and ms-swift log.

TRL 1.16 with `log_completions=True` writes OUT/completions/completions_{step:05d}.parquet, with one row per rollout and
one column per reward function (`GRPOTrainer.log` in trl/trainer/grpo_trainer.py). The table holds what is in the
trainer's queues when it logs, which is one generation batch. ms-swift 4.6 with `--log_completions` writes
OUT/completions.jsonl, with one line per logging step and a list for each of the same columns
(swift/rlhf_trainers/grpo_trainer.py and swift/megatron/trainers/rollout_mixin.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.curriculum.support.errors import require
from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.database import batches
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import BY_PROMPT, JsonLines, Reader

NO_REWARD = {"step", "gen_step", "prompt", "completion", "advantage", "advantages", "entropy", "image", "images"}


class Trl(Reader):
    """Reads TRL's completions in Parquet."""

    trainer = "TRL"
    chooses_reward = True
    known_by = ("step", "prompt", "completion", "advantage")
    guesses = (BY_PROMPT,)

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return file.kind == ".parquet" and super().knows(file)

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        return file.path.parent

    def read(self, files: Sequence[LogFile], into: HistoryBuilder) -> None:
        steps: list[int] = []
        earlier: object = None
        for file in files:
            columns: dict[str, list[Any]] = {}
            for batch in batches(file.path, file.given, list(file.columns), into.drop):
                for name, values in batch.items():
                    columns.setdefault(name, []).extend(values)
            if not columns:
                continue
            rollouts = from_columns(columns, self.choices.reward, into)
            batch_of_file = hash((tuple(rollouts.problems), tuple(rollouts.responses or ())))
            if batch_of_file == earlier:
                into.drop("rollout that the file before has too", len(rollouts.steps))
                into.trap("the same batch was logged at several steps (steps_per_generation); it is counted once")
                continue
            earlier = batch_of_file
            steps.append(rollouts.steps[0])
            into.add(rollouts)
        into.traps |= dict.fromkeys(gaps(steps))


class Swift(JsonLines[dict[str, msgspec.Raw]]):
    """Reads ms-swift's completions."""

    trainer = "ms-swift"
    chooses_reward = True
    known_by = ("prompt", "completion", "advantages")
    guesses = (BY_PROMPT,)
    row = dict[str, msgspec.Raw]

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return super().knows(file) and (file.has("step") or file.has("gen_step")) and file.opens("prompt") == b"["

    def rollouts(
        self, rows: Sequence[Mapping[str, msgspec.Raw]], file: LogFile, into: HistoryBuilder
    ) -> RolloutColumns | None:
        for row in rows:
            columns = _lists(row, into)
            if columns:
                into.add(from_columns(columns, self.choices.reward, into))
        return None


def from_columns(columns: Mapping[str, Sequence[Any]], reward: str, into: HistoryBuilder) -> RolloutColumns:
    """The rollouts of one logged batch.

    Args:
        columns: the values of each column.
        reward: the column that the user chose as the reward; "" = the sum of all columns that may be rewards.
        into: takes the notes about which columns were used.

    Raises:
        UserError: if there is no such column.
    """
    numeric = [name for name, values in columns.items() if name not in NO_REWARD and _numeric(values)]
    require(not reward or reward in numeric, "--reward", reward, f"the table has {', '.join(numeric)}")
    chosen = [reward] if reward else [name for name in numeric if "reward" in name.lower()] or numeric
    if len(chosen) > 1:
        into.guess(f"the reward is the sum of {', '.join(chosen)} with weights 1; --reward NAME chooses one of them")
    elif chosen:
        into.guess(f"the reward is the column {chosen[0]}")
    length = len(columns["prompt"])
    return RolloutColumns(
        steps=list(map(_step, columns.get("step", columns.get("gen_step", [0] * length)))),
        problems=list(map(_bytes, columns["prompt"])),
        rewards=[_total([columns[name][i] for name in chosen]) for i in range(length)],
        responses=list(map(_bytes, columns["completion"])),
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
    applying = [float(value) for value in row if value is not None and value == value]
    return sum(applying) if applying else None


def _step(value: Any) -> int:
    """A step as a number; ms-swift writes it as text. 0 if it is not a number."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _numeric(values: Sequence[Any]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return bool(kinds) and kinds <= {int, float, bool}


def _bytes(value: Any) -> bytes:
    if isinstance(value, msgspec.Raw | bytes):
        return bytes(value)
    return value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value)


def _lists(row: Mapping[str, msgspec.Raw], into: HistoryBuilder) -> dict[str, list[Any]]:
    """The columns of one line, with prompts and completions undecoded; empty if the line is not such a record."""
    try:
        columns: dict[str, list[Any]] = {
            name: msgspec.json.decode(row[name], type=list[msgspec.Raw]) for name in ("prompt", "completion")
        }
        for name, raw in row.items():
            if name not in columns and bytes(raw)[:1] == b"[":
                columns[name] = msgspec.json.decode(raw)
    except (KeyError, ValueError, RecursionError):
        into.drop("line that is not such a record")
        return {}
    length = len(columns["prompt"])
    if any(len(values) != length for name, values in columns.items() if name in NO_REWARD):
        into.drop("line whose columns are not of one length")
        return {}
    return {name: values for name, values in columns.items() if len(values) == length}
