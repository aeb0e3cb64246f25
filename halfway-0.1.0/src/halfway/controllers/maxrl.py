"""Maximum likelihood RL: the gradient of the log of the pass rate, in which rare successes count most."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halfway.curriculum import Group, PassRateController, Stream, require


@dataclass(frozen=True)
class MaxRL(PassRateController[None]):
    """Divides the advantages of a group by its pass rate: (r - p) / p.

    MaxRL (arXiv 2602.02710): the learner then ascends log p instead of p. In a group with k successes of N, a success
    gets (N - k) / k and a failure -1. The absolute advantages sum to 2 (N - k), largest for a single success; under
    GRPO they sum to 2 k (N - k) / N. A zero-variance group keeps advantages of 0. The method chooses no problems and
    costs no rollouts.

    Attributes:
        cap: upper bound on an absolute advantage (ours; the paper has none). At N - 1 or more it has no effect.
    """

    cap: float = 4.0

    claims = frozenset({"advantages"})
    needs = frozenset({"weights"})

    def __post_init__(self) -> None:
        require(1 <= self.cap < float("inf"), "maxrl.cap", self.cap, "give a number from 1, such as 4")

    def weigh(self, groups: Sequence[Group], state: None, stream: Stream) -> Sequence[Group]:
        return [group if group.zero_variance else self._advise(group) for group in groups]

    def _advise(self, group: Group) -> Group:
        passed_N = np.asarray([rollout.success for rollout in group.rollouts], np.float64)
        rate = passed_N.mean()
        return group.with_advantages(np.clip((passed_N - rate) / rate, -self.cap, self.cap))
