"""Sheets of labelled lines: their bounds, their prompts, and marking that carries errors forward."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from halfway.curriculum import UserError

Step = TypeVar("Step")


def count_wrong(
    start: int, steps: Sequence[Step], written: Iterable[tuple[int, Step, int]], after: Callable[[Step, int], int]
) -> int:
    """Number of lines that are missing, or whose last version was wrong when it was written.

    A version is right if it copies its step and its value follows from the nearest existing line above.

    Args:
        steps: one per line of the sheet.
        written: index, step and value of each line of a response, in order; indices beyond the sheet are ignored.
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
    """Raise UserError unless min <= max in the bounds of a task's sheets: on lines, and on wrong lines that pass."""
    for name, (low, high), least, most in (("lines", lines, 1, most_lines), ("allowed", allowed, 0, 9)):
        if not least <= low <= high <= most:
            raise UserError(
                f"{task}: min_{name} {low}, max_{name} {high}; they must increase, from {least} to at most {most}"
            )


def write_prompt(start: int, allowed: int, labels: str, steps: Iterable[object]) -> str:
    """Write the prompt of a sheet."""
    lines = "".join(f"{label}{step}" for label, step in zip(labels, steps, strict=False))
    return f"^{start}/{allowed}{lines}="


def read_prompt(prompt: str, pattern: re.Pattern[str], kind: str) -> tuple[int, int, str]:
    """Read the start, the wrong lines that pass, and the steps, one character each, from a prompt of `write_prompt`.

    Raises:
        ValueError: for text that is not a prompt of this kind.
    """
    match = pattern.fullmatch(prompt)
    if match is None:
        raise ValueError(f"not {kind} prompt: {prompt!r}")
    start, allowed, lines = match.groups()
    return int(start), int(allowed), lines[1::2]
