"""The lab's operator sheets, written by a generator: a text is the very prompt that the solver gets; a flawed author.

`halfway.curriculum.tasks.lab.operators` has the rules of the task. A text is valid if the lab could have drawn it:
labels a, b, c, ... in order, operators from one window, and the options' bounds on lines and wrong lines.

The lab's task generator learns the habits of `OperatorAuthor`, who draws sheets as the lab does, of every stratum, and
throws most of those away which the starting policy sometimes passes, so that what it writes is mostly easy or hopeless.
One text in seven is not a sheet.
"""

import random
from dataclasses import dataclass, field
from typing import ClassVar

from halfway.curriculum.problems import Problem
from halfway.curriculum.tasks.lab import operators
from halfway.curriculum.tasks.lab.operators import LABELS, OPERATORS, STRATA, OperatorOptions, OperatorTeacher, Sheet
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.sheets import SheetDomain, beyond, read_sheet

BEGIN = "="
"""One of the few tokens of the task's policies with which no sheet begins."""

SHEETS = OperatorOptions(min_lines=4, max_lines=7, min_allowed=0, max_allowed=3)
"""The valid sheets of this author: the lab's easy regime has the same bounds."""

FRONTIER = (0.05, 0.6)
"""Chances to pass, for the teacher of the starting policy, of the sheets that the author mostly throws away."""


@dataclass(frozen=True)
class Operators(SheetDomain[Sheet]):
    """Operator sheets, the lab's task of many skills, for a task generator to write.

    Attributes:
        sheets: the bounds of a valid sheet. A sheet with fewer lines than it may have wrong would pass an empty
            answer, so every valid sheet has more lines than it allows to be wrong.
        begin: the generator's prompt, a text that no sheet begins with.
    """

    name: ClassVar[str] = "operators"
    sheets: OperatorOptions = field(default_factory=OperatorOptions)
    begin: str = BEGIN

    def parse(self, text: str, prompt: str = "") -> Sheet | Invalid:
        return read_sheet(text, operators.parse, operators.render)

    def _check(self, sheet: Sheet) -> Sheet | Invalid:
        if invalid := beyond(self.sheets, len(sheet.operators), sheet.allowed):
            return invalid
        if not operators.centres(sheet, self.sheets):
            return Invalid("operators of no window", sheet.operators)
        return sheet

    def problem(self, task: Sheet) -> Problem:
        """The problem, with the id that the lab's own source would give it, so that equal sheets are one problem."""
        prompt, answer = operators.render(task), operators.solve(task, self.sheets.table)
        features = {**operators.facts(task, operators.stratum_of(task), self.sheets.table), "topic": self.topic(task)}
        identifier = content_id("operator_sheets", prompt, answer)
        return Problem(identifier, prompt, answer, self.name, "operator_sheets", features)

    def topic(self, task: Sheet) -> str:
        """Stratum and allowed wrong lines, as in "A-D/1"."""
        return f"{operators.stratum_name(operators.stratum_of(task))}/{task.allowed}"


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
