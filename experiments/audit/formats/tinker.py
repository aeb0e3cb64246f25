"""Reads the tinker cookbook's summaries of rollouts, with one rollout per line."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import Columns, JsonLines


class Turn(msgspec.Struct, gc=False):
    ac_len: int = 0


class TinkerRow(msgspec.Struct):
    iteration: int
    group_idx: int
    total_reward: float | None = None
    split: str = "train"
    tags: list[str] = []
    steps: list[Turn] = []

    @property
    def group(self) -> str:
        return f"{self.iteration}/{self.group_idx}"


class Tinker(JsonLines[TinkerRow]):
    """Reads the tinker cookbook's train_rollout_summaries.jsonl, with one rollout per line.

    The lines have neither the prompt nor a key of the problem. They are written by `serialize_rollout_summaries` in
    tinker_cookbook/rl/rollout_logging.py (0.6.1).
    """

    trainer = "tinker-cookbook"
    next_step = "in tinker-cookbook: a chain of uniform and greso chooses the problems (docs/hosts/tinker.md)"
    known_by = ("iteration", "group_idx", "traj_idx", "total_reward")
    named = True
    identified = False
    traps = ("the log has neither prompts nor keys, so repeated visits to a problem are not recognised",)
    row = TinkerRow
    columns: ClassVar[Columns] = {
        "steps": "iteration",
        "problems": "group",
        "rewards": "total_reward",
        "groups": "group",
        "tokens": lambda row: sum(turn.ac_len for turn in row.steps),
        "categories": lambda row: row.tags[0] if row.tags else "",
    }

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        """The run's folder, with the file itself or one folder per iteration with a file in each."""
        folder = file.path.parent
        return folder.parent if any(letter.isdecimal() for letter in folder.name) else folder

    def rollouts(self, rows: Sequence[TinkerRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        training = into.keep(rows, lambda row: row.split == "train", "rollout of an evaluation")
        return super().rollouts(training, file, into)
