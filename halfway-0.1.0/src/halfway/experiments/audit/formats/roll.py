"""Reads ROLL's logs. With `rollout_dump_dir`, ROLL writes one line per step, with a list for each column.

The files are rollout_dump_data.step_{N}.jsonl, written by `write_to_json_process` in roll/pipeline/rlvr/utils.py. ROLL
writes nothing unless the folder is an absolute path.
"""

from collections.abc import Sequence

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile, number_in
from halfway.experiments.audit.formats.base import JsonLines


class RollRow(msgspec.Struct):
    """The fields to read from a line; all are lists of the same length, or empty."""

    scores: list[float | None]
    id: list[str | int] = []
    prompt: list[msgspec.Raw] = []
    responses: list[msgspec.Raw] = []
    domain: list[str | None] = []
    tag: list[str | None] = []
    global_step: list[int] = []

    @property
    def whole(self) -> bool:
        columns = (self.id, self.prompt, self.responses, self.domain, self.tag, self.global_step)
        return bool(self.id) and all(len(column) in (0, len(self.scores)) for column in columns)


class Roll(JsonLines[RollRow]):
    """Reads ROLL's dumped rollouts of verifiable tasks."""

    trainer = "ROLL"
    known_by = ("scores", "responses", "global_step", "id")
    named = True
    row = RollRow

    def rollouts(self, rows: Sequence[RollRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        for row in rows:
            if not row.whole:
                into.drop("line with columns of different lengths")
                continue
            problems = [str(problem).encode() for problem in row.id]
            for problem, prompt in zip(problems, row.prompt, strict=False):
                into.describe(problem, prompt)
            into.add(
                RolloutColumns(
                    steps=row.global_step or [number_in(file.path.stem) or 0] * len(problems),
                    problems=problems,
                    rewards=row.scores,
                    responses=[bytes(text) for text in row.responses] or None,
                    categories=[kind or "" for kind in row.domain or row.tag] or None,
                )
            )
        return None
