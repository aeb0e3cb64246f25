"""PODS: many rollouts, and an update on those whose rewards vary most (arXiv 2504.13818)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from halfway.controllers.laws.sampling import most_varied, standardized
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


@dataclass(frozen=True)
class Downsample(PassRateController[None]):
    """Trains only the rollouts of a group whose rewards vary most, which makes updates cheaper, not rollouts.

    With binary rewards these are equal numbers of successes and failures, as far as there are enough of both.
    Zero-variance groups and groups that are small enough stay as they are. No code was found, so the share kept is
    ours, and whether the paper normalises before or after the choice could not be checked.

    Attributes:
        keep: share of a group that trains, rounded to the nearest number, at least 2 rollouts.
        baseline: "selected" = (r - mean) / std over the rollouts that train; "group" = the learner's own advantages, to
            which all rollouts of the group contribute. With "group", another member may give advantages.
    """

    keep: float = 0.25
    baseline: Literal["selected", "group"] = "selected"

    needs = frozenset({"weights"})

    def __post_init__(self) -> None:
        require(0 < self.keep < 1, "downsample.keep", self.keep, "give a share above 0 and below 1")

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"advantages"} if self.baseline == "selected" else ())

    def weigh(self, groups: Sequence[Group], state: None, stream: Stream) -> Sequence[Group]:
        return [self._selected(group) for group in groups]

    def _selected(self, group: Group) -> Group:
        keep = max(2, round(self.keep * group.size))
        if group.zero_variance or keep >= group.size:
            return group
        rewards_N = np.asarray([rollout.trained_reward for rollout in group.rollouts])
        places = most_varied(rewards_N, keep)
        factors_N = np.zeros(group.size)
        factors_N[places] = 1.0
        if self.baseline == "selected":
            advantages_N = np.zeros(group.size)
            advantages_N[places] = standardized(rewards_N[places])
            group = group.advised(advantages_N=advantages_N)
        return group.weighed(factors_N)
