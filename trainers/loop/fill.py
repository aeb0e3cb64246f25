"""Fills a training batch: which groups train, which are surplus, and how many more to request."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from halfway.curriculum.groups import Group
from halfway.curriculum.rollouts import Origin
from halfway.trainers.loop.loop_options import FillOptions


class GroupOutcome(NamedTuple):
    """A group and what became of it.

    Attributes:
        outcome: "trained", "zero_variance", "surplus", "carried", "waiting", "empty" or "declined".
    """

    round: int
    group: Group
    outcome: str


def adaptive_request(default: int, minimum: int, safety: float, missing: int, zero_variance: float) -> int:
    """GRESO's adaptive rollout batch: ask for about as many groups as will fill what is missing.

    R = max(minimum, min(default, floor(safety * missing / (1 - v)))), in groups, where v is the share of zero-variance
    groups in the latest round. At v = 1, where the original divides by zero, R is the default.
    """
    if zero_variance >= 1:
        return default
    # The small addend keeps an exact quotient, such as 1.25 x 8 / (5/8) = 16, from being floored to one less.
    return max(minimum, min(default, math.floor(safety * missing / (1 - zero_variance) + 1e-9)))


@dataclass(frozen=True, slots=True)
class Filling:
    """A batch that is being filled, round by round. The loop folds `add` over the rounds while `wanted` is positive.

    A group trains if it teaches (see `Group.teaches`) and the batch has room; with the option zero_variance=keep it
    only needs to have rollouts. A group to which controllers give no weight is declined. A group that was extended
    replaces its earlier form.

    GRESO's original flags a round as the last one when its request is small and then trains on an under-filled batch;
    here rounds continue until the batch is full, `max_rounds` is reached, or a round comes back empty.

    Attributes:
        rounds: number of rounds so far.
        placed: every group of this step in order, with the round that began it, starting with those carried over from
            the previous step.
        num_carried_in: how many of `placed` were carried in; they were observed in the step that rolled them out.
        exhausted: whether a round brought no group at all, because the controllers proposed nothing.
        held: tickets of groups that wait for a later step, which do not train in this one.
    """

    options: FillOptions
    rounds: int = 0
    placed: tuple[tuple[int, Group], ...] = ()
    num_carried_in: int = 0
    exhausted: bool = False
    held: frozenset[str] = frozenset()

    @classmethod
    def begin(cls, options: FillOptions, carried: Sequence[Group] = ()) -> "Filling":
        """An empty batch, or a batch that starts with the surplus carried over from the previous step."""
        return cls(options, placed=tuple((0, group) for group in carried), num_carried_in=len(carried))

    def wanted(self) -> int:
        """Groups to ask for in the next round; 0 = stop."""
        if self.exhausted or self.rounds >= self._max_rounds or self.missing == 0:
            return 0
        options = self.options
        if options.policy == "once":
            return self.missing
        default = options.first_request
        latest = [group for round_, group in self._own if round_ == self.rounds - 1]
        if options.request == "fixed" or not latest:
            return default
        zero_variance = sum(group.zero_variance for group in latest) / len(latest)
        return adaptive_request(default, options.min_request, options.safety, self.missing, zero_variance)

    def add(self, groups: Sequence[Group]) -> "Filling":
        """The batch after one more round."""
        more = {group.request.ticket: group for group in groups if group.request.ticket}
        place_of = {group.request.ticket: place for place, (_, group) in enumerate(self.placed) if group.request.ticket}
        placed = list(self.placed)
        for ticket in more.keys() & place_of.keys():
            round_, _ = placed[place_of[ticket]]
            placed[place_of[ticket]] = (round_, more[ticket])
        placed += [(self.rounds, group) for group in groups if group.request.ticket not in place_of]
        return replace(self, placed=tuple(placed), rounds=self.rounds + 1, exhausted=not groups)

    def hold(self, observed: Sequence[Group]) -> "Filling":
        """The batch without the groups of this step that were not observed at its end: they wait."""
        done = {group.request.ticket for group in observed}
        own = (group.request.ticket for _, group in self._own)
        return replace(self, held=frozenset(ticket for ticket in own if ticket not in done))

    @property
    def missing(self) -> int:
        """Number of groups by which a full batch exceeds what trains so far."""
        return self.options.groups - len(self.trained)

    @property
    def starved(self) -> bool:
        """True if the step trains on less than its fill policy asks for.

        Under "once" a batch may shrink by its zero-variance groups, so only a round without enough requests counts.
        """
        if self.options.policy == "once":
            return len(self.placed) < self.options.groups
        return self.missing > 0

    @property
    def groups(self) -> tuple[Group, ...]:
        """Every group that was rolled out in this step, with the rollouts that it brought."""
        return tuple(group.latest for _, group in self._own)

    @property
    def trained(self) -> tuple[Group, ...]:
        return tuple(entry.group for entry in self.outcomes if entry.outcome == "trained")

    @property
    def surplus(self) -> tuple[Group, ...]:
        """Groups that could train but found no room."""
        return tuple(entry.group for entry in self.outcomes if entry.outcome in ("surplus", "carried"))

    @property
    def outcomes(self) -> tuple[GroupOutcome, ...]:
        """Every group with its round and what became of it, for the decision log."""
        room, outcomes = self.options.groups, [""] * len(self.placed)
        # Groups that do not teach, if they are kept, have the room that the others leave.
        for place in sorted(range(len(self.placed)), key=lambda place: not self.placed[place][1].teaches):
            outcomes[place] = self._outcome(self.placed[place][1], room)
            room -= outcomes[place] == "trained"
        return tuple(GroupOutcome(*placed, outcome) for placed, outcome in zip(self.placed, outcomes, strict=True))

    @property
    def _own(self) -> tuple[tuple[int, Group], ...]:
        """Groups that were rolled out in this step, with their rounds."""
        entries = self.placed[self.num_carried_in :]
        return tuple(entry for entry in entries if entry[1].request.origin is not Origin.STORED)

    @property
    def _max_rounds(self) -> int:
        return 1 if self.options.policy == "once" else self.options.max_rounds

    def _outcome(self, group: Group, room: int) -> str:
        if group.request.ticket in self.held:
            return "waiting"
        if not group.size:
            return "empty"
        if not group.weights_N.any():
            return "declined"
        if not group.teaches and self.options.zero_variance == "drop":
            return "zero_variance"
        if room > 0:
            return "trained"
        return "carried" if self.options.surplus == "carry" else "surplus"
