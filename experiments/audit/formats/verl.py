"""Reads verl's logs: with `trainer.rollout_data_dir`, it writes one file per step, with one rollout per line.

The files are written by `_write_generations` in verl/trainer/ppo/ray_trainer.py and verl/trainer/ppo/v1/trainer_base.py
(verl 0.9.1). The classic trainer writes every field of reward_extra_info beside the score. V1 instead writes a uid, by
which it sorts the rollouts: the keys of prompt, rollout and output, joined by underscores.
"""

from collections.abc import Sequence

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import NULL, UNSET, Head, JsonLines
from halfway.experiments.audit.history import Reading

FLAGS = {b"true": True, b"false": False, b"null": None}


class VerlRow(msgspec.Struct, gc=False):
    """The fields of a line that are read. `acc` comes from the reward_extra_info of mathematical reward functions."""

    input: msgspec.Raw
    output: msgspec.Raw
    gts: msgspec.Raw = NULL
    score: float | None = None
    step: int = 0
    acc: msgspec.Raw = UNSET
    uid: str | None = None
    data_source: str | None = None


class Verl(JsonLines[VerlRow]):
    """Reads verl's rollout dumps, classic and V1."""

    trainer = "verl"
    row = VerlRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("input", "output", "score", "step") and head.has("gts")

    def reading(self, name: str) -> Reading:
        return Reading(
            name, self.trainer, guesses=("problems are told apart by prompt and reference, since the log has no key",)
        )

    def rollouts(self, rows: Sequence[VerlRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        passed = [_flag(bytes(row.acc)) for row in rows]
        if self.choices.passes_at is None and any(flag is not None for flag in passed):
            into.guess(
                "the field acc says what passed, the score says which groups are silent; --passes-at goes by the "
                "score alone"
            )
        first = rows[0]
        if first.uid is not None:
            into.trap("V1 writes no reward_extra_info: acc and the parts of the score are lost")
            into.trap(
                "with filter_groups the groups that V1 evicted are not in the dump; if it was on, the shares of silent "
                "groups here are shares after the filter"
            )
        groups = None if first.uid is None else [_prompt_of(row.uid or "") for row in rows]
        sources = [row.data_source or "" for row in rows]
        return RolloutColumns(
            steps=[row.step for row in rows],
            problems=[bytes(row.input) for row in rows],
            answers=[bytes(row.gts) for row in rows],
            rewards=[row.score for row in rows],
            groups=groups,
            responses=[bytes(row.output) for row in rows],
            categories=sources if any(sources) else None,
            passed=passed,
        )


def _prompt_of(uid: str) -> str:
    """The part of a uid that the rollouts of one prompt share."""
    return uid.rsplit("_", 2)[0]


def _flag(value: bytes) -> bool | None:
    """Whether a JSON value is true or a number above one half; None if it is neither a truth value nor a number."""
    if value in FLAGS:
        return FLAGS[value]
    try:
        return float(value) > 0.5
    except ValueError:
        return None
