"""A host's rows as problems, and back: controllers see problems, rewards see the rows."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from halfway.curriculum.controller import PassRateController
from halfway.curriculum.problems import Message, Problem, ProblemSet, ProblemTable
from halfway.curriculum.support.errors import UserError

TICKET = "halfway_ticket"
"""The column in which a ticket's id travels with its rows."""

WINDOW = 10_000
"""Rows of a data set that are read at once, for its fingerprint."""


@dataclass(frozen=True)
class Columns:
    """Where in a row things are.

    Attributes:
        id: stable, unique ids; where there is no such column, a problem is called by its place.
        prompt: text, or a list of messages.
        answer, solution: reference answer, and reference solution from which hints are cut. The latter is read only if
            a controller needs it.
    """

    id: str = "id"
    prompt: str = "prompt"
    answer: str = "answer"
    solution: str = "solution"


@dataclass(frozen=True)
class Rows:
    """Problems, and the rows that they were made of.

    Attributes:
        source: rows by position, as a list of mappings or a `datasets.Dataset`; None if there are only problems.
        names: the columns of every row.
    """

    problems: ProblemSet
    source: Any
    names: tuple[str, ...]

    def row(self, problem: Problem) -> dict[str, Any]:
        """The row of a problem, with all of its columns. A problem that was written during the run has those of a
        problem only, and None in the others."""
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


def rows_of(given: Any, controller: PassRateController[Any], columns: Columns | None = None) -> Rows:
    """The problems that a user has given: a `ProblemSet`, a list of mappings, or a `datasets.Dataset`.

    Columns that a controller needs as features become features; the rest stays with the rows.

    Raises:
        UserError: if there is no prompt in a row, or two rows share an id.
    """
    columns = columns or Columns()
    if isinstance(given, ProblemSet):
        return Rows(given, None, ("id", "prompt", "answer"))
    names = _names(given)
    if columns.prompt not in names:
        raise UserError(f"problems: there is no column {columns.prompt!r}; give rows with one, or name another")
    features = [need.removeprefix("feature:") for need in sorted(controller.needs) if need.startswith("feature:")]
    if "solutions" not in controller.needs:
        columns = replace(columns, solution="")
    wanted = [columns.id, columns.prompt, columns.answer, columns.solution, *features]
    read = [name for name in dict.fromkeys(wanted) if name in names]
    features = [name for name in features if name in names]
    if hasattr(given, "select_columns"):
        return Rows(ProblemSet(DatasetProblems(given.select_columns(read), columns, features)), given, names)
    try:
        whole = [{name: row[name] for name in read} for row in given]
    except KeyError as error:
        raise UserError(f"problems: a row has no column {error.args[0]!r}, which the first one has") from None
    problems = [problem_of(row, str(i), columns, features) for i, row in enumerate(whole)]
    return Rows(ProblemSet(problems), given, names)


def problem_of(row: Mapping[str, Any], place: str, columns: Columns, features: Sequence[str]) -> Problem:
    """The problem in a row.

    Args:
        place: what it is called if the row has no id.
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
    """Problems in the columns of a `datasets.Dataset`, which has them in a mapped file."""

    def __init__(self, given: Any, columns: Columns, features: Sequence[str]):
        """
        Args:
            given: with the columns that make problems, and no others.
        """
        self._rows, self._raw = given.with_format(None), given.with_format("arrow")
        self._columns, self._features = columns, features

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | Sequence[Problem]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = range(len(self))[index]
        return problem_of(self._rows[place], str(place), self._columns, self._features)

    def ids(self) -> list[str]:
        if self._columns.id not in self._rows.column_names:
            return [str(place) for place in range(len(self))]
        return [str(name) for name in self.column(self._columns.id)]

    def column(self, feature: str) -> Sequence[Any]:
        if feature not in self._rows.column_names:
            return [None] * len(self)
        found: Sequence[Any] = self._rows.select_columns([feature])[:][feature]
        return found

    def fingerprint(self) -> str:
        """Of all columns, whatever pieces a file has them in."""
        digest = hashlib.blake2b(digest_size=16)
        for start in range(0, len(self), WINDOW):
            window = self._raw[start : start + WINDOW]
            for name in sorted(window.column_names):
                digest.update(repr(name).encode())
                for values in leaves(window[name].combine_chunks()):
                    digest.update(repr(values).encode("utf-8", "replace"))
        return digest.hexdigest()


def leaves(array: Any) -> Iterator[list[Any]]:
    """An Arrow array as lists of plain values: one of lengths for each list in it, one for each field of a structure.

    Nested values as they are take five times as long to read.
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
    """A cell as text: messages by their contents, nothing as nothing."""
    if value is None or isinstance(value, str):
        return value or ""
    messages = as_messages(value)
    return "\n".join(message.content for message in messages) if messages else json.dumps(value, default=str)


def as_messages(value: Any) -> tuple[Message, ...]:
    """A prompt's messages, if it is a list of messages with text in them."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return ()
    plain = all(isinstance(m, Mapping) and isinstance(m.get("content"), str) and "role" in m for m in value)
    return tuple(Message(str(m["role"]), m["content"]) for m in value) if plain else ()


def _names(given: Any) -> tuple[str, ...]:
    if hasattr(given, "column_names") and hasattr(given, "__len__"):
        return tuple(given.column_names)
    if not isinstance(given, Sequence) or not given or not isinstance(given[0], Mapping):
        kind = type(given).__name__
        raise UserError(f"problems: {kind!r} is not acceptable; give a ProblemSet, a Dataset, or a list of mappings")
    return tuple(given[0])
