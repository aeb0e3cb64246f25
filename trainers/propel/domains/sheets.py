"""Sheets of labelled lines that a generator writes: reading them, and what is beyond a task's bounds."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line
from halfway.trainers.propel.domains.base import Invalid

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


class SheetDomain(Generic[Sheet]):
    """What both domains of sheets have in common.

    Attributes:
        begin: the generator's prompt, a text that no sheet begins with.
    """

    name: ClassVar[str]
    open: ClassVar[bool] = False
    begin: str

    def __post_init__(self) -> None:
        if not self.begin or self.begin.startswith("^"):
            raise UserError(
                f"{self.name}: begin {self.begin!r} is not acceptable; give a text that does not begin with ^"
            )

    def prompt(self, stream: Stream) -> str:
        return self.begin

    def check(self, tasks: Sequence[Sheet]) -> list[Sheet | Invalid]:
        return [self._check(sheet) for sheet in tasks]

    def _check(self, sheet: Sheet) -> Sheet | Invalid:
        raise NotImplementedError


def read_sheet(text: str, parse: Callable[[str], Sheet], render: Callable[[Sheet], str]) -> Sheet | Invalid:
    """The sheet that a generated text is, or why it is not one."""
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
