"""Reads AReaL's dumped trajectories, with one rollout per line."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import BY_PROMPT, Columns, JsonLines


class ArealRow(msgspec.Struct, gc=False):
    task_id: int | str
    prompt: msgspec.Raw
    completion: msgspec.Raw
    reward: float | None = None
    seqlen: int = 0
    prompt_len: int = 0
    tail_version: int = 0


class Areal(JsonLines[ArealRow]):
    """Reads AReaL's dumped trajectories: with `rollout.dump_to_file`, one rollout per line.

    The files are LOGS/experiment/trial/rollout/{version}/{task_id}.jsonl, written by
    `WorkflowExecutor._dump_trajectory` in areal/infra/workflow_executor.py (1.0.4). AReaL writes them before it asks
    `should_accept`, so refused rollouts are included, but rollouts without a completion are not.
    """

    trainer = "AReaL"
    known_by = ("task_id", "sample_idx", "prompt", "completion", "reward", "tail_version")
    guesses = (BY_PROMPT, "a group's step is the newest policy version among its first rollouts")
    row = ArealRow
    columns: ClassVar[Columns] = {
        "steps": "tail_version",
        "problems": "prompt",
        "rewards": "reward",
        # A resumed run numbers its tasks from 0 again, so the number alone does not identify a group.
        "groups": lambda row: (row.task_id, bytes(row.prompt)),
        "responses": "completion",
        "tokens": lambda row: max(0, row.seqlen - row.prompt_len),
    }

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        return file.path.parent.parent

    def rollouts(self, rows: Sequence[ArealRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        rollouts, version = super().rollouts(rows, file, into), file.path.parent.name
        if rollouts is not None and version.isdecimal():
            rollouts.steps = [int(version)] * len(rows)
        return rollouts
