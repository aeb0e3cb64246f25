"""Reads plain tables in JSON Lines, CSV or Parquet, with a problem, a reward and, if there is one, a step in each row.

Columns may have any of their usual names. A row may also stand for a group, with a list of rewards, or with the number
of rollouts and the number that passed; or for a whole step: DeepScaleR and POLARIS write one line per step,
`{index: [..], score: [..]}`.
"""

import csv
import io
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.support.errors import require
from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.database import batches
from halfway.experiments.audit.files import LINES, UNREADABLE, Lines, LogFile, opened, unreadable
from halfway.experiments.audit.formats.base import NULL, Reader
from halfway.experiments.audit.history import UNKNOWN

TEXTS = ("prompt", "question", "input")
ROWS = 8192
MOST_ROLLOUTS = 100_000
"""How many rollouts a row with counts may stand for."""

MOST_COUNTED = 5_000_000
"""How many rollouts all rows with counts of a file may stand for."""

LONGEST_ROW = 16 << 20
"""Maximum characters per line of a CSV file; what comes after them counts as another row."""

csv.field_size_limit(LONGEST_ROW)
Batch = Mapping[str, Sequence[Any]]


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
    def of(cls, names: Iterable[str], reward: str = "") -> "ColumnNames":
        """The columns among these names; `reward` is the name of the reward's column, "" = a usual one."""
        known = {**USUAL, "reward": (reward,)} if reward else USUAL
        return cls(**{column: next((name for name in known[column] if name in names), "") for column in cls._fields})

    @property
    def enough(self) -> bool:
        return bool(self.problem and (self.reward or (self.passed and self.size)))

    @property
    def used(self) -> list[str]:
        return [name for name in dict.fromkeys(self) if name]


USUAL = {
    "problem": ("problem", "problem_id", "prompt_id", "question_id", "example_id", "task_id", "index", "id", *TEXTS),
    "step": ("step", "global_step", "training_step", "iteration", "epoch"),
    "reward": ("reward", "rewards", "score", "scores", "correct", "passed", "success", "acc", "accuracy"),
    "passed": ("k", "num_passed", "successes"),
    "size": ("n", "num_rollouts", "attempts"),
    "tokens": ("tokens", "num_tokens", "response_tokens", "completion_tokens", "response_length"),
    "response": ("response", "completion", "output"),
    "category": ("category", "data_source", "source", "domain", "topic", "task"),
    "group": ("group", "group_id", "uid"),
}
"""The usual names of each column, the likeliest first."""


class Table(Reader):
    """Reads plain tables of problems and rewards."""

    trainer = "a plain table"
    chooses_reward = True
    named = True

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return ColumnNames.of(file.columns).enough

    def names_problems(self, files: Sequence[LogFile]) -> bool:
        return all(ColumnNames.of(file.columns).problem not in TEXTS for file in files)

    def read_file(self, file: LogFile, into: HistoryBuilder) -> None:
        columns = ColumnNames.of(file.columns, self.choices.reward)
        require(columns.enough, "--reward", self.choices.reward, f"{file.path} has no such column")
        counted = f"{columns.passed} of {columns.size}"
        into.guess(
            f"columns: problem {columns.problem}, reward {columns.reward or counted}, step {columns.step or '-'}"
        )
        if not columns.step:
            into.trap("the table has no step, so nothing is said about change over time")
        left, rows = MOST_COUNTED, zip(repeat(file.path), count())
        for batch in _batches(file, columns, into):
            for rollouts in _rollouts(batch, columns, rows):
                if not columns.reward:
                    left -= len(rollouts.steps)
                if left < 0:
                    into.drop(f"row after counts of more than {MOST_COUNTED:,} rollouts")
                    continue
                into.add(rollouts)


def _batches(file: LogFile, columns: ColumnNames, into: HistoryBuilder) -> Iterator[Batch]:
    if file.kind == ".parquet":
        return batches(file.path, file.given, columns.used, into.drop)
    return _lines(file, columns, into) if file.kind in LINES else _csv(file, columns, into)


def _lines(file: LogFile, columns: ColumnNames, into: HistoryBuilder) -> Iterator[Batch]:
    numbers = {columns.reward, columns.passed, columns.size, columns.tokens, columns.step}
    fields: list[tuple[str, Any, Any]] = []
    for i, name in enumerate(columns.used):
        listed = file.opens(name) == b"["
        if listed and name in (columns.reward, columns.problem):
            fields.append((f"f{i}", list[Any] | None, None))
        elif (name in numbers and not listed) or name == columns.problem:
            fields.append((f"f{i}", float | int | bool | str | None, None))
        else:
            fields.append((f"f{i}", msgspec.Raw, NULL))
    names = {field: name for (field, _, _), name in zip(fields, columns.used, strict=True)}
    row = msgspec.defstruct("Row", fields, rename=names, gc=False)
    for rows in Lines(row, into.drop).batches(file.path):
        yield {name: list(map(attrgetter(field), rows)) for field, name in names.items()}


