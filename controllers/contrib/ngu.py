"""NGU: continues all-failed groups in later steps until a rollout passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Stream, Verdict, require

PATIENCE = 32  # steps; with again = 0.9, 3 % of the groups that never pass are still tried then


@dataclass(frozen=True, slots=True)
class NguState:
    """Counts of groups by how they ended.

    Attributes:
        waited: number of groups that were continued at least once.
        solved, given_up: numbers of these that ended with a success, and without one.
        rollouts: total rollouts of these groups.
    """

    waited: int = 0
    solved: int = 0
    given_up: int = 0
    rollouts: int = 0


@dataclass(frozen=True)
class Ngu(PassRateController[NguState]):
    """Samples a small group first; if every rollout fails, later steps continue the group.

    NGU, "Never Give Up" (arXiv 2609.13443). An all-passed group of `size` rollouts has zero variance and is dropped,
    and a mixed group trains. An all-failed group is continued with probability `again`, by `size` rollouts at a time,
    until one passes, and then trains once. A problem that never passes takes size / (1 - again) rollouts on average.

    The baseline is taken over all rollouts of the group. Failures that are `age` updates old do not train, and the
    advantages of the other failures are scaled up so that the group's add up to zero ("anchored positives"): with 4 old
    failures, 3 new failures and a success, the success gets 7/8 and each new failure -1/8 x 7/3. Successes are always
    new. If no failure is left, nothing trains, as published. The scaling uses weights, so it works with any advantage
    of the learner. With partial rewards (ours), rollouts above the mean of the group take the place of successes.
    Published: size 4, age 4; again 0.9 on GSM8K and 0.875 on DeepScaleR.

    The published sampler is asynchronous; here an all-failed group takes one slot of the next batch, with or without
    rollouts.staleness. No member observes a group until it has ended.

    Attributes:
        size: rollouts per try; 0 = N.
        again: probability of another try after a failed one.
        age: number of updates from which a rollout is too old to train; null = no bound.
        patience: steps after which a group is given up; ours.
    """

    size: int = 4
    again: float = 0.9
    age: int | None = 4
    patience: int = PATIENCE

    claims = frozenset({"rounds", "rollouts"})
    needs = frozenset({"waits", "rollouts", "weights"})

    def __post_init__(self) -> None:
        require(self.size == 0 or self.size >= 2, "ngu.size", self.size, "give 0 (= rollouts.num_rollouts) or 2 and up")
        require(0 <= self.again <= 1, "ngu.again", self.again, "give a probability from 0 to 1")
        require(self.age is None or self.age >= 1, "ngu.age", self.age, "give at least 1, or null for no bound")
        require(self.patience >= 1, "ngu.patience", self.patience, "give at least 1")

    def init(self, problems: ProblemSet) -> NguState:
        return NguState()

    def propose(self, plan: Plan, state: NguState, stream: Stream) -> tuple[Plan, NguState]:
        size = self.size or plan.num_rollouts
        stored = [request.origin is Origin.STORED for request in plan.undecided]
        plan = plan.decide([Verdict(True, "exempt" if it else "first try", None if it else size) for it in stored])
        extended = {request.extends for request in plan.requests}
        for group in plan.waiting:
            if group.request.decided_by(plan.member) and group.request.ticket not in extended:
                plan = plan.extend(group, size, "another try")
        return plan, state

    def hold(self, groups: Sequence[Group], state: NguState, step: int, stream: Stream) -> Sequence[bool]:
        return [self._tries_again(group, step, stream) for group in groups]

    def _tries_again(self, group: Group, step: int, stream: Stream) -> bool:
        request = group.request
        if not request.decided_by(stream.name) or not group.size or group.num_passed:
            return False
        # One draw per try, so that the result does not depend on when and how often it is read.
        coin = replace(stream, path=("again", request.ticket, group.size)).uniform()
        return step - request.step < self.patience and coin < self.again

    def weigh(self, groups: Sequence[Group], state: NguState, stream: Stream) -> Sequence[Group]:
        return [self._anchor(group) if group.earlier and not group.zero_variance else group for group in groups]

    def _anchor(self, group: Group) -> Group:
        fresh_N = np.array([self.age is None or age < self.age for age in ages(group)], np.bool_)
        fresh_N |= np.arange(group.size) >= group.earlier
        kept_N = group.trainable_N & fresh_N
        rewards_N = np.array([rollout.trained_reward for rollout in group.rollouts])
        return group.with_weights(anchored_weights(rewards_N, kept_N))

    def observe(self, state: NguState, groups: Sequence[Group], step: int) -> NguState:
        waited = [group for group in groups if group.earlier]
        solved = sum(group.num_passed > 0 for group in waited)
        return NguState(
            waited=state.waited + len(waited),
            solved=state.solved + solved,
            given_up=state.given_up + len(waited) - solved,
            rollouts=state.rollouts + sum(group.size for group in waited),
        )

    def metrics(self, state: NguState) -> Mapping[str, float]:
        """waited, solved, given_up: see `NguState`; rollouts: mean number per continued group."""
        counts = self.shown(state, "waited", "solved", "given_up")
        return {**counts, "rollouts": state.rollouts / max(1, state.waited)}


def ages(group: Group) -> list[int]:
    """Age of each rollout: updates between its oldest weights and the learner's present weights; 0 if unknown."""
    if not group.policy_versions:
        return [0] * group.size
    now = group.policy_version + group.lag
    return [now - min(rollout.policy_versions, default=now) for rollout in group.rollouts]


def anchored_weights(rewards_N: np.ndarray, kept_N: np.ndarray) -> np.ndarray:
    """Factors on the advantages r - mean of all rollouts that make the kept advantages add up to zero (NGU).

    Rollouts above the mean get a factor of 1: with rewards of 0 and 1, a success keeps 1 - k / N. Kept rollouts below
    the mean get the factor that balances them. All factors are 0 if no kept rollout is above, or none below, the mean.

    Args:
        rewards_N: rewards from which the learner computes advantages; they are not all equal.
        kept_N: mask of the rollouts that train.
    """
    advantages_N = rewards_N - rewards_N.mean()
    above = advantages_N[kept_N & (advantages_N > 0)].sum()
    below = -advantages_N[kept_N & (advantages_N < 0)].sum()
    if not above or not below:
        return np.zeros(len(rewards_N))
    return np.where(kept_N, np.where(advantages_N > 0, 1.0, above / below), 0.0)
