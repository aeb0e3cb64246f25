"""Pools of rollouts in progress: requests go in, and groups come out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from halfway.curriculum import Group, Request, Stream
from halfway.curriculum.stored import Store, put_group
from halfway.trainers.contracts import Judged, Rollouts


class Pool(Judged, Protocol):
    """Rolls out requests, possibly while the caller does other work.

    The groups depend on the requests, their streams and the weights, never on the time of `take`.

    Attributes:
        times: start and end of the sampling of each taken ticket, by `time`.
        resampled: number of groups sampled again since a worker had ended, since it was last set to 0.
    """

    times: dict[str, tuple[float, float]]
    resampled: int = 0

    def time(self) -> float:
        """The pool's clock, in seconds."""
        ...

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        """Roll out these requests, which have tickets, together, see `Rollouts.run`."""
        ...

    def take(self, tickets: Sequence[str]) -> list[Group]:
        """Wait for the groups of these tickets; returns them in order. Each can be taken once."""
        ...

    def close(self) -> None:
        """Abandon all rollouts in progress."""
        ...


@dataclass
class InlinePool(Pool):
    """Rolls out requests as soon as they are submitted, while the caller waits.

    Attributes:
        store: keeps the arrays of the groups; None = the groups hold them.
    """

    rollouts: Rollouts
    store: Store | None = None
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    _done: dict[str, Group] = field(default_factory=dict)

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        began = self.time()
        groups = {group.request.ticket: group for group in self.rollouts.run(requests, stream)}
        if self.store:
            groups = {ticket: put_group(group, self.store) for ticket, group in groups.items()}
        self._done |= groups
        self.times |= dict.fromkeys(groups, (began, self.time()))

    def time(self) -> float:
        return time.time()

    def take(self, tickets: Sequence[str]) -> list[Group]:
        return [self._done.pop(ticket) for ticket in tickets]

    def close(self) -> None: ...
