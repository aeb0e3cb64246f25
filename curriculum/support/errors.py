"""The one exception that a user may cause: its message is a single line, shown without a traceback."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Read = TypeVar("Read")
MOST = 20
"""Mistakes after which no more are looked for: a file may come from a stranger."""
LONGEST = 3000
"""Characters of a message, from the middle of which more are left out."""


class UserError(ValueError):
    """A mistake in a file, an option or a checkpoint. The message names the field, the value and the remedy.

    Attributes:
        others: further mistakes of the same file, which `halfway validate` shows too.
    """

    others: tuple["UserError", ...] = ()

    def __init__(self, message: str):
        line = " ".join(message.splitlines())
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST - 1003]}...{line[-1000:]}")

    @property
    def all(self) -> tuple["UserError", ...]:
        """This mistake and the others."""
        return (self, *self.others)

    def within(self, place: str) -> "UserError":
        """The same mistakes with a place in front of each message."""
        return join_errors([UserError(f"{place}{error}") for error in self.all])


def join_errors(errors: Sequence[UserError]) -> UserError:
    """The first of several mistakes, which holds the others."""
    first, *others = [one for error in errors for one in error.all]
    first.others = tuple(others)
    return first


def each(attempts: Sequence[Callable[[], Read]]) -> list[Read]:
    """Results of all functions. If some raise UserError, the others still run, and all mistakes are raised together."""
    done: list[Read] = []
    errors: list[UserError] = []
    for attempt in attempts:
        if len(errors) == MOST:
            break
        try:
            done.append(attempt())
        except UserError as error:
            errors += error.all[: MOST - len(errors)]
    if errors:
        raise join_errors(errors) from None
    return done


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise the one-line error for a field whose value is not acceptable."""
    if not condition:
        raise UserError(f"{field}: {value!r} is not acceptable; {remedy}")
