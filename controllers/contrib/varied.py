"""Trains on the groups, or on the rollouts of a group, whose rewards vary most: LILO, VCRL, RAGEN-2 and PODS."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.curriculum import Group, Origin, PassRateController, ProblemSet, Stream, require
from halfway.curriculum.signals import mean_centred_variance, standardize


@dataclass(frozen=True, slots=True, eq=False)
class VariedState:
    """The next step, and the variance of the latest groups.

    Attributes:
        step: the next training step.
        learnability: mean p (1 - p) of the latest step's groups, p = k / N.
        chosen: mean p (1 - p) of the groups that were not declined.
        kept: share of the groups that were not declined.
    """

    problems: ProblemSet
    step: int = 0
    learnability: float = 0.0
    chosen: float = 0.0
    kept: float = 0.0


@dataclass(frozen=True)
class Varied(PassRateController[VariedState]):
    """Declines the groups of lowest variance, and trains the rollouts of the other groups that vary most.

    Four independent rules, all off by default; each preset below turns one on. Declined groups still cost rollouts and
    leave the batch short, so use fill.policy=refill for full batches.

    Attributes:
        share: share of the groups of a round that trains, at least one group: those with the largest p (1 - p), where p
            = k / N; the first among ties. Stored groups and groups of fewer than two rollouts are not ranked. 1 = all.
        mass: the groups of largest variance train that together reach this share of the summed sample variances of a
            round. The same groups are ranked as for `share`. 1 = all.
        early, late: lowest variance score at which a group trains, in the first `early_steps` steps and afterwards. The
            score is 1 if half of the group passed, and 0 without variance. 0 = all.
        keep: share of the rollouts of a group that trains, those whose rewards vary most, rounded, at least 2.
            Zero-variance groups and groups that are already small enough are unchanged. Rollouts that the learner or
            another member leaves out are not chosen. 1 = all.
        baseline: "selected" = (r - mean) / std over the rollouts that train; "group" = the learner's own advantages,
            over all rollouts of the group. With "group", another member may give advantages.
    """

    share: float = 1.0
    mass: float = 1.0
    early: float = 0.0
    late: float = 0.0
    early_steps: int = 0
    keep: float = 1.0
    baseline: Literal["selected", "group"] = "selected"

    needs = frozenset({"weights"})

    def __post_init__(self) -> None:
        preset = type(self).__name__.lower()
        for name in ("share", "mass", "keep"):
            value = vars(self)[name]
            require(0 < value <= 1, f"{preset}.{name}", value, "give a share above 0, at most 1 (= all)")
        for name in ("early", "late"):
            value = vars(self)[name]
            require(0 <= value <= 1, f"{preset}.{name}", value, "give a score from 0 (= all groups train) to 1")
        require(self.early_steps >= 0, f"{preset}.early_steps", self.early_steps, "give 0 or more")

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"advantages"} if self.keep < 1 and self.baseline == "selected" else ())

    def init(self, problems: ProblemSet) -> VariedState:
        return VariedState(problems)

    def weigh(self, groups: Sequence[Group], state: VariedState, stream: Stream) -> Sequence[Group]:
        declined = self._find_declined(groups, state.step)
        return [
            group.with_weights([0.0] * group.size) if i in declined else self._select(group)
            for i, group in enumerate(groups)
        ]

    def _find_declined(self, groups: Sequence[Group], step: int) -> set[int]:
        least = self.early if step < self.early_steps else self.late
        low = {i for i, group in enumerate(groups) if variance_score(group.num_passed, group.size) < least - 1e-9}
        ranked = [
            i
            for i, group in enumerate(groups)
            if i not in low and group.size >= 2 and group.request.origin is not Origin.STORED
        ]
        ranked.sort(key=lambda i: -_learnability(groups[i]))
        low |= set(ranked[math.ceil(self.share * len(ranked) - 1e-9) :])
        if self.mass < 1:
            ranked = [i for i in ranked if i not in low]
            low |= {ranked[place] for place in find_tail([_variance(groups[i]) for i in ranked], self.mass)}
        return low

    def _select(self, group: Group) -> Group:
        keep, order_N = max(2, round(self.keep * group.size)), group.draw_order_N
        left_R = order_N[group.trainable_N[order_N]]
        if group.zero_variance or keep >= len(left_R):
            return group
        rewards_N = np.asarray([rollout.trained_reward for rollout in group.rollouts])
        places = left_R[find_most_varied(rewards_N[left_R], keep)]
        factors_N = np.zeros(group.size)
        factors_N[places] = 1.0
        if self.baseline == "selected":
            advantages_N = np.zeros(group.size)
            advantages_N[places] = standardize(rewards_N[places])
            group = group.with_advantages(advantages_N=advantages_N)
        return group.with_weights(factors_N)

    def observe(self, state: VariedState, groups: Sequence[Group], step: int) -> VariedState:
        fresh_groups(groups, state.problems)  # raises for a problem of another set
        state, scored = replace(state, step=step + 1), [group for group in groups if group.size >= 2]
        if not scored:
            return state
        declined, worth = self._find_declined(scored, step), [_learnability(group) for group in scored]
        best = [value for i, value in enumerate(worth) if i not in declined]
        learnability, kept = sum(worth) / len(worth), len(best) / len(worth)
        return replace(state, learnability=learnability, chosen=sum(best) / max(1, len(best)), kept=kept)

    def metrics(self, state: VariedState) -> Mapping[str, float]:
        """learnability, chosen, kept: see `VariedState`."""
        return self.shown(state, "learnability", "chosen", "kept")


@dataclass(frozen=True)
class Lilo(Varied):
    """Declines all groups but a share of the largest learnability p (1 - p), where p = k / N is a group's pass rate.

    LILO (arXiv 2502.12272) draws |D| = 4 |B| candidate questions for a batch of |B|, attempts each 8 times, and trains
    on the |B| with the largest p (1 - p) (algorithm 2, section 5; late on an easy set |D| = 8 |B|). The paper samples
    many more rollouts of the chosen questions for training; here (ours) the attempts themselves train, so both numbers
    are N. Request |D| groups per plan: fill.policy=refill, fill.request_groups=4 x fill.groups. Zero-variance groups
    never train.
    """

    share: float = 0.25


@dataclass(frozen=True)
class Vcrl(Varied):
    """Declines groups whose variance score is below a threshold, which rises after the first steps.

    VCRL (arXiv 2509.19803): at N = 8 the late threshold keeps 3 to 5 successes, and the early one 1 to 7. The score is
    the paper's. We found no code to check its thresholds against, 0.3 for 20 steps and then 0.8. Its memory bank of
    high-variance problems is not implemented; see `replay`.
    """

    early: float = 0.3
    late: float = 0.8
    early_steps: int = 20


@dataclass(frozen=True)
class Downsample(Varied):
    """Trains only the rollouts of a group whose rewards vary most, which saves training cost, not rollouts.

    PODS (arXiv 2504.13818): with binary rewards these are equal numbers of successes and failures, if there are enough
    of both. We found no code, so the share kept is ours; whether the paper normalises before or after the choice is
    unknown.
    """

    keep: float = 0.25


@dataclass(frozen=True)
class Ragen(Varied):
    """Declines the groups of lowest variance that together have a tenth of the summed reward variance of a round.

    RAGEN-2's SNR-aware filtering (arXiv 2604.06268), top-p. At N = 8 and binary rewards, the variances of groups with 2
    to 6 successes differ by at most a third, so it filters zero-variance groups and some with one odd rollout. Its code
    for VAGEN also scales the loss by the root of the share of groups kept; this is not implemented.
    """

    mass: float = 0.9


def find_tail(variances: Sequence[float], mass: float) -> list[int]:
    """Places of the smallest variances, after the largest reach that share of the sum (RAGEN-2, top-p)."""
    order = np.argsort(-np.asarray(variances, np.float64), kind="stable")
    summed = np.cumsum(np.asarray(variances, np.float64)[order])
    if not len(order) or summed[-1] == 0:
        return []
    kept = int(np.searchsorted(summed, mass * summed[-1] * (1 - 1e-12))) + 1
    return sorted(order[kept:].tolist())


def _variance(group: Group) -> float:
    """Sample variance of the trained rewards; needs at least two rollouts."""
    return float(np.var([rollout.trained_reward for rollout in group.rollouts], ddof=1))


def _learnability(group: Group) -> float:
    return float(mean_centred_variance(group.num_passed, group.size))


def find_most_varied(rewards_N: ArrayLike, keep: int) -> NDArray[np.intp]:
    """The indices of the `keep` rollouts whose rewards have the largest variance, in order (PODS, algorithm 2).

    They are some of the largest and some of the smallest rewards; every split is tried. Among ties, the split with the
    most of the largest rewards wins.
    """
    values_N = np.asarray(rewards_N, np.float64)
    order_N, size = np.argsort(values_N, kind="stable"), len(values_N)
    splits = [np.concatenate([order_N[: keep - high], order_N[size - high :]]) for high in range(keep, -1, -1)]
    best: NDArray[np.intp] = max(splits, key=lambda split: round(float(values_N[split].var()), 12))
    return np.sort(best)


def variance_score(passed: int, size: int) -> float:
    """Sample variance of the successes of a group, as a share of its largest possible value (VCRL).

    k (N - k) / (N (N - 1)), divided by its maximum, which is N / (4 (N - 1)) for even N and (N + 1) / (4 N) for odd N.
    0 for fewer than two rollouts.
    """
    if size < 2:
        return 0.0
    largest = size / (4 * (size - 1)) if size % 2 == 0 else (size + 1) / (4 * size)
    return passed * (size - passed) / (size * (size - 1)) / largest
