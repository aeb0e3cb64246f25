"""Saved rollouts for prefixes, buckets of skewed parent groups, and the feedback loop of each bucket."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from halfway.controllers.beliefs.counts import moving_average
from halfway.controllers.laws.feedback import Effect, Knob, RatioLaw
from halfway.curriculum import Group, Prefix, Rollout, Turn, Unit, cut
from halfway.curriculum.rollouts import NO_VALUES

Side = Literal["hard", "easy"]

# Midway between the published buckets 1/8 and 2/8, and between 6/8 and 7/8.
FAR_HARD, FAR_EASY = 0.1875, 0.8125


def side_of(passed: int, size: int, thresholds: tuple[float, float] = (0.3, 0.7)) -> Side | None:
    """The side to which a group of k of N is skewed: hard (0 < k/N < low), easy (high < k/N < 1), or None.

    A pass rate equal to a threshold is balanced. With 0.3 and 0.7 no group is skewed at N <= 3.
    """
    if not 0 < passed < size:
        return None
    rate = passed / size
    return "hard" if rate < thresholds[0] else "easy" if rate > thresholds[1] else None


def bucket_of(passed: int, size: int, side: Side) -> str:
    """Name the bucket of a skewed group: far_hard (k/N <= 0.1875), near_hard, near_easy, far_easy (k/N >= 0.8125).

    At N = 8 these are the paper's buckets 1, 2, 6 and 7.
    """
    rate = passed / size
    far = rate <= FAR_HARD if side == "hard" else rate >= FAR_EASY
    return f"{'far' if far else 'near'}_{side}"


@dataclass(frozen=True, slots=True)
class Loop:
    """The feedback loop of one bucket or category: a ratio, and a belief about the resulting children.

    Attributes:
        belief: moving average of the children's pass rate.
        children: number of scored child groups so far.
        zero_variance: number of zero-variance child groups so far.
        total_rate: sum of the child groups' pass rates.
        latest_children, latest_rate: number and mean pass rate of the child groups in the latest step with any.
    """

    knob: Knob
    belief: float
    children: int = 0
    zero_variance: int = 0
    total_rate: float = 0.0
    latest_children: int = 0
    latest_rate: float = 0.0

    def after(
        self, children: Sequence[Group], alpha: float, law: RatioLaw | None, effect: Effect, step: int, pooled: bool
    ) -> "Loop":
        """The loop after one step's children. They include zero-variance groups; without them the mean is biased.

        Args:
            children: scored child groups, at least one.
            law: None = the ratio does not change.
            pooled: whether to make one update with the mean over the children, instead of one update per child.
        """
        rates = [child.pass_rate for child in children]
        belief, knob = self.belief, self.knob
        for rate in [fmean(rates)] if pooled else rates:
            belief = moving_average(belief, rate, alpha)
            knob = law.update(knob, belief, effect, step) if law else knob
        return replace(
            self,
            knob=knob,
            belief=belief,
            children=self.children + len(children),
            zero_variance=self.zero_variance + sum(child.zero_variance for child in children),
            total_rate=self.total_rate + sum(rates),
            latest_children=len(children),
            latest_rate=fmean(rates),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """One rollout of a skewed group.

    Attributes:
        problem_id: the group's problem.
        rollout: its turns without log-probabilities and entropies, which replayed tokens do not need.
        unit: the unit of its prefixes' lengths.
        passed, size: k and N of the group.
        step: training step of the group.
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
        """Cut its first `length` units, 1 <= length < self.length."""
        return Prefix(
            turns=cut(self.rollout, length, self.unit),
            length=length,
            unit=self.unit,
            parent_passed=self.passed,
            parent_size=self.size,
            parent_success=self.success,
        )


def save_one(group: Group, success: bool, step: int) -> Saved | str:
    """Save the first rollout of a group with the given outcome that can be cut; otherwise return why there is none.

    Rollouts of a group are exchangeable, so the first is a uniform draw (see `Group.draw_order_N`). Truncated rollouts
    are left out ("truncated"): their end is unknown. So are rollouts of a single unit ("too_short"): nothing would be
    left to generate.
    """
    drawn = [group.rollouts[place] for place in group.draw_order_N]
    wanted = [rollout for rollout in drawn if rollout.success == success]
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
