"""Reads plain tables in JSON Lines, CSV or Parquet, with a problem, a reward and, if there is one, a step in each row.

A table in several files may have its steps in the names of files or folders, as prime-rl's of April to July 2026
(`rollouts/step_N/train_rollouts.jsonl`).

Columns may have any of their usual names. A row may also be a group, with a list of rewards, or with the number of
rollouts and the number that passed; or a whole step: DeepScaleR and POLARIS write one line per step, `{index: [..],
score: [..]}`.
"""

import csv
import io
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import require
from halfway.experiments.audit.builder import ERROR, HistoryBuilder, RolloutColumns
from halfway.experiments.audit.database import batches
from halfway.experiments.audit.files import (
    LINES,
    UNREADABLE,
    Lines,
    LogFile,
    delimiter,
    number_in,
    open_log,
    unreadable,
)
from halfway.experiments.audit.formats.base import NULL, Choices, Reader
from halfway.experiments.audit.history import UNKNOWN, Log

TEXTS = ("prompt", "question", "input")
STEP = re.compile(r"(?:step|iter|iteration|epoch|batch|ckpt|checkpoint)s?[-_=]?(\d+)", re.IGNORECASE)
PART = re.compile(r"(?:part|shard|rank|worker|chunk|split|seed|gpu|proc)[-_]?\d|\d+-of-\d+", re.IGNORECASE)
EVALUATION = re.compile(r"(?:^|[-_])(?:evals?|evaluation|val|valid|validation)(?:[-_]|$)", re.IGNORECASE)
TRAINING = frozenset({"train", "training"})
FLAGS = {"is_train": "false", "is_eval": "true", "is_val": "true", "is_validation": "true", "validate": "true"}
"""Columns that say whether a row is of an evaluation, and the word for yes."""
OF_EVALUATION = "file of an evaluation"
NOTHING = frozenset({"", "null", "none", "nan", "false", "0", "no", "{}", "[]"})
"""Values in the column of errors that mean no error."""

ROWS = 8192
MOST_ROLLOUTS = 100_000
"""Maximum number of rollouts of a row with counts."""

MOST_COUNTED = 5_000_000
"""Maximum number of rollouts of all rows with counts in a file."""

LONGEST_ROW = 16 << 20
"""Maximum characters per line of a CSV file; the rest counts as another row."""

csv.field_size_limit(LONGEST_ROW)
Batch = Mapping[str, Sequence[Any]]


class ColumnNames(NamedTuple):
    """A table's names of the columns; "" for a column that it lacks."""

    problem: str
    step: str
    reward: str
    passed: str
    size: str
    verdict: str
    tokens: str
    response: str
    category: str
    group: str
    error: str
    split: str
    advantage: str
    text: str

    @classmethod
    def of(cls, names: Iterable[str], choices: Choices | None = None) -> "ColumnNames":
        """Find the columns among these names, by the user's choices, otherwise by their usual names."""
        choices, names = choices or Choices(), list(names)
        known: dict[str, tuple[str, ...]] = dict(USUAL)
        if choices.reward:
            rewards = tuple(choices.weights(names)) if set(choices.rewards) <= set(names) else ()
            known |= {"reward": rewards, "passed": (), "verdict": ()}
        if choices.problem:
            known["problem"] = (choices.problem,)
        found = cls(**{column: next((name for name in known[column] if name in names), "") for column in cls._fields})
        taken = {found.reward: "verdict", found.problem: "text"}
        return found._replace(**{column: "" for name, column in taken.items() if getattr(found, column) == name})

    @property
    def enough(self) -> bool:
        return bool(self.problem and (self.reward or self.counts))

    @property
    def counts(self) -> bool:
        """True if rows may be groups, with the number of rollouts and the number that passed."""
        return bool(self.passed and self.size)

    @property
    def used(self) -> list[str]:
        return [name for name in dict.fromkeys(self) if name]