def _csv(file: LogFile, columns: ColumnNames, into: HistoryBuilder) -> Iterator[Batch]:
    places: dict[str, int] = {}
    whole: list[list[str]] = []
    try:
        with opened(file.path) as binary:
            text = io.TextIOWrapper(cast(BinaryIO, binary), encoding="utf-8-sig", errors="replace", newline="")
            rows = csv.reader(iter(lambda: text.readline(LONGEST_ROW), ""))
            header = [name.strip() for name in next(rows, [])]
            places = {name: header.index(name) for name in columns.used}
            for row in rows:
                if len(row) != len(header):
                    into.drop("row with more or fewer columns than the header")
                    continue
                whole.append(row)
                if len(whole) == ROWS:
                    yield {name: [row[i] for row in whole] for name, i in places.items()}
                    whole = []
    except (*UNREADABLE, csv.Error) as error:
        into.drop(unreadable(error))
    if whole:
        yield {name: [row[i] for row in whole] for name, i in places.items()}


def _rollouts(batch: Batch, columns: ColumnNames, rows: Iterator[Hashable]) -> Iterator[RolloutColumns]:
    """Yield the rollouts of a batch of rows: one per row, or several where a row stands for a group or a whole step.

    Args:
        rows: what tells rows apart that stand for a group.
    """
    problems = batch[columns.problem]
    steps = _integers(batch[columns.step]) if columns.step else [0] * len(problems)
    if not columns.reward:
        sizes = zip(map(_whole, batch[columns.passed]), map(_whole, batch[columns.size]), strict=True)
        rewards = [[1.0] * k + [0.0] * (n - k) if 0 <= k <= n <= MOST_ROLLOUTS else None for k, n in sizes]
        yield from _expanded(problems, rewards, steps, rows)
    elif list in set(map(type, batch[columns.reward])):
        yield from _expanded(problems, batch[columns.reward], steps, rows)
    else:
        yield _one_per_row(batch, columns, steps)


def _one_per_row(batch: Batch, columns: ColumnNames, steps: Sequence[int] | NDArray[Any]) -> RolloutColumns:
    problems = batch[columns.problem]
    rollouts = RolloutColumns(
        steps, problems if all_of(str, problems) else list(map(_key, problems)), _rewards(batch[columns.reward])
    )
    if columns.group:
        rollouts.groups = [(step, _key(group)) for step, group in zip(steps, batch[columns.group], strict=True)]
    if columns.response:
        rollouts.responses = list(map(_key, batch[columns.response]))
    if columns.tokens:
        rollouts.tokens = list(map(_count, batch[columns.tokens]))
    if columns.category:
        rollouts.categories = [_key(value).decode("utf-8", "replace").strip('"') for value in batch[columns.category]]
    return rollouts


def _expanded(
    problems: Sequence[Any], rewards: Sequence[Any], steps: Sequence[int] | NDArray[Any], rows: Iterator[Hashable]
) -> Iterator[RolloutColumns]:
    """Yield the rollouts of rows that each hold a list of rewards, of one problem or of a list of problems."""
    for problem, row_rewards, step in zip(problems, rewards, steps, strict=True):
        if isinstance(row_rewards, list):
            several = problem if isinstance(problem, list) else [problem] * len(row_rewards)
            size = min(len(several), len(row_rewards))
            row = RolloutColumns([step] * size, list(map(_key, several[:size])), list(map(_number, row_rewards[:size])))
            if several is not problem:
                row.groups = [next(rows)] * size
            yield row


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
    numbers = _array(values, "i")
    if numbers is not None:
        return numbers
    return values if all_of(int, values) else list(map(_whole, values))  # too large numbers are dropped later


def _rewards(values: Sequence[Any]) -> Sequence[float | None] | NDArray[Any]:
    numbers = _array(values, "bif")
    return list(map(_number, values)) if numbers is None else numbers


def _array(values: Sequence[Any], kinds: str) -> NDArray[Any] | None:
    """The values as an array, if all are numbers of these numpy kinds, as they usually are; otherwise None."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # for example lists of different lengths
        return None
    return array if array.ndim == 1 and array.dtype.kind in kinds else None


def _number(value: Any) -> float | None:
    """A cell as a number, with 1 and 0 for true and false; None if it is neither."""
    if isinstance(value, str):
        value = {"true": 1, "false": 0}.get(value.strip().lower(), value)
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2**53 else 0


def _count(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**31 else UNKNOWN
