"""The one exception that a user may cause: its message is a single line, shown without a traceback."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Read = TypeVar("Read")
MOST = 20
"""Maximum number of mistakes to report: a file may come from a stranger."""
LONGEST = 3000
"""Maximum number of characters of a message; a longer one is cut in the middle."""


class UserError(ValueError):
    """A mistake in a file, an option or a checkpoint. The message names the field, the value and the remedy.

    Attributes:
        others: further mistakes in the same file, for `halfway validate`.
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
        """Put a place in front of each message."""
        return join_errors([UserError(f"{place}{error}") for error in self.all])


def join_errors(errors: Sequence[UserError]) -> UserError:
    """Combine several mistakes into the first one."""
    first, *others = [one for error in errors for one in error.all]
    first.others = tuple(others)
    return first


def each(attempts: Sequence[Callable[[], Read]]) -> list[Read]:
    """Call all functions; returns their results, or raises all their UserErrors together."""
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
    """Raise `refusal(field, value, remedy)` unless `condition` is true."""
    if not condition:
        raise refusal(field, value, remedy)


def refusal(field: str, value: object, remedy: str) -> UserError:
    """The one-line error for an invalid value of a field.

    Args:
        remedy: "give" and a noun, which becomes "must be" and the noun; more may follow after a semicolon. Otherwise
            the reason, the remedy or both, as a clause of its own.

    >>> print(refusal("learner.lr", -1.0, "give a positive number; 1e-6 is usual"))
    learner.lr: must be a positive number, not -1.0; 1e-6 is usual
    >>> print(refusal("learner.share_contexts", True, "set advantage=grpo"))
    learner.share_contexts: cannot be True; set advantage=grpo
    """
    wanted, mark, more = remedy.removeprefix("give ").partition("; ")
    if wanted and remedy.startswith("give "):
        return UserError(f"{field}: must be {wanted}, not {value!r}{mark}{more}")
    return UserError(f"{field}: cannot be {value!r}; {remedy}")