VERDICT_WORDS = {"true": 1, "pass": 1, "passed": 1, "false": 0, "fail": 0, "failed": 0}
VERDICTS = ("correct", "is_correct", "passed", "success", "acc")
USUAL = {
    "problem": ("problem", "problem_id", "prompt_id", "question_id", "example_id", "task_id", "index", "id", *TEXTS),
    "step": ("step", "global_step", "training_step", "iteration", "epoch"),
    "reward": ("reward", "rewards", "score", "scores", "correct", "passed", "success", "acc", "accuracy"),
    "passed": ("k", "num_passed", "num_correct", "successes"),
    "size": ("n", "num_rollouts", "num_samples", "attempts"),
    "verdict": VERDICTS,
    "tokens": ("tokens", "num_tokens", "response_tokens", "completion_tokens", "response_length"),
    "response": ("response", "completion", "output"),
    "category": ("category", "data_source", "source", "domain", "topic", "task"),
    "group": ("group", "group_id", "uid"),
    "error": ("error", "exception", "has_error"),
    "split": ("split", "phase", "mode", *FLAGS),
    "advantage": ("advantage", "advantages"),
    "text": TEXTS,
}
"""The usual names of each column, the likeliest first."""


HEEDED: tuple[Literal["within", "alone", ""], ...] = ("within", "alone", "")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read a table. If it finds groups of one rollout, other ways are tried.

    Attributes:
        grouped: use of the column that names groups: within a problem, alone, or none ("").
        by_text: whether problems are identified by their texts in spite of ids.
        training: whether only rows of the training split count.
    """

    grouped: Literal["within", "alone", ""] = "within"
    by_text: bool = False
    training: bool = False

    def columns(self, file: LogFile, choices: Choices) -> ColumnNames:
        """Find the columns of a file, and apply this way of reading to them."""
        found = ColumnNames.of(file.columns, choices)
        if self.by_text and found.text:
            found = found._replace(problem=found.text, text="")
        return found if self.grouped else found._replace(group="")


class Table(Reader):
    """Reads plain tables of problems and rewards."""

    trainer = "a plain table"
    chooses = frozenset({"reward", "problem"})
    named = True
    way = Way()

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return ColumnNames.of(file.columns).enough

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        """The file's folder; the parent folder if its name is a step's."""
        run = super().run_of(file)
        return run.parent if run != file.path and STEP.search(run.name) else run

    def names_problems(self, files: Sequence[LogFile]) -> bool:
        return all(self.way.columns(file, self.choices).problem not in TEXTS for file in files)

    def log(self, name: str, files: Sequence[LogFile]) -> Log:
        """Read a table in the first way that gives groups of several rollouts and problems with one prompt each."""
        first = self._read(name, files, Way())
        if self._splits & TRAINING and self._splits - TRAINING:
            first = self._read(name, files, Way(training=True))
        found = [self.way.columns(file, self.choices) for file in files]
        if self._sound(first):
            return first
        grouped, texts = any(one.group for one in found), all(one.text for one in found) and not self.choices.problem
        for by_text in (False, True) if texts else (False,):
            for heeded in HEEDED if grouped else HEEDED[:1]:
                log = self._read(name, files, Way(heeded, by_text, self.way.training))
                if self._sound(log):
                    return log
        return first

    def _read(self, name: str, files: Sequence[LogFile], way: Way) -> Log:
        self.way, self._splits, self._seen = way, set[str](), set[Hashable]()
        self._ids: dict[int, dict[Hashable, None]] = {}
        return super().log(name, files)

    def _sound(self, log: Log) -> bool:
        """True if most groups have several rollouts, and few problems share their prompt with another problem."""
        shared = sum(len(ids) for ids in self._ids.values() if len(ids) > 1)
        return log.history.group_size != 1 and 2 * shared <= len(log.history.problems)

    def read(self, files: Sequence[LogFile], into: HistoryBuilder) -> None:
        training = [file for file in files if not evaluates(file.path.name)] or files
        if len(training) < len(files):
            into.drop(OF_EVALUATION, len(files) - len(training))
        stepless = [file for file in training if not self.way.columns(file, self.choices).step]
        self._steps = steps_of(stepless, into) if len(training) > 1 and stepless else {}
        super().read(training, into)
        shared = sum(len(ids) for ids in self._ids.values() if len(ids) > 1)
        if shared:
            into.trap(f"{shared:,} problems share their prompt with another; name their column with --problem NAME")

    def read_file(self, file: LogFile, into: HistoryBuilder) -> None:
        columns = self.way.columns(file, self.choices)
        weights = self.choices.weights(file.columns)
        problem, names = self.choices.problem, ", ".join(sorted(file.columns))
        require(not problem or file.has(problem), "--problem", problem, f"{file.path} has {names}")
        whole = file.opens(columns.reward) != b"{"
        require(whole, "--reward", columns.reward, f"{file.path} holds objects there; make columns of their parts")
        require(columns.enough, "--reward", self.choices.reward, f"{file.path} has no such column")
        step = self._steps.get(file.path)
        if not columns.step and step is None:
            into.trap("the table has no step, so the audit cannot show change over time")
        left, rows, announced = MOST_COUNTED, zip(repeat(file.path), count()), False
        for batch in _batches(file, columns, list(weights), into):
            if len(weights) > 1:
                batch = {**batch, columns.reward: _weighted(batch, weights)}
            if not announced:
                columns, announced = columns if _rewarded(batch, columns) else columns._replace(reward=""), True
                self._tell(columns, weights, step, into)
            batch = self._kept(batch, columns, into)
            named = [value is not None and value != "" for value in batch[columns.problem]]
            batch = _pick(batch, named, "row without a problem", into)
            steps = self._steps_in(batch, columns, step or 0, into)
            if not all(known := [value is not None for value in steps]):
                batch = _pick(batch, known, "row whose step is not a number", into)
                steps = [value for value in steps if value is not None]
            self._note_texts(batch, columns, into)
            if not columns.reward:
                totals = list(accumulate(n if n and 0 < n <= MOST_ROLLOUTS else 0 for n in _counts(batch, columns)[1]))
                fits = [total <= left for total in totals]
                left -= totals[-1] if totals else 0
                batch = _pick(batch, fits, f"row after counts of more than {MOST_COUNTED:,} rollouts", into)
                steps = list(compress(steps, fits))
            for rollouts in _rollouts(batch, columns, steps, rows, into, within=self.way.grouped == "within"):
                into.add(rollouts)

    def _tell(self, columns: ColumnNames, weights: Mapping[str, float], step: int | None, into: HistoryBuilder) -> None:
        reward = columns.reward or f"{columns.passed} of {columns.size}"
        if len(weights) > 1:
            reward = " + ".join(f"{weight:g} {name}" for name, weight in weights.items())
        at = columns.step or ("that of the file's name" if step is not None else "-")
        into.guess(f"columns: problem {columns.problem}, reward {reward}, step {at}")
        if self.way.by_text:
            into.guess("problems are identified by their texts, since ids never repeat or many share a text")
        if not self.way.grouped:
            into.guess("the column of groups is ignored, since it gives every rollout its own group")
        elif self.way.grouped == "alone":
            into.guess("the column of groups alone decides which rollouts form a group, since no problem repeats")
        if columns.verdict and self.choices.passes_at is None and columns.reward:
            into.guess(f"the column {columns.verdict} decides what passed; --passes-at uses {columns.reward} alone")

    def _kept(self, batch: Batch, columns: ColumnNames, into: HistoryBuilder) -> Batch:
        """Keep the rows that are training rollouts and did not end in an error."""
        if columns.error and columns.reward:
            batch = _pick(batch, [_word(value) in NOTHING for value in batch[columns.error]], ERROR, into)
        if columns.split:
            words = list(map(_word, batch[columns.split]))
            if evaluated := FLAGS.get(columns.split):
                words = ["evaluation" if word == evaluated else "train" for word in words]
            self._splits.update(words)
            if self.way.training:
                batch = _pick(batch, [word in TRAINING for word in words], "row of an evaluation", into)
        return batch

    def _steps_in(
        self, batch: Batch, columns: ColumnNames, otherwise: int, into: HistoryBuilder
    ) -> Sequence[Any] | NDArray[Any]:
        """The step of each row, or the steps of its rollouts; None for a row whose step is not a number."""
        if not columns.step:
            return [otherwise] * len(batch[columns.problem])
        if columns.reward and (listed := _listed_steps(batch[columns.step], batch[columns.reward])):
            return listed
        if columns.step == "epoch" and float in set(map(type, batch[columns.step])):
            into.guess("fractions of an epoch are steps, counted in thousandths")
            numbers = map(_number, batch[columns.step])
            return [None if value is None or value != value else round(1000 * value) for value in numbers]
        steps = _integers(batch[columns.step])
        if len(steps) and all(step is None for step in steps):
            into.trap(f"the column {columns.step} has no numbers, so it is not read as the step")
            return [otherwise] * len(steps)
        return steps

    def _note_texts(self, batch: Batch, columns: ColumnNames, into: HistoryBuilder) -> None:
        """Note the prompts of problems with ids, and which ids share a prompt."""
        if not columns.text:
            return
        for problem, text in zip(batch[columns.problem], batch[columns.text], strict=True):
            if isinstance(problem, list) or problem in self._seen:
                continue
            self._seen.add(problem)
            key = _key(text)
            into.describe(_key(problem), key)
            self._ids.setdefault(hash(key), {})[problem] = None


def steps_of(files: Sequence[LogFile], into: HistoryBuilder) -> dict[Path, int]:
    """The step of each file of a table in several files, by the names of files or of their folders.

    Empty if the names are those of parts of one table. Without numbers, or with a repeated number, each file is a step.
    """
    steps = {}
    for i, file in enumerate(files):
        stem = file.path.name.partition(".")[0]
        named = STEP.search(stem) or STEP.search(file.path.parent.name)
        number = number_in(stem) if named is None else int(named[1])
        steps[file.path] = -1 - i if number is None or (named is None and PART.search(stem)) else number
    if all(PART.search(path.name) for path in steps) and all(step < 0 for step in steps.values()):
        into.guess("the files are read as parts of one table, by their names")
        return {}
    if len(set(steps.values())) == len(steps) and min(steps.values()) >= 0:
        return steps
    into.trap("neither rows nor file names give the step, so each file is read as one step, in the order of names")
    return {path: i for i, path in enumerate(steps)}


def evaluates(name: str) -> bool:
    """True if a file or folder of this name has the rollouts of an evaluation."""
    return bool(EVALUATION.search(name.partition(".")[0]))


def _batches(file: LogFile, columns: ColumnNames, rewards: Sequence[str], into: HistoryBuilder) -> Iterator[Batch]:
    names = list(dict.fromkeys([*columns.used, *rewards]))
    if file.kind == ".parquet":
        return batches(file.path, file.given, names, into.drop)
    return _lines(file, columns, names, into) if file.kind in LINES else _csv(file, names, into)


def _lines(file: LogFile, columns: ColumnNames, names: Sequence[str], into: HistoryBuilder) -> Iterator[Batch]:
    words = {columns.response, columns.category, columns.group, columns.error, columns.split, columns.text}
    fields: list[tuple[str, Any, Any]] = []
    for i, name in enumerate(names):
        opens = file.opens(name)
        if opens == b"[" and name in (columns.reward, columns.problem, columns.tokens, columns.step):
            fields.append((f"f{i}", list[Any] | None, None))
        elif opens not in (b"[", b"{") and (name not in words or name == columns.problem):
            fields.append((f"f{i}", float | int | bool | str | None, None))
        else:
            fields.append((f"f{i}", msgspec.Raw, NULL))
    by_field = {field: name for (field, _, _), name in zip(fields, names, strict=True)}
    row = msgspec.defstruct("Row", fields, rename=by_field, gc=False)
    for rows in Lines(row, into.drop).batches(file.path):
        yield {name: list(map(attrgetter(field), rows)) for field, name in by_field.items()}


def _csv(file: LogFile, names: Sequence[str], into: HistoryBuilder) -> Iterator[Batch]:
    places: dict[str, int] = {}
    whole: list[list[str]] = []
    try:
        with open_log(file.path) as binary:
            text = io.TextIOWrapper(cast(BinaryIO, binary), encoding="utf-8-sig", errors="replace", newline="")
            first = text.readline(LONGEST_ROW)
            lines = chain([first], iter(lambda: text.readline(LONGEST_ROW), ""))
            rows = csv.reader(lines, delimiter=delimiter(first))
            header = [name.strip() for name in next(rows, [])]
            places = {name: header.index(name) for name in names}
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


def _rewarded(batch: Batch, columns: ColumnNames) -> bool:
    """True if rows have their own rewards: not if they count rollouts, unless rewards are verdicts of single ones."""
    if not columns.reward or not columns.counts:
        return bool(columns.reward)
    rewards = list(map(_number, batch[columns.reward]))
    rates = [k / n if k is not None and n else None for k, n in zip(*_counts(batch, columns), strict=True)]
    return set(rewards) <= {0.0, 1.0} and rewards != rates


def _counts(batch: Batch, columns: ColumnNames) -> tuple[list[int | None], list[int | None]]:
    return list(map(_whole, batch[columns.passed])), list(map(_whole, batch[columns.size]))


def _weighted(batch: Batch, weights: Mapping[str, float]) -> list[float | None]:
    """The weighted sum of rewards; None if one is missing."""
    sums: list[float | None] = [0.0] * len(batch[next(iter(weights))])
    for name, weight in weights.items():
        values = map(_number, batch[name])
        sums = [None if a is None or b is None else a + weight * b for a, b in zip(sums, values, strict=True)]
    return sums


def _pick(batch: Batch, holds: Sequence[bool], reason: str, into: HistoryBuilder) -> Batch:
    """Select rows by a mask, and count the others as dropped."""
    if all(holds):
        return batch
    into.drop(reason, holds.count(False))
    return {name: list(compress(values, holds)) for name, values in batch.items()}


def _rollouts(
    batch: Batch,
    columns: ColumnNames,
    steps: Sequence[Any] | NDArray[Any],
    rows: Iterator[Hashable],
    into: HistoryBuilder,
    within: bool,
) -> Iterator[RolloutColumns]:
    """Yield the rollouts of a batch of rows: one per row, or several if a row is a group or a whole step.

    Args:
        rows: distinct keys for rows that are groups.
        into: gets the number of rows that cannot be read.
        within: whether the keys of groups are unique only within a problem.
    """
    if not columns.reward:
        sizes = zip(*_counts(batch, columns), strict=True)
        rewards = [
            [1.0] * k + [0.0] * (n - k) if k is not None and n is not None and 0 <= k <= n <= MOST_ROLLOUTS else None
            for k, n in sizes
        ]
        if odd := rewards.count(None):
            into.drop("row with more passes than rollouts, or counts that no trainer writes", odd)
        yield from _expanded(batch, columns, rewards, steps, rows)
    elif _are_lists_of_one(batch[columns.reward]) and not any(map(_is_list_of_problems, batch[columns.problem])):
        rewards = [reward[0] for reward in batch[columns.reward]]
        yield _one_per_row({**batch, columns.reward: rewards}, columns, steps, within)
    elif list in set(map(type, batch[columns.reward])):
        yield from _expanded(batch, columns, batch[columns.reward], steps, rows)
    else:
        yield _one_per_row(batch, columns, steps, within)


def _are_lists_of_one(rewards: Sequence[Any]) -> bool:
    return all(isinstance(reward, list) and len(reward) == 1 for reward in rewards)


def _is_list_of_problems(problem: Any) -> bool:
    """True if a cell lists problems; a list of messages is one problem."""
    return isinstance(problem, list) and not any(isinstance(part, dict) for part in problem)


def _one_per_row(
    batch: Batch, columns: ColumnNames, steps: Sequence[int] | NDArray[Any], within: bool
) -> RolloutColumns:
    problems = batch[columns.problem]
    rollouts = RolloutColumns(
        steps, problems if all_of(str, problems) else list(map(_key, problems)), _rewards(batch[columns.reward])
    )
    if columns.group:
        of = rollouts.problems if within else [b""] * len(problems)
        rollouts.groups = list(zip(steps, of, map(_key, batch[columns.group]), strict=True))
    if columns.response:
        rollouts.responses = list(map(_key, batch[columns.response]))
    if columns.tokens:
        rollouts.tokens = list(map(_count, batch[columns.tokens]))
    if columns.category:
        rollouts.categories = list(map(_text, batch[columns.category]))
    if columns.verdict:
        verdicts = map(_number, batch[columns.verdict])
        rollouts.passed = [bool(value) if value in (0, 1) else None for value in verdicts]
    if columns.advantage:
        rollouts.advantages = list(map(_number, batch[columns.advantage]))
    return rollouts


def _expanded(
    batch: Batch,
    columns: ColumnNames,
    rewards: Sequence[Any],
    steps: Sequence[Any] | NDArray[Any],
    rows: Iterator[Hashable],
) -> Iterator[RolloutColumns]:
    """Yield the rollouts of rows with a list of rewards each, of one problem or of a list of problems.

    A row's tokens may be a list, or their sum over the group.
    """
    for i, row_rewards in enumerate(rewards):
        if not isinstance(row_rewards, list):
            continue
        problem = batch[columns.problem][i]
        listed = _is_list_of_problems(problem)
        size = min(len(problem), len(row_rewards)) if listed else len(row_rewards)
        keys = list(map(_key, problem[:size])) if listed else [_key(problem)] * size
        row_steps = steps[i][:size] if isinstance(steps[i], list) else [steps[i]] * size
        row = RolloutColumns(row_steps, keys, list(map(_number, row_rewards[:size])))
        if not listed:
            row.groups = [next(rows)] * size
        if columns.tokens and size:
            row.tokens = _spread(batch[columns.tokens][i], size)
        if columns.category:
            row.categories = [_text(batch[columns.category][i])] * size
        yield row


def _listed_steps(steps: Sequence[Any], rewards: Sequence[Any]) -> list[list[int]]:
    """The steps of rows with a whole table by column, a list of steps beside the list of rewards; otherwise empty."""
    listed = [list(map(_step, each)) if isinstance(each, list) else [] for each in steps]
    whole = [
        isinstance(own, list) and len(own) == len(each) and None not in each
        for own, each in zip(rewards, listed, strict=True)
    ]
    return cast(list[list[int]], listed) if all(whole) else []


def _spread(value: Any, size: int) -> list[int]:
    """Tokens of each rollout of a row, from a list, or from a sum, divided evenly."""
    if isinstance(value, list):
        return list(map(_count, value)) if len(value) == size else [UNKNOWN] * size
    total = _count(value)
    return [UNKNOWN] * size if total == UNKNOWN else [total // size + (i < total % size) for i in range(size)]


def _word(value: Any) -> str:
    """Convert a cell to a word in lower case."""
    return _text(value).strip().lower()


def _text(value: Any) -> str:
    """Convert a cell to text; "" for none."""
    return "" if value is None else _key(value).decode("utf-8", "replace")


def _key(value: Any) -> bytes:
    """Convert a cell, such as a problem's name, to bytes that identify its content."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, msgspec.Raw):
        raw = bytes(value)
        if raw[:1] != b'"':
            return raw
        return str(msgspec.json.decode(raw)).encode("utf-8", "replace") if b"\\" in raw else raw[1:-1]
    return repr(value).encode("utf-8", "replace")


