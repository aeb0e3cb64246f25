"""The contract of a domain of generated tasks.

A domain is a frozen dataclass whose fields are its options. It knows how to ask a generator for a task, what a text
means, when it is valid, and which problem a solver gets. It knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a text is not a valid task. `reason` is one of a few, to be counted; `detail` says more about this text."""

    reason: str
    detail: str = ""


Task = TypeVar("Task")


class Domain(Protocol[Task]):
    """One kind of generated task. `Task` is the parsed text, with everything a problem is made from."""

    @property
    def name(self) -> str:
        """The source of its problems, for logs."""
        ...

    @property
    def open(self) -> bool:
        """True if its problems come without an answer, so that oracles have to supply one."""
        ...

    def prompt(self, stream: Stream) -> str:
        """The text that a generator continues; a function of the stream alone."""
        ...

    def parse(self, text: str, prompt: str = "") -> Task | Invalid:
        """Parse what a generator wrote, without end or other special tokens. Runs nothing that the text contains.

        Args:
            prompt: the generator's prompt, for a domain whose texts mean nothing without it.
        """
        ...

    def check(self, tasks: Sequence[Task]) -> list[Task | Invalid]:
        """The validity predicate, in order: each task with all that its problem needs, or why it is invalid."""
        ...

    def problem(self, task: Task) -> Problem:
        """The problem that a solver gets. `task` comes from `check`; equal tasks give equal ids."""
        ...

    def topic(self, task: Task) -> str:
        """The family of a parsed task, from which the share of the commonest topic is computed."""
        ...
