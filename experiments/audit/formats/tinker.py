"""Reads the tinker cookbook's train_rollout_summaries.jsonl, with one rollout per line.

The lines hold neither the prompt nor a key of the problem. They are written by `serialize_rollout_summaries` in
tinker_cookbook/rl/rollout_logging.py (0.6.1).
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import Head, JsonLines
from halfway.experiments.audit.history import Reading


class Turn(msgspec.Struct, gc=False):
    ac_len: int = 0


class TinkerRow(msgspec.Struct):
    """The fields of a line that are read."""

    iteration: int
    group_idx: int
    total_reward: float | None = None
    split: str = "train"
    tags: list[str] = []
    steps: list[Turn] = []


class Tinker(JsonLines[TinkerRow]):
    """Reads rollout summaries of the tinker cookbook."""

    trainer = "tinker-cookbook"
    named = True
    row = TinkerRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("iteration", "group_idx", "traj_idx", "total_reward")

    @classmethod
    def run_of(cls, found: Found) -> Path:
        """The run's folder, which holds the file itself or one folder per iteration with a file in each."""
        folder = found.path.parent
        return folder.parent if any(letter.isdecimal() for letter in folder.name) else folder

    def reading(self, name: str) -> Reading:
        return Reading(
            name,
            self.trainer,
            identified=False,
            traps=("neither prompts nor keys are written, so a problem is not recognised when it comes again",),
        )

    def rollouts(self, rows: Sequence[TinkerRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        kept = [row for row in rows if row.split == "train"]
        if len(kept) < len(rows):
            into.drop("rollout of an evaluation", len(rows) - len(kept))
        keys = [f"{row.iteration}/{row.group_idx}" for row in kept]
        return RolloutColumns(
            steps=[row.iteration for row in kept],
            problems=[key.encode() for key in keys],
            rewards=[row.total_reward for row in kept],
            groups=keys,
            tokens=[sum(turn.ac_len for turn in row.steps) for row in kept],
            categories=[row.tags[0] if row.tags else "" for row in kept],
        )