def all_of(kind: type, values: Sequence[Any]) -> bool:
    """True if all values have exactly this type, the usual case; then they need no conversion one by one."""
    return set(map(type, values)) == {kind}


def _integers(values: Sequence[Any]) -> Sequence[int | None] | NDArray[Any]:
    numbers = _array(values, "i")
    if numbers is not None:
        return numbers
    return values if all_of(int, values) else list(map(_step, values))  # too large numbers are dropped later


def _rewards(values: Sequence[Any]) -> Sequence[float | None] | NDArray[Any]:
    numbers = _array(values, "bif")
    return list(map(_number, values)) if numbers is None else numbers


def _array(values: Sequence[Any], kinds: str) -> NDArray[Any] | None:
    """Convert values to an array if all are numbers of these numpy kinds, the usual case; otherwise None."""
    if not {*map(type, values)} <= {bool, int, float}:
        return None  # in an array of texts, each takes the room of the longest
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        return None
    return array if array.ndim == 1 and array.dtype.kind in kinds else None


def _number(value: Any) -> float | None:
    """Convert a cell to a number; true and pass are 1, false and fail 0, all else None."""
    if isinstance(value, str):
        value = VERDICT_WORDS.get(value.strip().lower(), value)
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2**53 else None


def _step(value: Any) -> int | None:
    """Convert a step to a number, also from a text that ends in one, such as "step 3"; None if there is none."""
    number = _whole(value)
    return number_in(value) if number is None and isinstance(value, str) else number


def _count(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**31 else UNKNOWN
