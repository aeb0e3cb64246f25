"""Running sums: a long, single-turn task with many independent chances to fail.

The prompt gives a start digit, how many wrong lines still pass, and labelled additions; only last digits are kept:

    ^7/2a5b8c3=         start at 7; a: +5, b: +8, c: +3 (modulo 10); at most 2 wrong lines pass

The response writes one line an addition, in order: its label, the addition, the new total:

    a52b80c33           2, 0, 3

Marking carries errors forward, as an examiner does: a line is right if it copies the addition and its total follows
from the total *written* on the line before. So a wrong line costs one mark and spoils no other. Writing a label again
replaces the line: the policy can correct itself. The sheet passes if it is complete, in order, and has no more wrong
lines than the prompt allows. No single token decides, and a prefix moves the chance of passing by degrees.
"""

import random
import re
from dataclasses import dataclass
from typing import NamedTuple

from curriculum.errors import UserError

LABELS = "abcdefghijklmnopqrst"
PROMPT = re.compile(r"\^(\d)/(\d)((?:[a-t]\d)+)=")
LINE = re.compile(r"([a-t])(\d)(\d)")
MODULUS = 10
# Small operands: the new total is then near the old one, which a policy trained from scratch learns much faster.
LARGEST = 5


class Sheet(NamedTuple):
    """A parsed prompt: start value, operands in order, and how many wrong lines still pass."""

    start: int
    operands: tuple[int, ...]
    allowed: int


@dataclass(frozen=True)
class SumsOptions:
    """Which problems are drawn.

    Attributes:
        min_lines, max_lines: lines a sheet, uniform; at most 20.
        min_allowed, max_allowed: wrong lines that still pass, uniform; at most 9.
    """

    min_lines: int = 6
    max_lines: int = 12
    min_allowed: int = 0
    max_allowed: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.min_lines <= self.max_lines <= len(LABELS):
            raise UserError(
                f"running_sums: min_lines {self.min_lines}, max_lines {self.max_lines}; "
                f"they must rise, from 1 to at most {len(LABELS)}"
            )
        if not 0 <= self.min_allowed <= self.max_allowed <= 9:
            raise UserError(
                f"running_sums: min_allowed {self.min_allowed}, max_allowed {self.max_allowed}; "
                "they must rise, from 0 to at most 9"
            )


@dataclass(frozen=True)
class SumsTeacher:
    """The flawed teacher of the warm start: its habits become the policy's.

    Attributes:
        forget: chance of being one short where the sum passes ten; above one half, so greedy decoding fails too.
        slip: chance of another wrong total, on any line.
        notice: chance of noticing a wrong line at once and writing it again, rightly.
    """

    forget: float = 0.6
    slip: float = 0.03
    notice: float = 0.25


def make_sheet(options: SumsOptions, rng: random.Random) -> Sheet:
    """Draw one problem."""
    lines = rng.randint(options.min_lines, options.max_lines)
    operands = tuple(rng.randint(1, LARGEST) for _ in range(lines))
    return Sheet(rng.randrange(MODULUS), operands, rng.randint(options.min_allowed, options.max_allowed))


def render(sheet: Sheet) -> str:
    """The prompt of a sheet."""
    lines = "".join(f"{label}{operand}" for label, operand in zip(LABELS, sheet.operands, strict=False))
    return f"^{sheet.start}/{sheet.allowed}{lines}="


def parse(prompt: str) -> Sheet:
    """The inverse of `render`. Raises ValueError for text that is not a prompt of this task."""
    match = PROMPT.fullmatch(prompt)
    if match is None:
        raise ValueError(f"not a running-sums prompt: {prompt!r}")
    start, allowed, lines = match.groups()
    return Sheet(int(start), tuple(int(digit) for digit in lines[1::2]), int(allowed))


def carries(sheet: Sheet) -> int:
    """Number of lines whose sum passes ten, if every total is right."""
    total, count = sheet.start, 0
    for operand in sheet.operands:
        count += has_carry(total, operand)
        total = (total + operand) % MODULUS
    return count


def has_carry(total: int, operand: int) -> bool:
    return total + operand >= MODULUS


def demonstrate(sheet: Sheet, teacher: SumsTeacher, rng: random.Random) -> str:
    """A response as the teacher writes it, slips and corrections included."""
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


def _attempt(total: int, operand: int, teacher: SumsTeacher, rng: random.Random) -> int:
    right = (total + operand) % MODULUS
    if has_carry(total, operand) and rng.random() < teacher.forget:
        return (right - 1) % MODULUS
    if rng.random() < teacher.slip:
        return (right + rng.randint(1, 9)) % MODULUS
    return right


def wrong_lines(sheet: Sheet, response: str) -> int | None:
    """Number of lines whose last version does not follow from the line before; None if the sheet is malformed.

    Malformed: anything but lines of a label and two digits, labels out of order, or a label missing.
    """
    lines = LINE.findall(response)
    if 3 * len(lines) != len(response):
        return None
    versions: dict[str, tuple[int, int]] = {}
    last = ""
    for label, operand, digit in lines:
        if label != last and label != LABELS[len(versions) : len(versions) + 1]:
            return None
        versions[label] = int(operand), int(digit)
        last = label
    if len(versions) != len(sheet.operands):
        return None
    wrong, total = 0, sheet.start
    for operand, (copied, value) in zip(sheet.operands, versions.values(), strict=True):
        wrong += copied != operand or value != (total + operand) % MODULUS
        total = value
    return wrong


def mark(prompt: str, response: str) -> bool:
    """Whether a complete response passes. Raises ValueError for a prompt of another task."""
    sheet = parse(prompt)
    wrong = wrong_lines(sheet, response)
    return wrong is not None and wrong <= sheet.allowed
