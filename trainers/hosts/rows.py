"""A host's rows as problems, and back: controllers see problems, rewards see the rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halfway.curriculum.controller import PassRateController
from halfway.curriculum.problems import Message, Problem, ProblemSet
from halfway.curriculum.support.errors import UserError

TICKET = "halfway_ticket"
"""The column in which a ticket's id travels with its rows."""


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
    solution = columns.solution if "solutions" in controller.needs else ""
    wanted = [columns.id, columns.prompt, columns.answer, solution, *features]
    values = _columns(given, [name for name in dict.fromkeys(wanted) if name in names])
    prompts = values[columns.prompt]
    nothing = [None] * len(prompts)
    ids = values.get(columns.id) or range(len(prompts))
    answers, solutions = values.get(columns.answer, nothing), values.get(solution, nothing)
    problems = [
        Problem(
            str(id_),
            as_text(prompt),
            as_text(answer),
            features={name: values[name][i] for name in features if name in values},
            messages=as_messages(prompt),
            solution=as_text(reference),
        )
        for i, (id_, prompt, answer, reference) in enumerate(zip(ids, prompts, answers, solutions, strict=True))
    ]
    return Rows(ProblemSet(problems), given, names)


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
    if hasattr(given, "column_names"):
        return tuple(given.column_names)
    if not isinstance(given, Sequence) or not given or not isinstance(given[0], Mapping):
        kind = type(given).__name__
        raise UserError(f"problems: {kind!r} is not acceptable; give a ProblemSet, a Dataset, or a list of mappings")
    return tuple(given[0])


def _columns(given: Any, names: Sequence[str]) -> dict[str, Sequence[Any]]:
    if hasattr(given, "select_columns"):
        found: dict[str, Sequence[Any]] = given.select_columns(list(names)).with_format(None)[:]
        return found
    try:
        return {name: [row[name] for row in given] for name in names}
    except KeyError as error:
        raise UserError(f"problems: a row has no column {error.args[0]!r}, which the first one has") from None
