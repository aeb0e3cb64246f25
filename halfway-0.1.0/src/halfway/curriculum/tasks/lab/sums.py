"""Running sums: a long, single-turn task with many independent chances to fail.

The prompt gives a start, the number of wrong lines that still pass, and labelled additions; totals are modulo 6:

    ^4/2a3b1c4=         start at 4; a: +3, b: +1, c: +4; at most 2 wrong lines pass

The response writes one line per addition, in order: its label, the addition, the new total:

    a31b12c40           4 + 3 = 1, 1 + 1 = 2, 2 + 4 = 0 (modulo 6)

Marking carries errors forward, like an examiner: a line is right if it copies the addition and its total follows from
the total on the line above. So a wrong line costs one mark and spoils no other line. Writing a label again replaces the
line: the policy can correct itself. A missing line is wrong, and other text is ignored. The sheet passes if it has no
more wrong lines than the prompt allows. No single token decides, and a prefix changes the chance of passing gradually.
"""

import random
import re
from dataclasses import dataclass
from typing import NamedTuple

from halfway.curriculum import Problem
from halfway.curriculum.tasks.lab.sheets import count_wrong, read_prompt, require_bounds, write_prompt

LABELS = "abcdefghijklmnopqrst"
PROMPT = re.compile(r"\^(\d)/(\d)((?:[a-t]\d)+)=")
LINE = re.compile(r"([a-t])(\d)(\d)")
MODULUS = 6  # small, so that two lines of five wrap around, where the teacher errs
LARGEST = 4


class Sheet(NamedTuple):
    """A parsed prompt: start value, operands in order, and the number of wrong lines that still pass."""

    start: int
    operands: tuple[int, ...]
    allowed: int


@dataclass(frozen=True)
class SumsOptions:
    """Options of the problems to draw.

    Attributes:
        min_lines, max_lines: lines per sheet, drawn uniformly; at most 20.
        min_allowed, max_allowed: wrong lines that still pass, drawn uniformly; at most 9.
    """

    min_lines: int = 8
    max_lines: int = 12
    min_allowed: int = 1
    max_allowed: int = 4

    def __post_init__(self) -> None:
        lines, allowed = (self.min_lines, self.max_lines), (self.min_allowed, self.max_allowed)
        require_bounds("running_sums", lines, allowed, len(LABELS))


@dataclass(frozen=True)
class SumsTeacher:
    """The flawed teacher of the warm start: its habits become the policy's.

    Attributes:
        forget: chance of being one short if the sum wraps around; above one half, so greedy decoding fails too.
        slip: chance of another wrong total, on any line.
        notice: chance of noticing a wrong line at once and writing it again correctly.
    """

    forget: float = 0.75
    slip: float = 0.04
    notice: float = 0.15


FLAWLESS = SumsTeacher(forget=0.0, slip=0.0)


def make_sheet(options: SumsOptions, rng: random.Random) -> Sheet:
    """Draw one problem."""
    lines = rng.randint(options.min_lines, options.max_lines)
    operands = tuple(rng.randint(1, LARGEST) for _ in range(lines))
    return Sheet(rng.randrange(MODULUS), operands, rng.randint(options.min_allowed, options.max_allowed))


def render(sheet: Sheet) -> str:
    """Write the prompt of a sheet."""
    return write_prompt(sheet.start, sheet.allowed, LABELS, sheet.operands)


def parse(prompt: str) -> Sheet:
    """The inverse of `render`. Raises ValueError for text that is not a prompt of this task."""
    start, allowed, operands = read_prompt(prompt, PROMPT, "a running-sums")
    return Sheet(start, tuple(map(int, operands)), allowed)


def wraps(sheet: Sheet) -> int:
    """Number of lines whose sum wraps around, if every total is right."""
    total, count = sheet.start, 0
    for operand in sheet.operands:
        count += wraps_around(total, operand)
        total = (total + operand) % MODULUS
    return count


def wraps_around(total: int, operand: int) -> bool:
    return total + operand >= MODULUS


def demonstrate(sheet: Sheet, teacher: SumsTeacher, rng: random.Random) -> str:
    """Write a response like the teacher, including slips and corrections."""
    total, lines = sheet.start, []
    for label, operand in zip(LABELS, sheet.operands, strict=False):
        right = (total + operand) % MODULUS
        value = _attempt(total, operand, teacher, rng)
        lines.append(f"{label}{operand}{value}")
        if value != right and rng.random() < teacher.notice:
            value = right
            lines.append(f"{label}{operand}{value}")
        total = value
    return "".join(lines)


def solve(sheet: Sheet) -> str:
    """Write the reference solution: every line once, and right."""
    return demonstrate(sheet, FLAWLESS, random.Random(0))


def facts(sheet: Sheet) -> dict[str, float | str]:
    """The features of a sheet's problem."""
    return {"lines": len(sheet.operands), "allowed": sheet.allowed, "wraps": wraps(sheet)}


def _attempt(total: int, operand: int, teacher: SumsTeacher, rng: random.Random) -> int:
    right = (total + operand) % MODULUS
    if wraps_around(total, operand) and rng.random() < teacher.forget:
        return (right - 1) % MODULUS
    if rng.random() < teacher.slip:
        return (right + rng.randrange(1, MODULUS)) % MODULUS
    return right


def wrong_lines(sheet: Sheet, response: str) -> int:
    """Number of lines of the sheet that are missing or wrong; text that is not a line of this sheet is ignored."""
    lines = ((LABELS.index(label), int(operand), int(total)) for label, operand, total in LINE.findall(response))
    return count_wrong(sheet.start, sheet.operands, lines, lambda operand, above: (above + operand) % MODULUS)


def mark(prompt: str, response: str) -> bool:
    """True if a complete response passes. Raises ValueError for a prompt of another task."""
    sheet = parse(prompt)
    return wrong_lines(sheet, response) <= sheet.allowed


def verify(problem: Problem, response: str) -> bool:
    """The sheet passes the marking of the lab's running sums.

    Raises:
        ValueError: if the prompt is not one of that task.
    """
    return mark(problem.prompt, response)
