"""Rollouts under way on a simulated clock."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from halfway.curriculum import Group, Request, Rollout, Stream
from halfway.trainers.contracts import Rollouts
from halfway.trainers.rollouts.in_flight import Pool


@dataclass
class VirtualPool(Pool):
    """A `Pool` in which sampling takes simulated time: a number of slots, each of which decodes one rollout at a time.

    The outcomes are those of `rollouts` under the weights at submission; when they come back, and which weights wrote
    which segment of them, follows from their lengths. Equal calls give equal times.

    Attributes:
        slots: number of rollouts decoded at once.
        rate: tokens per second in each slot.
        straggler_share: chance that a rollout is a straggler, which takes `slowdown` times as long.
        lost_share: chance that a rollout is lost at its end.
        now: seconds that have passed.
        waited: seconds of these in which the caller waited for rollouts.
        sampled: seconds in which slots decoded, summed over the slots.
    """

    rollouts: Rollouts
    slots: int = 8
    rate: float = 100.0
    straggler_share: float = 0.0
    slowdown: float = 10.0
    lost_share: float = 0.0
    now: float = 0.0
    waited: float = 0.0
    sampled: float = 0.0
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    _free: list[float] = field(default_factory=list)
    _done: dict[str, tuple[float, list[tuple[float, float]], Group]] = field(default_factory=dict)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        for group in self.rollouts.run(requests, stream):
            chances = stream.at("straggler", group.request.ticket).generator().random(group.size)
            times = [
                self._decode(rollout.num_generated, bool(chance < self.straggler_share))
                for rollout, chance in zip(group.rollouts, chances, strict=True)
            ]
            lost = stream.at("lost", group.request.ticket).generator().random(group.size) < self.lost_share
            kept = tuple(rollout for rollout, gone in zip(group.rollouts, lost, strict=True) if not gone)
            dropped = {"lost": int(lost.sum())} if lost.any() else {}
            paces = [time for time, gone in zip(times, lost, strict=True) if not gone]
            ends = max((end for _, end in times), default=self.now)
            self._done[group.request.ticket] = (ends, paces, replace(group, rollouts=kept, dropped=dropped))

    def take(self, tickets: Sequence[str]) -> list[Group]:
        taken = [self._done.pop(ticket) for ticket in tickets]
        until = max((self.now, *(end for end, _, _ in taken)))
        self.waited += until - self.now
        self.now = until
        spent = [times or [(until, until)] for _, times, _ in taken]
        self.times |= {t: (min(times)[0], max(e for _, e in times)) for t, times in zip(tickets, spent, strict=True)}
        return [replace(group, rollouts=self._written(group.rollouts, times)) for _, times, group in taken]

    def time(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        """Let time pass in which the caller works."""
        self.now += seconds

    def change_weights(self, version: int) -> None:
        """Use these weights for all further tokens, also of rollouts under way."""
        self._changes.append((self.now, version))

    def close(self) -> None: ...

    def _decode(self, tokens: int, straggles: bool) -> tuple[float, float]:
        """Give a rollout to the slot that is free first. Returns when it begins and when it ends."""
        free = heapq.heappop(self._free) if len(self._free) == self.slots else self.now
        seconds = tokens / self.rate * (self.slowdown if straggles else 1.0)
        self.sampled += seconds
        start = max(free, self.now)
        heapq.heappush(self._free, start + seconds)
        return start, start + seconds

    def _written(self, rollouts: Sequence[Rollout], times: Sequence[tuple[float, float]]) -> tuple[Rollout, ...]:
        """The rollouts with the versions that wrote their tokens, which come evenly between beginning and end."""
        if not self._changes:
            return tuple(rollouts)
        written = []
        for rollout, (start, end) in zip(rollouts, times, strict=True):
            midpoints = (np.arange(rollout.num_generated) + 0.5) / max(rollout.num_generated, 1)
            before = np.searchsorted([at for at, _ in self._changes], start + (end - start) * midpoints)
            turns, done = [], 0
            for turn in rollout.turns:
                versions = [turn.policy_version, *(version for _, version in self._changes)]
                numbers, counts = np.unique(before[done : done + turn.num_generated], return_counts=True)
                spans = tuple((versions[i], int(n)) for i, n in zip(numbers, counts, strict=True))
                first = spans[0][0] if spans else turn.policy_version
                turns.append(replace(turn, policy_version=first, spans=spans if len(spans) > 1 else ()))
                done += turn.num_generated
            written.append(replace(rollout, turns=tuple(turns)))
        return tuple(written)
