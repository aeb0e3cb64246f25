"""The contract of a domain of generated tasks.

A domain is a frozen dataclass whose fields are its options. It prompts a generator for a task, parses and checks the
text, and makes the solver's problem from it. It knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from halfway.curriculum import Problem, Stream


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a text is not a valid task. `reason` is one of a few, for counting; `detail` is about this text."""

    reason: str
    detail: str = ""


Task = TypeVar("Task")


class Domain(Protocol[Task]):
    """One kind of generated task. `Task` is the parsed text, with all that a problem needs."""

    @property
    def name(self) -> str:
        """The source of its problems, for logs."""
        ...

    @property
    def open(self) -> bool:
        """True if its problems come without an answer, so that oracles must supply one."""
        ...

    def prompt(self, stream: Stream) -> str:
        """Draw the text that a generator continues; a function of the stream alone."""
        ...

    def parse(self, text: str, prompt: str = "") -> Task | Invalid:
        """Parse a generator's text, without special tokens. Runs no code from the text.

        Args:
            prompt: the generator's prompt, for a domain whose texts have no meaning without it.
        """
        ...

    def check(self, tasks: Sequence[Task]) -> list[Task | Invalid]:
        """Check tasks, in order: each task with all that its problem needs, or why it is invalid."""
        ...

    def problem(self, task: Task) -> Problem:
        """Make the solver's problem. `task` comes from `check`; equal tasks give equal ids."""
        ...

    def topic(self, task: Task) -> str:
        """The topic of a parsed task, for the share of the commonest topic."""
        ...
