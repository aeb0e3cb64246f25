"""The lab's running sums, written by a generator: a text is the very prompt that the solver gets.

`halfway.curriculum.tasks.lab.sums` has the rules of the task. A text is valid if the lab could have drawn it: labels a,
b, c, ... in order, a start below the modulus, operands from 1 to the largest, and the options' bounds on lines and
wrong lines.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.lab.sums import Sheet
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.sheets import beyond, read_sheet, require_begin

BEGIN = "!"


@dataclass(frozen=True)
class Sums:
    """Sheets of running sums, the lab's small task, for a task generator to write.

    Attributes:
        sheets: the bounds of a valid sheet. A sheet with fewer lines than it may have wrong would pass an empty
            answer, so every valid sheet has more lines than it allows to be wrong.
        begin: the generator's prompt, a text that no sheet begins with.
    """

    sheets: sums.SumsOptions = field(default_factory=sums.SumsOptions)
    begin: str = BEGIN

    def __post_init__(self) -> None:
        require_begin("sums", self.begin)

    @property
    def name(self) -> str:
        return "sums"

    @property
    def open(self) -> bool:
        return False

    def prompt(self, stream: Stream) -> str:
        return self.begin

    def parse(self, text: str, prompt: str = "") -> Sheet | Invalid:
        return read_sheet(text, sums.parse, sums.render)

    def check(self, tasks: Sequence[Sheet]) -> list[Sheet | Invalid]:
        return [self._check(sheet) for sheet in tasks]

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
