"""The flawed author of operator sheets: the lab's task generator learns its habits.

It draws sheets as the lab does, of every stratum, and throws most of those away which the starting policy sometimes
passes, so that what it writes is mostly easy or hopeless. One text in seven is not a sheet.
"""

import random
from dataclasses import dataclass

from halfway.curriculum.tasks.lab import operators
from halfway.curriculum.tasks.lab.operators import LABELS, OPERATORS, STRATA, OperatorOptions, OperatorTeacher, Sheet

SHEETS = OperatorOptions(min_lines=4, max_lines=7, min_allowed=0, max_allowed=3)
"""The valid sheets of this author: the lab's easy regime has the same bounds."""

FRONTIER = (0.05, 0.6)
"""Chances to pass, for the teacher of the starting policy, of the sheets that the author mostly throws away."""


@dataclass(frozen=True)
class OperatorAuthor:
    """How sheets are drawn.

    Attributes:
        kept: share of the sheets on the frontier that are kept.
        flawed: chance that a sheet is spoilt in one of the ways of `spoil`.
    """

    kept: float = 0.25
    flawed: float = 0.14


def write_sheet(author: OperatorAuthor, rng: random.Random) -> str:
    """One text as the author writes it, a prompt of the task or a spoilt one."""
    sheet = _draw(rng)
    while on_frontier(sheet) and rng.random() >= author.kept:
        sheet = _draw(rng)
    return spoil(sheet, rng) if rng.random() < author.flawed else operators.render(sheet)


def on_frontier(sheet: Sheet) -> bool:
    """Whether the teacher of the starting policy sometimes passes and often fails."""
    low, high = FRONTIER
    return low < operators.chance(sheet, OperatorTeacher()) < high


def _draw(rng: random.Random) -> Sheet:
    return operators.make_sheet(SHEETS, rng.randrange(len(STRATA)), rng)


def spoil(sheet: Sheet, rng: random.Random) -> str:
    """A nearly valid text: its end is missing, a label is skipped, there are too few lines, too many wrong lines pass,
    or one operator is far from the others."""
    place = rng.randrange(len(sheet.operators))
    match rng.randrange(5):
        case 0:
            return operators.render(sheet).removesuffix("=")
        case 1:
            return operators.render(sheet).replace(LABELS[place], LABELS[place + 1], 1)
        case 2:
            return operators.render(sheet._replace(operators=sheet.operators[: rng.randint(1, SHEETS.min_lines - 1)]))
        case 3:
            return operators.render(sheet._replace(allowed=rng.randint(SHEETS.max_allowed + 1, 7)))
        case _:
            strange = [_with(sheet, place, name) for name in OPERATORS]
            return operators.render(rng.choice([one for one in strange if not operators.centres(one, SHEETS)]))


def _with(sheet: Sheet, place: int, operator: str) -> Sheet:
    """The sheet with another operator on one line."""
    return sheet._replace(operators=sheet.operators[:place] + operator + sheet.operators[place + 1 :])
