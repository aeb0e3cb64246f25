"""Rollouts kept for one more use, from which prefixes are cut."""

from dataclasses import dataclass, replace

import numpy as np

from halfway.curriculum.groups import Group
from halfway.curriculum.prefix import Prefix, cut
from halfway.curriculum.rollouts import FloatArray, Rollout, Turn, Unit

NO_VALUES: FloatArray = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """One rollout of a skewed group.

    Attributes:
        problem_id: the group's problem.
        rollout: its turns without log-probabilities and entropies, which replayed tokens do not need.
        unit: the unit in which the lengths of its prefixes are counted.
        passed, size: k and N of the group.
        step: the training step that produced it.
    """

    problem_id: str
    rollout: Rollout
    unit: Unit
    passed: int
    size: int
    step: int

    @property
    def success(self) -> bool:
        return self.rollout.success

    @property
    def length(self) -> int:
        return self.rollout.length(self.unit)

    def prefix(self, length: int) -> Prefix:
        """Its first `length` units, 1 <= length < self.length."""
        return Prefix(
            turns=cut(self.rollout, length, self.unit),
            length=length,
            unit=self.unit,
            parent_passed=self.passed,
            parent_size=self.size,
            parent_success=self.success,
        )


def save_one(group: Group, success: bool, step: int) -> Saved | str:
    """The first rollout of a group with the given outcome that can be cut, or the reason why there is none.

    Rollouts of a group are exchangeable, so the first is a uniform draw. Truncated rollouts are left out ("truncated"),
    since how they would have ended is unknown, and so are rollouts of a single unit ("too_short"), since nothing would
    be left to generate.
    """
    wanted = [rollout for rollout in group.rollouts if rollout.success == success]
    whole = [rollout for rollout in wanted if not rollout.truncated]
    usable = [rollout for rollout in whole if rollout.length(group.unit) >= 2]
    if not usable:
        return "too_short" if whole else "truncated"
    return Saved(
        problem_id=group.request.problem.id,
        rollout=replace(usable[0], turns=tuple(_bare(turn) for turn in usable[0].turns)),
        unit=group.unit,
        passed=group.num_passed,
        size=group.size,
        step=step,
    )


def _bare(turn: Turn) -> Turn:
    return replace(turn, logprobs_T=NO_VALUES, entropies_T=NO_VALUES, values_T=None)
