"""Sheets of labelled lines: their bounds, reading generated ones, and marking that carries errors forward."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from halfway.curriculum.domains.base import Invalid
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line

Step = TypeVar("Step")
Sheet = TypeVar("Sheet")


class Bounds(Protocol):
    """The bounds of a task's sheets, all included."""

    @property
    def min_lines(self) -> int: ...
    @property
    def max_lines(self) -> int: ...
    @property
    def min_allowed(self) -> int: ...
    @property
    def max_allowed(self) -> int: ...


def count_wrong(
    start: int, steps: Sequence[Step], written: Iterable[tuple[int, Step, int]], after: Callable[[Step, int], int]
) -> int:
    """Number of lines that are missing, or whose last version was wrong when it was written.

    A version is right if it copies its step and its value follows from the nearest existing line above.

    Args:
        steps: one per line of the sheet.
        written: position, step and value of each line of a response, in order; positions beyond the sheet are ignored.
        after: the right value of a line, from its step and the value above.
    """
    values: list[int | None] = [start] + [None] * len(steps)
    right = [False] * len(steps)
    for place, step, value in written:
        if place < len(steps):
            above = next(earlier for earlier in reversed(values[: place + 1]) if earlier is not None)
            right[place] = step == steps[place] and value == after(step, above)
            values[place + 1] = value
    return right.count(False)


def require_bounds(task: str, lines: tuple[int, int], allowed: tuple[int, int], most_lines: int) -> None:
    """Raise UserError unless the bounds of a task's sheets rise: on their lines, and on the wrong lines that pass."""
    for name, (low, high), least, most in (("lines", lines, 1, most_lines), ("allowed", allowed, 0, 9)):
        if not least <= low <= high <= most:
            raise UserError(
                f"{task}: min_{name} {low}, max_{name} {high}; they must rise, from {least} to at most {most}"
            )


def require_begin(task: str, begin: str) -> None:
    """Raise UserError unless the generator's prompt is a text that no sheet begins with."""
    if not begin or begin.startswith("^"):
        raise UserError(f"{task}: begin {begin!r} is not acceptable; give a text that does not begin with ^")


def read_sheet(text: str, parse: Callable[[str], Sheet], render: Callable[[Sheet], str]) -> Sheet | Invalid:
    """The sheet that a generated text is, or why it is none."""
    try:
        sheet = parse(text)
    except ValueError:
        return Invalid("unreadable", one_line(text))
    if render(sheet) != text:  # also digits that are not ASCII, and more lines than there are labels
        return Invalid("labels out of order", one_line(text))
    return sheet


def beyond(bounds: Bounds, lines: int, allowed: int) -> Invalid | None:
    """Why a sheet is beyond its task's bounds, or would pass an empty answer; None if it is neither."""
    if not bounds.min_lines <= lines <= bounds.max_lines:
        return Invalid("number of lines", f"{lines}, from {bounds.min_lines} to {bounds.max_lines}")
    if not bounds.min_allowed <= allowed <= bounds.max_allowed:
        return Invalid("allowed wrong lines", f"{allowed}, {bounds.min_allowed} to {bounds.max_allowed}")
    if allowed >= lines:
        return Invalid("passes without an answer", f"{allowed} wrong of {lines}")
    return None
