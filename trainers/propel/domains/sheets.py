"""The lab's sheets as domains: the generated text is itself the solver's prompt.

A text is valid if the lab could have drawn it: labels a, b, c, ... in order, values within the rules of its task, and
the options' bounds on lines and wrong lines. A valid sheet has more lines than allowed wrong lines; otherwise an empty
answer would pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Generic, TypeVar

from halfway.curriculum import Problem, Stream
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.lab import operators, sums
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.domain import Invalid

Sheet = TypeVar("Sheet")
Bounds = sums.SumsOptions | operators.OperatorOptions


class SheetDomain(Generic[Sheet]):
    """The base of both domains of sheets.

    Attributes:
        begin: the generator's prompt, a token of the task's policies that starts no sheet.
        source: the lab's own source of such sheets.
        lab: the lab's rules of the task.
    """

    name: ClassVar[str]
    begin: ClassVar[str]
    source: ClassVar[str]
    lab: ClassVar[ModuleType]
    open: ClassVar[bool] = False

    def prompt(self, stream: Stream) -> str:
        return self.begin

    def parse(self, text: str, prompt: str = "") -> Sheet | Invalid:
        """Parse a generated text as a sheet, or say why it is not one."""
        try:
            sheet: Sheet = self.lab.parse(text)
        except ValueError:
            return Invalid("unreadable", one_line(text))
        if self.lab.render(sheet) != text:  # also digits that are not ASCII, and more lines than there are labels
            return Invalid("labels out of order", one_line(text))
        return sheet

    def check(self, tasks: Sequence[Sheet]) -> list[Sheet | Invalid]:
        return [self._check(sheet) for sheet in tasks]

    def problem(self, task: Sheet) -> Problem:
        """Make the problem, with the id from the lab's own source, so that equal sheets are one problem."""
        prompt, (answer, facts) = self.lab.render(task), self._solve(task)
        features = {**facts, "topic": self.topic(task)}
        return Problem(content_id(self.source, prompt, answer), prompt, answer, self.name, self.source, features)

    def topic(self, task: Sheet) -> str:
        raise NotImplementedError

    def _check(self, sheet: Sheet) -> Sheet | Invalid:
        raise NotImplementedError

    def _solve(self, sheet: Sheet) -> tuple[str, Mapping[str, float | str | tuple[float, ...]]]:
        """The answer and the features of the problem."""
        raise NotImplementedError


@dataclass(frozen=True)
class Sums(SheetDomain[sums.Sheet]):
    """Sheets of running sums, the lab's small task, written by a generator.

    Attributes:
        sheets: the bounds of a valid sheet.
    """

    name: ClassVar[str] = "sums"
    begin: ClassVar[str] = "!"
    source: ClassVar[str] = "running_sums"
    lab: ClassVar[ModuleType] = sums
    sheets: sums.SumsOptions = field(default_factory=sums.SumsOptions)

    def topic(self, task: sums.Sheet) -> str:
        """Lines and allowed wrong lines, as in "9/2"."""
        return f"{len(task.operands)}/{task.allowed}"

    def _check(self, sheet: sums.Sheet) -> sums.Sheet | Invalid:
        if sheet.start >= sums.MODULUS:
            return Invalid("start out of range", f"{sheet.start}, below {sums.MODULUS}")
        if not all(1 <= operand <= sums.LARGEST for operand in sheet.operands):
            return Invalid("operand out of range", f"{sheet.operands}, from 1 to {sums.LARGEST}")
        return _beyond(self.sheets, len(sheet.operands), sheet.allowed) or sheet

    def _solve(self, sheet: sums.Sheet) -> tuple[str, Mapping[str, float | str | tuple[float, ...]]]:
        return sums.solve(sheet), sums.facts(sheet)


@dataclass(frozen=True)
class Operators(SheetDomain[operators.Sheet]):
    """Operator sheets, the lab's task of many skills, written by a generator.

    Attributes:
        sheets: the bounds of a valid sheet.
    """

    name: ClassVar[str] = "operators"
    begin: ClassVar[str] = "="
    source: ClassVar[str] = "operator_sheets"
    lab: ClassVar[ModuleType] = operators
    sheets: operators.OperatorOptions = field(default_factory=operators.OperatorOptions)

    def topic(self, task: operators.Sheet) -> str:
        """Stratum and allowed wrong lines, as in "A-D/1"."""
        return f"{operators.stratum_name(operators.stratum_of(task))}/{task.allowed}"

    def _check(self, sheet: operators.Sheet) -> operators.Sheet | Invalid:
        if invalid := _beyond(self.sheets, len(sheet.operators), sheet.allowed):
            return invalid
        if not operators.centres(sheet, self.sheets):
            return Invalid("operators of no window", sheet.operators)
        return sheet

    def _solve(self, sheet: operators.Sheet) -> tuple[str, Mapping[str, float | str | tuple[float, ...]]]:
        number = self.sheets.table
        return operators.solve(sheet, number), operators.facts(sheet, operators.stratum_of(sheet), number)


def _beyond(bounds: Bounds, lines: int, allowed: int) -> Invalid | None:
    """Why a sheet is invalid: beyond its task's bounds, or passing an empty answer; None if it is valid."""
    if not bounds.min_lines <= lines <= bounds.max_lines:
        return Invalid("number of lines", f"{lines}, from {bounds.min_lines} to {bounds.max_lines}")
    if not bounds.min_allowed <= allowed <= bounds.max_allowed:
        return Invalid("allowed wrong lines", f"{allowed}, {bounds.min_allowed} to {bounds.max_allowed}")
    if allowed >= lines:
        return Invalid("passes without an answer", f"{allowed} wrong of {lines}")
    return None
