"""How a training batch is filled: which groups train, which are spare, and how many more to ask for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from halfway.curriculum.groups import Group
from halfway.trainers.loop.options import FillOptions


class Filed(NamedTuple):
    """A group and what became of it: "trained", "degenerate", "surplus", "carried" or "empty"."""

    round: int
    group: Group
    outcome: str


def adaptive_request(default: int, minimum: int, safety: float, missing: int, zero_variance: float) -> int:
    """GRESO's adaptive rollout batch: ask for about as many groups as will fill what is missing.

    R = max(minimum, min(default, floor(safety * missing / (1 - v)))), groups; v is the share of zero-variance groups
    in the latest round. At v = 1, where the original divides by zero, R is the default.
    """
    if zero_variance >= 1:
        return default
    # The small addend keeps an exact quotient, such as 1.25 x 8 / (5/8) = 16, from being floored to one less.
    return max(minimum, min(default, math.floor(safety * missing / (1 - zero_variance) + 1e-9)))


@dataclass(frozen=True, slots=True)
class Filling:
    """A batch that is being filled, round by round. The loop folds `add` over the rounds while `wanted` is positive.

    A group trains if it is not degenerate, judged on raw successes, and the batch has room; with the option
    degenerate=keep it need only have rollouts. GRESO's original flags a round as the last one when its request is small
    and then trains on an under-filled batch; here rounds go on until the batch is full, `max_rounds` is reached, or a
    round comes back empty.

    Attributes:
        rounds: rounds so far.
        filed: every group of this step in order, first those carried over from the step before.
        num_carried_in: how many of `filed` were carried in; they were observed in the step that rolled them out.
        exhausted: a round brought no group at all: the controllers proposed nothing.
    """

    options: FillOptions
    rounds: int = 0
    filed: tuple[Filed, ...] = ()
    num_carried_in: int = 0
    exhausted: bool = False

    @classmethod
    def begin(cls, options: FillOptions, carried: Sequence[Group] = ()) -> "Filling":
        """An empty batch, or one that starts with the surplus carried over from the step before."""
        filling = cls(options)._file(carried, round_index=0)
        return replace(filling, num_carried_in=len(carried))

    def wanted(self) -> int:
        """Groups to ask for in the next round; 0 = stop."""
        if self.exhausted or self.rounds >= self._max_rounds or self.missing == 0:
            return 0
        options = self.options
        if options.policy == "once":
            return self.missing
        default = options.first_request
        latest = [entry.group for entry in self.filed[self.num_carried_in :] if entry.round == self.rounds - 1]
        if options.request == "fixed" or not latest:
            return default
        zero_variance = sum(group.degenerate for group in latest) / len(latest)
        return adaptive_request(default, options.min_request, options.safety, self.missing, zero_variance)

    def add(self, groups: Sequence[Group]) -> "Filling":
        """The batch after one more round."""
        filling = self._file(groups, self.rounds)
        return replace(filling, rounds=self.rounds + 1, exhausted=not groups)

    @property
    def missing(self) -> int:
        """Groups between what trains so far and a full batch."""
        return self.options.groups - len(self.trained)

    @property
    def starved(self) -> bool:
        """Whether the step trains on less than its fill policy asks for.

        Under "once" a batch may shrink by its degenerate groups, so only a round without enough requests counts.
        """
        if self.options.policy == "once":
            return len(self.filed) < self.options.groups
        return self.missing > 0

    @property
    def groups(self) -> tuple[Group, ...]:
        """Every group that was rolled out in this step."""
        return tuple(entry.group for entry in self.filed[self.num_carried_in :])

    @property
    def trained(self) -> tuple[Group, ...]:
        return tuple(entry.group for entry in self.filed if entry.outcome == "trained")

    @property
    def surplus(self) -> tuple[Group, ...]:
        """Groups that could train and found no room."""
        return tuple(entry.group for entry in self.filed if entry.outcome in ("surplus", "carried"))

    @property
    def outcomes(self) -> tuple[Filed, ...]:
        """Every group with its round and what became of it, for the decision log."""
        return self.filed

    @property
    def _max_rounds(self) -> int:
        return 1 if self.options.policy == "once" else self.options.max_rounds

    def _file(self, groups: Sequence[Group], round_index: int) -> "Filling":
        filed, room = list(self.filed), self.missing
        spare = "carried" if self.options.surplus == "carry" else "surplus"
        for group in groups:
            if not group.size or (group.degenerate and self.options.degenerate == "drop"):
                outcome = "degenerate" if group.size else "empty"
            else:
                outcome = "trained" if room > 0 else spare
                room -= outcome == "trained"
            filed.append(Filed(round_index, group, outcome))
        return replace(self, filed=tuple(filed))
