"""Reads plain tables in JSON Lines, CSV or Parquet, with a problem, a reward and, if there is one, a step in each row.

Columns may have any of their usual names. A row may also stand for a group, with a list of rewards, or with the number
of rollouts and the number that passed; or for a whole step: DeepScaleR and POLARIS write one line per step,
`{index: [..], score: [..]}`.
"""

import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.support.errors import require
from halfway.experiments.audit import parquet
from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LINES, Found, Lines, first_record, opened
from halfway.experiments.audit.formats.base import NULL, Head, Reader, head_of
from halfway.experiments.audit.history import UNKNOWN, Reading

PROBLEM = ("problem", "problem_id", "prompt_id", "question_id", "task_id", "index", "id", "prompt", "question", "input")
STEP = ("step", "global_step", "training_step", "iteration", "epoch")
REWARD = ("reward", "rewards", "score", "scores", "correct", "passed", "success", "acc", "accuracy")
PASSED, SIZE = ("k", "num_passed", "successes"), ("n", "num_rollouts", "attempts")
TOKENS = ("tokens", "num_tokens", "response_tokens", "completion_tokens", "response_length")
RESPONSE = ("response", "completion", "output")
CATEGORY = ("category", "data_source", "source", "domain", "topic")
GROUP = ("group", "group_id", "uid")
TEXTS = ("prompt", "question", "input")
ROWS = 8192
csv.field_size_limit(16 << 20)


class ColumnNames(NamedTuple):
    """The names that a table uses for its columns; "" for a column that it does not have."""

    problem: str
    step: str
    reward: str
    passed: str
    size: str
    tokens: str
    response: str
    category: str
    group: str

    @classmethod
    def of(cls, names: frozenset[str], reward: str = "") -> "ColumnNames":
        known = (PROBLEM, STEP, (reward,) if reward else REWARD, PASSED, SIZE, TOKENS, RESPONSE, CATEGORY, GROUP)
        return cls(*(next((name for name in kind if name in names), "") for kind in known))

    @property
    def enough(self) -> bool:
        return bool(self.problem and (self.reward or (self.passed and self.size)))


class Table(Reader):
    """Reads plain tables of problems and rewards."""

    trainer = "a plain table"
    named = True

    @classmethod
    def knows(cls, head: Head) -> bool:
        return ColumnNames.of(head.columns).enough

    def reading(self, name: str) -> Reading:
        return Reading(name, self.trainer)

    def names_problems(self, files: Sequence[Found]) -> bool:
        return all(ColumnNames.of(head_of(found).columns).problem not in TEXTS for found in files)

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        columns = ColumnNames.of(head_of(found).columns, self.choices.reward)
        require(bool(columns.enough), "--reward", self.choices.reward, f"{found.path} has no such column")
        counted = f"{columns.passed} of {columns.size}"
        into.guess(
            f"columns: problem {columns.problem}, reward {columns.reward or counted}, step {columns.step or '-'}"
        )
        if not columns.step:
            into.trap("the table has no step, so nothing is said about change over time")
        for batch in self._batches(found, columns, into):
            for rollouts in _rollouts(batch, columns):
                into.add(rollouts)

    def _batches(
        self, found: Found, columns: ColumnNames, into: HistoryBuilder
    ) -> Iterator[Mapping[str, Sequence[Any]]]:
        used = [name for name in columns if name]
        if found.kind == ".parquet":
            yield from parquet.batches(found.path, used, into.drop)
        elif found.kind in LINES:
            yield from _lines(found, columns, into)
        else:
            yield from _csv(found, columns, into)


def _lines(found: Found, columns: ColumnNames, into: HistoryBuilder) -> Iterator[Mapping[str, Sequence[Any]]]:
    record = first_record(found.path) or {}
    numbers = {columns.reward, columns.passed, columns.size, columns.tokens, columns.step}
    fields: list[tuple[str, Any, Any]] = []
    names = [name for name in dict.fromkeys(columns) if name]
    for i, name in enumerate(names):
        listed = bytes(record.get(name, NULL))[:1] == b"["
        if listed and name in (columns.reward, columns.problem):
            fields.append((f"f{i}", list[Any] | None, None))
        elif (name in numbers and not listed) or name == columns.problem:
            fields.append((f"f{i}", float | int | bool | str | None, None))
        else:
            fields.append((f"f{i}", msgspec.Raw, NULL))
    row = msgspec.defstruct("Row", fields, rename={f"f{i}": name for i, name in enumerate(names)}, gc=False)
    for rows in Lines(row, into.drop).batches(found.path):
        yield {name: list(map(attrgetter(f"f{i}"), rows)) for i, name in enumerate(names)}


