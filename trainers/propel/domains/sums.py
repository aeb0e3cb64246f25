"""The lab's running sums, written by a generator: a text is the very prompt that the solver gets; and a flawed author.

`halfway.curriculum.tasks.lab.sums` has the rules of the task. A text is valid if the lab could have drawn it: labels a,
b, c, ... in order, a start below the modulus, operands from 1 to the largest, and the options' bounds on lines and
wrong lines.

The lab's task generator learns the habits of `SheetAuthor`, who first decides how many wrong lines pass, then how often
the total wraps around, which is where the solver errs: mostly so seldom that the sheet is easy, or so often that it is
hopeless. Neither the number of lines nor the number of allowed errors tells much about the difficulty: only both
together with the sum of all operands. One text in seven is not a sheet.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from halfway.curriculum.problems import Problem
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.lab.sums import LABELS, Sheet, SumsOptions
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.sheets import SheetDomain, beyond, read_sheet

BEGIN = "!"

SHEETS = SumsOptions()
"""The valid sheets of this author: those that the lab draws."""

WRAPS: Mapping[int, tuple[float, ...]] = {
    1: (0.00, 0.15, 0.05, 0.05, 0.15, 0.30, 0.20, 0.10),
    2: (0.45, 0.05, 0.10, 0.07, 0.03, 0.05, 0.10, 0.15),
    3: (0.40, 0.30, 0.02, 0.03, 0.08, 0.05, 0.04, 0.08),
    4: (0.20, 0.35, 0.30, 0.00, 0.00, 0.05, 0.06, 0.04),
}


@dataclass(frozen=True)
class Sums(SheetDomain[Sheet]):
    """Sheets of running sums, the lab's small task, for a task generator to write.

    Attributes:
        sheets: the bounds of a valid sheet. A sheet with fewer lines than it may have wrong would pass an empty
            answer, so every valid sheet has more lines than it allows to be wrong.
        begin: the generator's prompt, a text that no sheet begins with.
    """

    name: ClassVar[str] = "sums"
    sheets: SumsOptions = field(default_factory=SumsOptions)
    begin: str = BEGIN

    def parse(self, text: str, prompt: str = "") -> Sheet | Invalid:
        return read_sheet(text, sums.parse, sums.render)

    def _check(self, sheet: Sheet) -> Sheet | Invalid:
        if sheet.start >= sums.MODULUS:
            return Invalid("start out of range", f"{sheet.start}, below {sums.MODULUS}")
        if not all(1 <= operand <= sums.LARGEST for operand in sheet.operands):
            return Invalid("operand out of range", f"{sheet.operands}, from 1 to {sums.LARGEST}")
        return beyond(self.sheets, len(sheet.operands), sheet.allowed) or sheet

    def problem(self, task: Sheet) -> Problem:
        """The problem, with the id that the lab's own source would give it, so that equal sheets are one problem."""
        flawless = sums.SumsTeacher(forget=0.0, slip=0.0)
        prompt, answer = sums.render(task), sums.demonstrate(task, flawless, random.Random(0))
        features: dict[str, float | str] = {
            "lines": len(task.operands),
            "allowed": task.allowed,
            "wraps": sums.wraps(task),
            "topic": self.topic(task),
        }
        return Problem(content_id("running_sums", prompt, answer), prompt, answer, self.name, "running_sums", features)

    def topic(self, task: Sheet) -> str:
        """Lines and allowed wrong lines, as in "9/2"."""
        return f"{len(task.operands)}/{task.allowed}"


@dataclass(frozen=True)
class SheetAuthor:
    """How sheets are drawn.

    Attributes:
        wraps: number of wrong lines that pass (drawn uniformly) -> the weights of 1, 2, ... wraps. The solver gets
            about two thirds of the wraps wrong. The weights avoid its frontier, which is at 2 wraps where one wrong
            line passes and at 7 where four do.
        flawed: chance that a sheet is spoilt in one of the ways of `spoil`.
    """

    wraps: Mapping[int, tuple[float, ...]] = field(default_factory=lambda: WRAPS)
    flawed: float = 0.14


def write_sheet(author: SheetAuthor, rng: random.Random) -> str:
    """One text as the author writes it, a prompt of the task or a spoilt one."""
    allowed = rng.choice(sorted(author.wraps))
    wraps, sheet = _weighted(author.wraps[allowed], 1, rng), None
    while sheet is None:
        sheet = _with_wraps(wraps, allowed, rng)
    return spoil(sheet, rng) if rng.random() < author.flawed else sums.render(sheet)


def _with_wraps(wraps: int, allowed: int, rng: random.Random) -> Sheet | None:
    """A sheet whose total wraps around `wraps` times; None if the drawn start and number of lines rule that out."""
    lines, start = rng.randint(SHEETS.min_lines, SHEETS.max_lines), rng.randrange(sums.MODULUS)
    total = sums.MODULUS * wraps + rng.randrange(sums.MODULUS) - start
    if not lines <= total <= sums.LARGEST * lines:
        return None
    operands = [1] * lines
    for _ in range(total - lines):
        room = [i for i, operand in enumerate(operands) if operand < sums.LARGEST]
        operands[rng.choice(room)] += 1
    return Sheet(start, tuple(operands), allowed)


def spoil(sheet: Sheet, rng: random.Random) -> str:
    """A nearly valid text: its end is missing, a label is skipped, an operand or the start is out of range, there are
    too few lines, or too few or too many wrong lines pass."""
    operands, place = sheet.operands, rng.randrange(len(sheet.operands))
    match rng.randrange(6):
        case 0:
            return sums.render(sheet).removesuffix("=")
        case 1:
            return sums.render(sheet).replace(LABELS[place], LABELS[place + 1], 1)
        case 2:
            strange = rng.choice((0, *range(sums.LARGEST + 1, 10)))
            return sums.render(sheet._replace(operands=(*operands[:place], strange, *operands[place + 1 :])))
        case 3:
            return sums.render(sheet._replace(start=rng.randrange(sums.MODULUS, 10)))
        case 4:
            return sums.render(sheet._replace(operands=operands[: rng.randint(4, SHEETS.min_lines - 1)]))
        case _:
            return sums.render(sheet._replace(allowed=rng.choice((0, SHEETS.max_allowed + 1))))


def _weighted(weights: tuple[float, ...], first: int, rng: random.Random) -> int:
    """One of first, first + 1, ..., by weight."""
    return rng.choices(range(first, first + len(weights)), weights)[0]
