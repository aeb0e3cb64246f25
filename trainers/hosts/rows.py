"""Turns a host's rows into problems, and back: controllers see problems, rewards see rows."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halfway.curriculum import Message, PassRateController, Problem, ProblemSet, UserError, refusal
from halfway.curriculum.problems import ProblemTable, fingerprint
from halfway.curriculum.support.extras import clean

TICKET = "halfway_ticket"
"""The column with a ticket's id in every row drawn for it."""

WINDOW = 10_000
"""Rows read at a time to compute a data set's fingerprint."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns that make a problem.

    Attributes:
        id: stable, unique ids; without such a column, a problem's id is its position.
        prompt: text, or a list of messages.
        answer: the reference answer.
        solution: the reference solution from which hints are cut; read only if a controller needs it.
    """

    id: str = "id"
    prompt: str = "prompt"
    answer: str = "answer"
    solution: str = "solution"


@dataclass(frozen=True)
class Rows:
    """Problems, and the rows that they were made from.

    Attributes:
        source: rows by position, as a list of mappings or a `datasets.Dataset`; None if only problems were given.
        names: the columns of every row.
    """

    problems: ProblemSet
    source: Any
    names: tuple[str, ...]

    def row(self, problem: Problem) -> dict[str, Any]:
        """Find the row of a problem, with all columns.

        A problem without a row gets one with its id, prompt and answer, and None in other columns.
        """
        place = self._place(problem)
        if self.source is not None and place is not None:
            return dict(self.source[place])
        prompt = [{"role": m.role, "content": m.content} for m in problem.messages] or problem.prompt
        own = {"id": problem.id, "prompt": prompt, "answer": problem.answer}
        return {**dict.fromkeys(self.names), **own}

    def _place(self, problem: Problem) -> int | None:
        try:
            return self.problems.position(problem.id)
        except KeyError:
            return None


def rows_of(rows: Any, controller: PassRateController[Any], columns: Columns | None = None) -> Rows:
    """Read problems and rows from a `ProblemSet`, a list of mappings, or a `datasets.Dataset`.

    Columns that a controller needs become features of the problems; all others are only in the rows.

    Raises:
        UserError: if the prompt column is missing, a row lacks a column of the first row, or two rows share an id.
    """
    columns = columns or Columns()
    if isinstance(rows, ProblemSet):
        return Rows(rows, None, ("id", "prompt", "answer"))
    names = _names(rows)
    if columns.prompt not in names:
        have = clean(", ".join(map(str, names)))[:160]
        raise UserError(f"problems: no column {columns.prompt!r} among {have}; rename the one with the prompts")
    features = [need.removeprefix("feature:") for need in sorted(controller.needs) if need.startswith("feature:")]
    if "solutions" not in controller.needs:
        columns = replace(columns, solution="")
    wanted = [columns.id, columns.prompt, columns.answer, columns.solution, *features]
    read = [name for name in dict.fromkeys(wanted) if name in names]
    features = [name for name in features if name in names]
    if hasattr(rows, "select_columns"):
        return Rows(ProblemSet(DatasetProblems(rows.select_columns(read), columns, features)), rows, names)
    try:
        whole = [{name: row[name] for name in read} for row in rows]
    except KeyError as error:
        [lacking] = error.args
        place = next(i for i, row in enumerate(rows) if lacking not in row)
        raise UserError(f"problems: row {place} has no column {lacking!r}, unlike row 0; add it") from None
    problems = [problem_of(row, str(i), columns, features) for i, row in enumerate(whole)]
    return Rows(ProblemSet(problems), rows, names)


def problem_of(row: Mapping[str, Any], place: str, columns: Columns, features: Sequence[str]) -> Problem:
    """Make the problem of a row.

    Args:
        place: the problem's id if the row has none.
        features: columns that become features.
    """
    return Problem(
        str(row.get(columns.id, place)),
        as_text(row[columns.prompt]),
        as_text(row.get(columns.answer)),
        features={name: row[name] for name in features},
        messages=as_messages(row[columns.prompt]),
        solution=as_text(row.get(columns.solution)),
    )


class DatasetProblems(ProblemTable):
    """Problems read on demand from a `datasets.Dataset`, which keeps its columns in a memory-mapped file."""

    def __init__(self, rows: Any, columns: Columns, features: Sequence[str]):
        """
        Args:
            rows: the data set, with only the columns that make a problem.
        """
        self._rows, self._raw = rows.with_format(None), rows.with_format("arrow")
        self._columns, self._features = columns, features

    def __len__(self) -> int:
        return len(self._rows)

    def at(self, place: int) -> Problem:
        return problem_of(self._rows[place], str(place), self._columns, self._features)

    def ids(self) -> list[str]:
        if self._columns.id not in self._rows.column_names:
            return [str(place) for place in range(len(self))]
        return [str(name) for name in self.column(self._columns.id)]

    def column(self, feature: str) -> Sequence[Any]:
        if feature not in self._rows.column_names:
            return [None] * len(self)
        values: Sequence[Any] = self._rows.select_columns([feature])[:][feature]
        return values

    def fingerprint(self, generated: Sequence[Problem]) -> str:
        """A hash of all columns, independent of how the file is divided into chunks."""
        digest = hashlib.blake2b(digest_size=16)
        for start in range(0, len(self), WINDOW):
            window = self._raw[start : start + WINDOW]
            for name in sorted(window.column_names):
                digest.update(repr(name).encode())
                for values in leaves(window[name].combine_chunks()):
                    digest.update(repr(values).encode("utf-8", "replace"))
        return f"{digest.hexdigest()}+{fingerprint(generated)}" if generated else digest.hexdigest()


def leaves(array: Any) -> Iterator[list[Any]]:
    """Yield an Arrow array as flat lists of plain values that determine its contents.

    A list array yields the lengths of its lists, then their items. A struct array yields which entries are valid (an
    empty list if all are), then the name and the values of each field. Reading nested values directly takes five times
    as long.
    """
    import pyarrow.types as kinds
    from pyarrow import compute

    if kinds.is_struct(array.type):
        yield array.is_valid().to_pylist() if array.null_count else []
        for i in range(array.type.num_fields):
            yield [array.type.field(i).name]
            yield from leaves(compute.struct_field(array, [i]))
    elif kinds.is_list(array.type) or kinds.is_large_list(array.type):
        yield compute.list_value_length(array).to_pylist()
        yield from leaves(array.flatten())
    else:
        yield array.to_pylist()


def as_text(value: Any) -> str:
    """Convert a cell to text: messages to their contents, one per line; None to ""; other non-strings to JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    messages = as_messages(value)
    return "\n".join(message.content for message in messages) if messages else json.dumps(value, default=str)


def as_messages(value: Any) -> tuple[Message, ...]:
    """A prompt's messages; () unless it is a list of messages with text contents."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return ()
    plain = all(isinstance(m, Mapping) and isinstance(m.get("content"), str) and "role" in m for m in value)
    return tuple(Message(str(m["role"]), m["content"]) for m in value) if plain else ()


def _names(rows: Any) -> tuple[str, ...]:
    if hasattr(rows, "column_names") and hasattr(rows, "__len__"):
        return tuple(rows.column_names)
    if not isinstance(rows, Sequence) or not rows or not isinstance(rows[0], Mapping):
        kind = type(rows).__name__
        raise refusal("problems", kind, "give a ProblemSet, a Dataset, or a list of mappings")
    return tuple(rows[0])
