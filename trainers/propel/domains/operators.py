"""The lab's operator sheets, written by a generator: a text is the very prompt that the solver gets.

`halfway.curriculum.tasks.lab.operators` has the rules of the task. A text is valid if the lab could have drawn it:
labels a, b, c, ... in order, operators from one window, and the options' bounds on lines and wrong lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.lab import operators
from halfway.curriculum.tasks.lab.operators import OperatorOptions, Sheet
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.sheets import beyond, read_sheet, require_begin

BEGIN = "="
"""One of the few tokens of the task's policies with which no sheet begins."""


@dataclass(frozen=True)
class Operators:
    """Operator sheets, the lab's task of many skills, for a task generator to write.

    Attributes:
        sheets: the bounds of a valid sheet. A sheet with fewer lines than it may have wrong would pass an empty
            answer, so every valid sheet has more lines than it allows to be wrong.
        begin: the generator's prompt, a text that no sheet begins with.
    """

    sheets: OperatorOptions = field(default_factory=OperatorOptions)
    begin: str = BEGIN

    def __post_init__(self) -> None:
        require_begin("operators", self.begin)

    @property
    def name(self) -> str:
        return "operators"

    @property
    def open(self) -> bool:
        return False

    def prompt(self, stream: Stream) -> str:
        return self.begin

    def parse(self, text: str, prompt: str = "") -> Sheet | Invalid:
        return read_sheet(text, operators.parse, operators.render)

    def check(self, tasks: Sequence[Sheet]) -> list[Sheet | Invalid]:
        return [self._check(sheet) for sheet in tasks]

    def _check(self, sheet: Sheet) -> Sheet | Invalid:
        if invalid := beyond(self.sheets, len(sheet.operators), sheet.allowed):
            return invalid
        if not operators.centres(sheet, self.sheets):
            return Invalid("operators of no window", sheet.operators)
        return sheet

    def problem(self, task: Sheet) -> Problem:
        """The problem, with the id that the lab's own source would give it, so that equal sheets are one problem."""
        prompt, answer = operators.render(task), operators.solve(task)
        features = {**operators.facts(task, operators.stratum_of(task)), "topic": self.topic(task)}
        identifier = content_id("operator_sheets", prompt, answer)
        return Problem(identifier, prompt, answer, self.name, "operator_sheets", features)

    def topic(self, task: Sheet) -> str:
        """Stratum and allowed wrong lines, as in "A-D/1"."""
        return f"{operators.stratum_name(operators.stratum_of(task))}/{task.allowed}"
