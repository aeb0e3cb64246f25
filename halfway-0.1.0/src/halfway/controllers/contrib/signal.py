"""Advantages for zero-variance groups: RL-ZVP's token advantages and NGRPO's virtual reward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from halfway.curriculum import Group, PassRateController, Rollout, Stream, require
from halfway.curriculum.groups import Floats
from halfway.curriculum.signals import standardize


@dataclass(frozen=True)
class Signal(PassRateController[None]):
    """Gives advantages to zero-variance groups. It has no state and chooses no problems.

    - "rl_zvp", RL-ZVP (arXiv 2509.21880): an all-passed group is reinforced token by token, more where the policy was
      less certain: +alpha H_t. An all-failed group is penalised, least where the policy was least certain: -alpha (max
      over the response of H - H_t). H is the entropy at sampling, in nats, and has no gradient. Other groups keep the
      learner's advantages. No code is published.
    - "ngrpo", NGRPO (arXiv 2509.18851): the advantages of every group are (r - mean) / std, with mean and std over its
      rewards and `virtual` added rewards of 1, so that an all-failed group is penalised; an all-passed group still has
      no signal. The published script adds one virtual reward, and clips at 0.16 and 0.24 (learner.clip_low, clip_high).

    Do not combine with fill.policy=refill: zero-variance groups would fill the batch.

    Attributes:
        alpha: for "rl_zvp": scale of the token advantages; 0.1 as published.
        virtual: for "ngrpo": number of virtual rewards.
    """

    kind: Literal["rl_zvp", "ngrpo"] = "rl_zvp"
    alpha: float = 0.1
    virtual: int = 1

    claims = frozenset({"advantages"})

    def __post_init__(self) -> None:
        require(0 < self.alpha < float("inf"), "signal.alpha", self.alpha, "give a positive number such as 0.1")
        require(self.virtual >= 1, "signal.virtual", self.virtual, "give at least 1")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"weights", "entropies"} if self.kind == "rl_zvp" else {"weights"})

    def weigh(self, groups: Sequence[Group], state: None, stream: Stream) -> Sequence[Group]:
        return [self._advise(group) for group in groups]

    def _advise(self, group: Group) -> Group:
        if not group.size:
            return group
        if self.kind == "rl_zvp":
            if not group.zero_variance:
                return group
            return group.with_advantages(advantages_NT=tuple(self._by_entropy(rollout) for rollout in group.rollouts))
        if group.num_passed == group.size:
            return group
        rewards = [rollout.trained_reward for rollout in group.rollouts]
        return group.with_advantages(advantages_N=standardize(rewards, [1.0] * self.virtual))

    def _by_entropy(self, rollout: Rollout) -> Floats:
        """Advantages of a rollout's generated tokens, over all turns."""
        parts = [turn.entropies_T[turn.num_replayed :].astype(np.float64) for turn in rollout.turns]
        entropy_T = np.concatenate(parts) if parts else np.zeros(0)
        return self.alpha * (entropy_T if rollout.success else entropy_T - entropy_T.max(initial=0.0))
