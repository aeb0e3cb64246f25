"""Fills a training batch: which groups train, which are surplus, and how many more to request."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from halfway.curriculum import Group, Origin
from halfway.trainers.loop.loop_options import FillOptions


class GroupOutcome(NamedTuple):
    """A group and its outcome.

    Attributes:
        outcome: "trained", "zero_variance", "surplus", "carried", "waiting", "empty" or "declined".
    """

    round: int
    group: Group
    outcome: str


def adaptive_request(default: int, minimum: int, safety: float, missing: int, zero_variance: float) -> int:
    """GRESO's adaptive rollout batch: request about as many groups as will fill the rest of the batch.

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

    A group trains if it teaches (see `Group.teaches`) and the batch has room; with zero_variance=keep it only needs
    rollouts. A group to which controllers give weight 0 is declined. An extended group replaces its earlier form.

    GRESO's original stops after a round with a small request, and then trains on an under-filled batch; here rounds
    continue until the batch is full, `max_rounds` is reached, or a round is empty.

    Attributes:
        rounds: number of rounds so far.
        placed: every group of this step in order, with its first round; groups carried over from the previous step come
            first.
        num_carried_in: number of groups in `placed` that were carried over; they were observed in the step that rolled
            them out.
        exhausted: true if a round had no group, because the controllers proposed nothing.
        held: tickets of groups that wait for a later step and do not train in this one.
    """

    options: FillOptions
    rounds: int = 0
    placed: tuple[tuple[int, Group], ...] = ()
    num_carried_in: int = 0
    exhausted: bool = False
    held: frozenset[str] = frozenset()

    @classmethod
    def begin(cls, options: FillOptions, carried: Sequence[Group] = ()) -> "Filling":
        """A batch with the surplus carried over from the previous step, if any."""
        return cls(options, placed=tuple((0, group) for group in carried), num_carried_in=len(carried))

    def wanted(self) -> int:
        """Groups to request in the next round; 0 = stop."""
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
        """The batch without the groups of this step that wait, unobserved, for a later one."""
        done = {group.request.ticket for group in observed}
        own = (group.request.ticket for _, group in self._own)
        return replace(self, held=frozenset(ticket for ticket in own if ticket not in done))

    @property
    def missing(self) -> int:
        """Number of groups that a full batch still lacks."""
        return self.options.groups - len(self.trained)

    @property
    def starved(self) -> bool:
        """True if the step trains on fewer groups than its fill policy requires.

        Under "once" a batch may shrink by its zero-variance groups, so only a round without enough requests counts.
        """
        if self.options.policy == "once":
            return len(self.placed) < self.options.groups
        return self.missing > 0

    @property
    def groups(self) -> tuple[Group, ...]:
        """Every group rolled out in this step; `Group.latest` has its rollouts of this step."""
        return tuple(group for _, group in self._own)

    @property
    def trained(self) -> tuple[Group, ...]:
        return tuple(entry.group for entry in self.outcomes if entry.outcome == "trained")

    @property
    def surplus(self) -> tuple[Group, ...]:
        """Groups that could train but have no room."""
        return tuple(entry.group for entry in self.outcomes if entry.outcome in ("surplus", "carried"))

    @property
    def outcomes(self) -> tuple[GroupOutcome, ...]:
        """Every group with its round and outcome, for the decision log."""
        room, outcomes = self.options.groups, [""] * len(self.placed)
        # Groups that do not teach, if kept, get the room left by the others.
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