def _csv(found: Found, columns: ColumnNames, into: HistoryBuilder) -> Iterator[Mapping[str, Sequence[Any]]]:
    names = [name for name in dict.fromkeys(columns) if name]
    try:
        with opened(found.path) as file:
            text = io.TextIOWrapper(cast(BinaryIO, file), encoding="utf-8-sig", errors="replace", newline="")
            rows = csv.reader(text)
            header = [name.strip() for name in next(rows, [])]
            places = [header.index(name) for name in names]
            kept: list[list[str]] = []
            for row in rows:
                if len(row) != len(header):
                    into.drop("row with more or fewer columns than the header")
                    continue
                kept.append(row)
                if len(kept) == ROWS:
                    yield {name: [row[i] for row in kept] for name, i in zip(names, places, strict=True)}
                    kept = []
            yield {name: [row[i] for row in kept] for name, i in zip(names, places, strict=True)}
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        into.drop(f"file that could not be read to its end ({type(error).__name__})")


def _rollouts(batch: Mapping[str, Sequence[Any]], columns: ColumnNames) -> Iterator[RolloutColumns]:
    """Yield the rollouts of a batch of rows: one per row, or several where a row stands for a group or a whole step."""
    problems = batch[columns.problem]
    steps = _integers(batch[columns.step]) if columns.step else [0] * len(problems)
    rewards = _rewards(batch[columns.reward]) if columns.reward else []
    if columns.reward and not isinstance(rewards, np.ndarray) and list in set(map(type, batch[columns.reward])):
        for problem, rewards, step in zip(problems, batch[columns.reward], steps, strict=True):
            if isinstance(problem, list):  # the row holds a whole step
                count = min(len(problem), len(rewards or ()))
                yield _of(problem[:count], list(map(_number, (rewards or [])[:count])), [step] * count)
            elif isinstance(rewards, list):
                yield _of([problem] * len(rewards), list(map(_number, rewards)), [step] * len(rewards))
        return
    if not columns.reward:
        for problem, passed, size, step in zip(
            problems, batch[columns.passed], batch[columns.size], steps, strict=True
        ):
            k, n = _whole(passed), _whole(size)
            if 0 <= k <= n <= 100_000:
                yield _of([problem] * n, [1.0] * k + [0.0] * (n - k), [step] * n)
        return
    extra = {
        name: batch[getattr(columns, name)]
        for name in ("tokens", "response", "category", "group")
        if getattr(columns, name)
    }
    yield RolloutColumns(
        steps=steps,
        problems=problems if all_of(str, problems) else list(map(_key, problems)),
        rewards=rewards,
        groups=[(step, _key(group)) for step, group in zip(steps, extra["group"], strict=True)]
        if "group" in extra
        else None,
        responses=list(map(_key, extra["response"])) if "response" in extra else None,
        tokens=[_count(value) for value in extra["tokens"]] if "tokens" in extra else None,
        categories=[_key(value).decode("utf-8", "replace").strip('"') for value in extra["category"]]
        if "category" in extra
        else None,
    )


def _of(problems: Sequence[Any], rewards: Sequence[float | None], steps: Sequence[int]) -> RolloutColumns:
    return RolloutColumns(steps, list(map(_key, problems)), rewards)


def _key(value: Any) -> bytes:
    """A cell as bytes that identify its content, such as a problem's name."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, msgspec.Raw):
        raw = bytes(value)
        return raw[1:-1] if raw[:1] == b'"' else raw
    return repr(value).encode("utf-8", "replace")


def all_of(kind: type, values: Sequence[Any]) -> bool:
    """Whether all values have exactly this type, as they usually do; then they need no conversion one by one."""
    return set(map(type, values)) == {kind}


def _integers(values: Sequence[Any]) -> Sequence[int] | NDArray[Any]:
    found = _array(values, "i")
    if found is not None:
        return found
    return values if all_of(int, values) else list(map(_whole, values))  # too large numbers are dropped later


def _rewards(values: Sequence[Any]) -> Sequence[float | None] | NDArray[Any]:
    found = _array(values, "bif")
    return list(map(_number, values)) if found is None else found


def _array(values: Sequence[Any], kinds: str) -> NDArray[Any] | None:
    """The values as an array, if all are numbers of these numpy kinds, as they usually are; otherwise None."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):  # for example lists of different lengths
        return None
    return found if found.ndim == 1 and found.dtype.kind in kinds else None


def _number(value: Any) -> float | None:
    """A cell as a number, with 1 and 0 for true and false; None if it is neither."""
    if isinstance(value, str):
        if value.strip().lower() in ("true", "false"):
            return float(value.strip().lower() == "true")
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2**53 else 0


def _count(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**31 else UNKNOWN
