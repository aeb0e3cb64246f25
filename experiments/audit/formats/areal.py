"""Reads AReaL's logs: with `rollout.dump_to_file`, AReaL writes one rollout per line.

The files are LOGS/experiment/trial/rollout/{version}/{task_id}.jsonl, written by `WorkflowExecutor._dump_trajectory` in
areal/infra/workflow_executor.py (1.0.4). AReaL writes them before it asks `should_accept`, so refused rollouts are
included, but rollouts without a completion are not.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import Head, JsonLines
from halfway.experiments.audit.history import Reading


class ArealRow(msgspec.Struct, gc=False):
    """The fields of a line that are read."""

    task_id: int | str
    prompt: msgspec.Raw
    completion: msgspec.Raw
    reward: float | None = None
    seqlen: int = 0
    prompt_len: int = 0
    head_version: int = 0
    tail_version: int = 0


class Areal(JsonLines[ArealRow]):
    """Reads AReaL's dumped trajectories."""

    trainer = "AReaL"
    row = ArealRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("task_id", "sample_idx", "prompt", "completion", "reward") and head.has("tail_version")

    @classmethod
    def run_of(cls, found: Found) -> Path:
        return found.path.parent.parent

    def reading(self, name: str) -> Reading:
        return Reading(
            name,
            self.trainer,
            guesses=(
                "problems are told apart by their prompts, since the log has no key",
                "a group's step is the newest policy version among its first rollouts",
            ),
        )

    def rollouts(self, rows: Sequence[ArealRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        version = found.path.parent.name
        steps = [int(version)] * len(rows) if version.isdecimal() else [row.tail_version for row in rows]
        problems = [bytes(row.prompt) for row in rows]
        return RolloutColumns(
            steps=steps,
            problems=problems,
            rewards=[row.reward for row in rows],
            # A resumed run numbers its tasks from 0 again, so the number alone does not identify a group.
            groups=[(row.task_id, problem) for row, problem in zip(rows, problems, strict=True)],
            responses=[bytes(row.completion) for row in rows],
            tokens=[max(0, row.seqlen - row.prompt_len) for row in rows],
        )
