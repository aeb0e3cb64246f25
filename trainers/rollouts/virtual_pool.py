"""Rollouts under way on a simulated clock, for tests and studies of what overlaps with what."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from halfway.curriculum.groups import Group, Request
from halfway.curriculum.streams import Stream
from halfway.trainers.contracts import Rollouts


@dataclass
class VirtualPool:
    """A `Pool` in which sampling takes simulated time: a number of slots, each of which decodes one rollout at a time.

    The outcomes are those of `rollouts` under the weights at submission; only when they come back follows from their
    lengths. Equal calls give equal times.

    Attributes:
        slots: number of rollouts decoded at once.
        rate: tokens per second in each slot.
        straggler_share: chance that a rollout is a straggler, which takes `slowdown` times as long.
        now: seconds that have passed.
        waited: seconds of these in which the caller waited for rollouts.
        sampled: seconds in which slots decoded, summed over the slots.
    """

    rollouts: Rollouts
    slots: int = 8
    rate: float = 100.0
    straggler_share: float = 0.0
    slowdown: float = 10.0
    now: float = 0.0
    waited: float = 0.0
    sampled: float = 0.0
    _free: list[float] = field(default_factory=list)
    _done: dict[str, tuple[float, Group]] = field(default_factory=dict)

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        for group in self.rollouts.run(requests, stream):
            chances = stream.at("straggler", group.request.ticket).generator().random(group.size)
            ends = [
                self._decode(rollout.num_generated, bool(chance < self.straggler_share))
                for rollout, chance in zip(group.rollouts, chances, strict=True)
            ]
            self._done[group.request.ticket] = (max(ends, default=self.now), group)

    def take(self, tickets: Sequence[str]) -> list[Group]:
        ends, groups = zip(*(self._done.pop(ticket) for ticket in tickets), strict=True) if tickets else ((), ())
        until = max((self.now, *ends))
        self.waited += until - self.now
        self.now = until
        return list(groups)

    def spend(self, seconds: float) -> None:
        """Let time pass in which the caller works."""
        self.now += seconds

    def close(self) -> None: ...

    def _decode(self, tokens: int, straggles: bool) -> float:
        """Give a rollout to the slot that is free first. Returns when it ends."""
        free = heapq.heappop(self._free) if len(self._free) == self.slots else self.now
        seconds = tokens / self.rate * (self.slowdown if straggles else 1.0)
        self.sampled += seconds
        end = max(free, self.now) + seconds
        heapq.heappush(self._free, end)
        return end
