"""Reads ROLL's logs: with `rollout_dump_dir`, it writes one line per step, which holds a list for each column.

The files are rollout_dump_data.step_{N}.jsonl, written by `write_to_json_process` in roll/pipeline/rlvr/utils.py. ROLL
writes nothing unless the folder is an absolute path.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found, number_in
from halfway.experiments.audit.formats.base import Head, JsonLines
from halfway.experiments.audit.history import Reading


class RollRow(msgspec.Struct):
    """The fields of a line that are read; all are lists of the same length, or empty."""

    scores: list[float | None]
    id: list[str | int] = []
    prompt: list[msgspec.Raw] = []
    responses: list[msgspec.Raw] = []
    ground_truth: list[msgspec.Raw] = []
    domain: list[str | None] = []
    tag: list[str | None] = []
    global_step: list[int] = []


class Roll(JsonLines[RollRow]):
    """Reads ROLL's dumped rollouts of verifiable tasks."""

    trainer = "ROLL"
    named = True
    row = RollRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("scores", "responses", "global_step") and head.has("id")

    def reading(self, name: str) -> Reading:
        return Reading(name, self.trainer)

    def rollouts(self, rows: Sequence[RollRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        for row in rows:
            length = len(row.scores)
            columns: Mapping[str, Sequence[Any]] = {
                name: getattr(row, name) for name in ("id", "prompt", "responses", "domain", "tag", "global_step")
            }
            if any(len(values) not in (0, length) for values in columns.values()) or not row.id:
                into.drop("line whose columns are not of one length")
                continue
            problems = [str(each).encode() for each in row.id]
            for problem, prompt in zip(problems, row.prompt, strict=False):
                into.describe(problem, " ".join(bytes(prompt)[:600].decode("utf-8", "replace").strip('"').split()))
            into.add(
                RolloutColumns(
                    steps=row.global_step or [number_in(found.path.stem) or 0] * length,
                    problems=problems,
                    rewards=row.scores,
                    responses=[bytes(text) for text in row.responses] or None,
                    categories=[each or "" for each in row.domain or row.tag] or None,
                )
            )
        return None
