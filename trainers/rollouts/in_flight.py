"""Rollouts under way: requests go in as they are drawn, and groups come out when they are asked for."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from halfway.curriculum.groups import Group, Request
from halfway.curriculum.streams import Stream
from halfway.trainers.contracts import Rollouts


class Pool(Protocol):
    """Rolls out requests, possibly while the caller does other work.

    What comes back depends on the requests, their streams and the weights, never on when it is asked for.

    Attributes:
        times: of what was taken, by ticket: when its sampling began and when it ended, by `time`.
    """

    times: dict[str, tuple[float, float]]

    def time(self) -> float:
        """The pool's clock, in seconds."""
        ...

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        """Have these requests, which carry tickets, rolled out together, see `Rollouts.run`."""
        ...

    def take(self, tickets: Sequence[str]) -> list[Group]:
        """The groups of these tickets, in their order, each handed out once. Waits for those that are under way."""
        ...

    def close(self) -> None:
        """Give up what is under way."""
        ...


@dataclass
class InlinePool:
    """Rolls requests out as soon as they are submitted, while the caller waits."""

    rollouts: Rollouts
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    _done: dict[str, Group] = field(default_factory=dict)

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        began = self.time()
        groups = {group.request.ticket: group for group in self.rollouts.run(requests, stream)}
        self._done |= groups
        self.times |= dict.fromkeys(groups, (began, self.time()))

    def time(self) -> float:
        return time.time()

    def take(self, tickets: Sequence[str]) -> list[Group]:
        return [self._done.pop(ticket) for ticket in tickets]

    def close(self) -> None: ...
