"""Reads Halfway's decision log (`halfway.curriculum.decision_log`): one record per group, with its outcome."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from halfway.curriculum.decision_log import GroupRecord, each_once
from halfway.curriculum.rollouts import Origin
from halfway.experiments.audit.builder import HistoryBuilder
from halfway.experiments.audit.files import Found, Lines
from halfway.experiments.audit.formats.base import Head, Reader
from halfway.experiments.audit.history import OUTCOMES, UNKNOWN, History, Log, Reading


class StepRecord(msgspec.Struct):
    """The fields of a line of steps.jsonl that are read."""

    step: int
    seconds: float


class Decisions(Reader):
    """Reads Halfway's decision log."""

    trainer = "Halfway"
    named = True

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("problem", "origin", "decisions", "k", "n", "outcome")

    def log(self, name: str, files: Sequence[Found]) -> Log:
        dropped: Counter[str] = Counter()
        records: list[GroupRecord] = []
        skipped: Counter[str] = Counter()
        seconds: float | None = None
        for found in files:
            steps = _steps(found)
            last = steps[-1].step if steps else None
            seconds = steps[-1].seconds if steps else seconds
            rolled: list[GroupRecord] = []
            for rows in Lines(GroupRecord, lambda reason: dropped.update((reason,))).batches(found.path):
                for row in rows:
                    if last is not None and row.step > last:
                        dropped["group of a step that was not finished"] += 1
                    elif row.outcome == "skipped":
                        skipped[row.reason or "not said"] += 1
                    elif row.origin == Origin.STORED:
                        dropped["group that was trained once more, not rolled out again"] += 1
                    else:
                        rolled.append(row)
            records += each_once(rolled)
        reading = Reading(name, self.trainer, measure="tokens", dropped=dict(dropped))
        history = _history(records, dict(skipped))
        hours = None if seconds is None else seconds / 3600
        return Log("", history, reading, hours=hours, hours_from="steps.jsonl")

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        raise AssertionError("a decision log is made of groups, see `log`")


def _steps(found: Found) -> list[StepRecord]:
    """The finished steps of the run; empty if its folder has no steps.jsonl."""
    path = found.path.with_name("steps.jsonl")
    return [row for rows in Lines(StepRecord, lambda _: None).batches(path) for row in rows] if path.is_file() else []


def _history(records: Sequence[GroupRecord], skipped: dict[str, int]) -> History:
    places = {problem: i for i, problem in enumerate(dict.fromkeys(record.problem for record in records))}
    order = sorted(range(len(records)), key=lambda i: records[i].step)
    groups = [records[i] for i in order]
    passed_V = np.asarray([group.k or 0 for group in groups], np.int32)
    size_V = np.asarray([group.n or 0 for group in groups], np.int32)
    codes = {outcome: i for i, outcome in enumerate(OUTCOMES)}
    return History(
        problems=tuple(places),
        category_P=("",) * len(places),
        problem_V=np.asarray([places[group.problem] for group in groups], np.int32),
        step_V=np.asarray([group.step for group in groups], np.int64),
        passed_V=passed_V,
        size_V=size_V,
        silent_V=(size_V > 0) & ((passed_V == 0) | (passed_V == size_V)),
        tokens_V=np.asarray([group.tokens for group in groups], np.int64),
        fresh_V=np.asarray([group.origin == Origin.FRESH for group in groups], np.bool_),
        outcome_V=np.asarray([codes.get(group.outcome, UNKNOWN) for group in groups], np.int8),
        lost_V=np.asarray([sum(group.dropped.values()) for group in groups], np.int32),
        skipped=skipped,
    )
