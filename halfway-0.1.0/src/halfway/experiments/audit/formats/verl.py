"""Reads verl's rollout dumps, with one rollout per line."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import NULL, Columns, JsonLines

FLAGS = {b"true": True, b"false": False, b"null": None}


class VerlRow(msgspec.Struct, gc=False):
    """The fields to read from a line. `acc` comes from the reward_extra_info of mathematical reward functions."""

    input: msgspec.Raw
    output: msgspec.Raw
    gts: msgspec.Raw = NULL
    score: float | None = None
    step: int = 0
    acc: msgspec.Raw = NULL
    uid: str | None = None
    data_source: str | None = None

    @property
    def passed(self) -> bool | None:
        """True if `acc` is true or a number above one half; None if it is neither a truth value nor a number."""
        acc = bytes(self.acc)
        if acc in FLAGS:
            return FLAGS[acc]
        try:
            return float(acc) > 0.5
        except ValueError:
            return None

    @property
    def group(self) -> str:
        """The uid without the keys of rollout and output at its end; shared by the rollouts of one prompt."""
        return (self.uid or "").rsplit("_", 2)[0]

    @property
    def rollout(self) -> str:
        """The part of the uid shared by the outputs of one rollout."""
        return (self.uid or "").rpartition("_")[0]


class Verl(JsonLines[VerlRow]):
    """Reads verl's rollout dumps: with `trainer.rollout_data_dir`, one file per step.

    The files are written by `_write_generations` in verl/trainer/ppo/ray_trainer.py and
    verl/trainer/ppo/v1/trainer_base.py (verl 0.9.1). The classic trainer writes every field of reward_extra_info beside
    the score. V1 instead writes a uid: the keys of prompt, rollout and output, joined by underscores.
    """

    trainer = "verl"
    next_step = (
        "in verl: `+halfway=session data.halfway.chain=[uniform,greso]` skips problems that taught nothing lately "
        "(docs/hosts/verl.md); `algorithm.filter_groups.enable=True` replaces them, at full price"
    )
    known_by = ("input", "output", "score", "step", "gts")
    guesses = ("problems are identified by prompt and reference, since the log has no key",)
    row = VerlRow
    columns: ClassVar[Columns] = {
        "steps": "step",
        "problems": "input",
        "answers": "gts",
        "rewards": "score",
        "responses": "output",
        "passed": "passed",
    }

    def rollouts(self, rows: Sequence[VerlRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns:
        if rows[0].uid is not None:
            last = list({row.rollout: row for row in rows}.values())  # the last output has the score, as in the trainer
            if len(last) < len(rows):
                into.drop("earlier output of a rollout", len(rows) - len(last))
            rows = last
        rollouts = super().rollouts(rows, file, into)
        assert rollouts is not None and rollouts.passed is not None
        if self.choices.passes_at is None and any(flag is not None for flag in rollouts.passed):
            into.guess(
                "the field acc decides what passed, the score which groups have zero variance; --passes-at uses the "
                "score alone"
            )
        if rows[0].uid is not None:
            into.trap("V1 writes no reward_extra_info: acc and the parts of the score are lost")
            into.trap(
                "with filter_groups the groups that V1 evicted are not in the dump; if it was on, the shares of "
                "zero-variance groups here are shares after the filter"
            )
            rollouts.groups = [row.group for row in rows]
        if any(row.data_source for row in rows):
            rollouts.categories = [row.data_source or "" for row in rows]
        return rollouts
