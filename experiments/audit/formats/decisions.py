"""Our own decision log, see `halfway.curriculum.decision_log`: one record per group, with what became of it."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from halfway.curriculum.rollouts import Origin
from halfway.experiments.audit.collector import Collector
from halfway.experiments.audit.files import Found, Lines
from halfway.experiments.audit.formats.base import Head, Reader
from halfway.experiments.audit.history import OUTCOMES, UNKNOWN, History, Log, Reading


class Decision(msgspec.Struct):
    """A line, as far as it is read."""

    step: int
    problem: str
    origin: str
    outcome: str
    k: int | None
    n: int | None
    tokens: int
    prefix_tokens: int = 0
    policy_version: int | None = None
    reason: str | None = None
    dropped: dict[str, int] = {}

    @property
    def key(self) -> tuple[object, ...]:
        """By which a carried group is known when it comes again."""
        return (self.problem, self.origin, self.prefix_tokens, self.policy_version, self.k, self.n)


class StepRecord(msgspec.Struct):
    """A line of steps.jsonl, as far as it is read."""

    step: int
    seconds: float


class Decisions(Reader):
    """Halfway's decision log."""

    trainer = "Halfway"
    named = True

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("problem", "origin", "decisions", "k", "n", "outcome")

    def log(self, name: str, files: Sequence[Found]) -> Log:
        dropped: Counter[str] = Counter()
        records: list[Decision] = []
        skipped: Counter[str] = Counter()
        seconds: float | None = None
        for found in files:
            steps = _steps(found)
            last = steps[-1].step if steps else None
            seconds = steps[-1].seconds if steps else seconds
            waiting: dict[tuple[object, ...], list[Decision]] = {}
            for rows in Lines(Decision, lambda reason: dropped.update((reason,))).batches(found.path):
                for row in rows:
                    if last is not None and row.step > last:
                        dropped["group of a step that was not finished"] += 1
                    elif row.outcome == "skipped":
                        skipped[row.reason or "not said"] += 1
                    elif row.origin == Origin.STORED:
                        dropped["group that was trained once more, not rolled out again"] += 1
                    elif not _seen_before(row, waiting):
                        records.append(row)
        reading = Reading(name, self.trainer, measure="tokens", dropped=dict(dropped))
        history = _history(records, dict(skipped))
        hours = None if seconds is None else seconds / 3600
        return Log("", history, reading, hours=hours, hours_from="steps.jsonl")

    def read_file(self, found: Found, into: Collector) -> None:
        raise AssertionError("a decision log is made of groups, see `log`")


def _steps(found: Found) -> list[StepRecord]:
    """The finished steps of the run, where its folder has them."""
    path = found.path.with_name("steps.jsonl")
    return [row for rows in Lines(StepRecord, lambda _: None).batches(path) for row in rows] if path.is_file() else []


def _seen_before(row: Decision, waiting: dict[tuple[object, ...], list[Decision]]) -> bool:
    """Whether the group was carried out of an earlier step; it then takes over what became of it."""
    earlier = next((record for record in waiting.get(row.key, ()) if record.step < row.step), None)
    if earlier is not None:
        if row.outcome != "carried":
            waiting[row.key].remove(earlier)
        earlier.outcome = row.outcome
        return True
    if row.outcome == "carried":
        waiting.setdefault(row.key, []).append(row)
    return False


def _history(records: Sequence[Decision], skipped: dict[str, int]) -> History:
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
