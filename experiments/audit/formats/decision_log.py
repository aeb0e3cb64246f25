"""Reads Halfway's decision log (`halfway.curriculum.decision_log`): one record per group, with its outcome."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from halfway.curriculum import Origin
from halfway.curriculum.decision_log import GroupRecord, sort_records
from halfway.curriculum.support.extras import clean
from halfway.experiments.audit.files import Lines, LogFile, Row, why_refused
from halfway.experiments.audit.formats.base import Reader
from halfway.experiments.audit.history import OUTCOMES, UNKNOWN, History, Log, Reading

OTHERS = "another row of `halfway list`"
HOSTED = f"{OTHERS} (docs/hosts/README.md)"


class StepRecord(msgspec.Struct):
    """The fields to read from a line of steps.jsonl."""

    step: int
    seconds: float


class Hosted(msgspec.Struct):
    """The field to read from hosted.json: name and version of the trainer in which a chain ran."""

    host: str


class Decisions(Reader):
    """Reads Halfway's decision log."""

    trainer = "Halfway"
    next_step = "in Halfway: `controllers: [uniform, greso]` in the run's YAML, or " + OTHERS
    known_by = ("problem", "origin", "decisions", "k", "n", "outcome")
    named = True

    def log(self, name: str, files: Sequence[LogFile]) -> Log:
        dropped: Counter[str] = Counter()
        groups: list[GroupRecord] = []
        skipped = 0
        hours: float | None = None
        for file in files:
            lines = Lines(GroupRecord, lambda reason: dropped.update((reason,))).batches(file.path)
            last = _last_step(file)
            hours = last.seconds / 3600 if last else hours
            records = sort_records([record for batch in lines for record in batch], last.step if last else None)
            stored = sum(group.origin == Origin.STORED for group in records.groups)
            dropped["group of a step that was not finished"] += records.unfinished
            dropped["group that was trained once more, not rolled out again"] += stored
            groups += [group for group in records.groups if group.origin != Origin.STORED]
            skipped += len(records.skips)
        host = next(filter(None, map(_host, files)), "")
        advice = f"in {host}: add `greso` to the chain, or {HOSTED}" if host else self.next_step
        if any(name == "greso" for group in groups for name, _ in group.decisions):
            advice = f"in {host or 'Halfway'}: the chain has `greso`; try {HOSTED if host else OTHERS}"
        reading = Reading(name, self.trainer, measure="tokens", dropped=+dropped, next_step=advice)
        return Log("", _history(groups, skipped), reading, hours=hours)


def _last_step(file: LogFile) -> StepRecord | None:
    """The last finished step of the run; None if its folder does not have it."""
    return next((batch[-1] for batch in reversed(_beside(file, "steps.jsonl", StepRecord))), None)


def _beside(file: LogFile, name: str, kind: type[Row]) -> list[list[Row]]:
    """The records of another file in a log's folder, in batches; none if it must not be opened."""
    path = file.path.with_name(name)
    return [] if why_refused(path, path.parent) else list(Lines(kind, lambda _: None).batches(path))


def _host(file: LogFile) -> str:
    """The trainer in which the chain ran; "" if that was Halfway's own."""
    hosted = _beside(file, "hosted.json", Hosted)
    return clean(hosted[0][0].host)[:80] if hosted else ""


def _history(groups: Sequence[GroupRecord], skipped: int) -> History:
    places = {problem: i for i, problem in enumerate(dict.fromkeys(group.problem for group in groups))}
    groups = sorted(groups, key=lambda group: group.step)
    passed_V = np.asarray([group.k or 0 for group in groups], np.int32)
    size_V = np.asarray([group.size for group in groups], np.int32)
    codes = {outcome: i for i, outcome in enumerate(OUTCOMES)}
    return History(
        problems=tuple(places),
        category_P=("",) * len(places),
        problem_V=np.asarray([places[group.problem] for group in groups], np.int32),
        step_V=np.asarray([group.step for group in groups], np.int64),
        passed_V=passed_V,
        size_V=size_V,
        one_text_V=np.zeros(len(groups), np.bool_),
        zero_variance_V=(size_V > 0) & ((passed_V == 0) | (passed_V == size_V)),
        tokens_V=np.asarray([group.tokens for group in groups], np.int64),
        fresh_V=np.asarray([group.fresh for group in groups], np.bool_),
        outcome_V=np.asarray([codes.get(group.outcome, UNKNOWN) for group in groups], np.int8),
        lost_V=np.asarray([sum(group.dropped.values()) for group in groups], np.int32),
        skipped=skipped,
    )
