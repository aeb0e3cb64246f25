"""Bandits over categories of problems: SEC (arXiv 2505.14970), DUMP (arXiv 2504.09710), and the marin project's."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import Counts, fresh_counts, moving_average
from halfway.controllers.beliefs.features import Categories, categories
from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.laws.category_shares import count_turns, draw_problems, optimistic, raise_to_floor, softmax
from halfway.controllers.laws.slots import fill_slots
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Request, Stream, require
from halfway.curriculum.signals import survival

TEMPERATURE = {"sec": 1.0, "dump": 0.1}
Kind = Literal["sec", "dump", "learnability", "survival", "thompson"]


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """Evidence on each of C arms.

    Attributes:
        value_C: moving average of the mean absolute advantage (SEC's Q).
        recent_C: mean absolute advantages of the latest groups, oldest first (DUMP's window).
        count_C: number of groups so far.
        passed_C, tried_C: discounted successes and rollouts, including those added by the reversion.
        mixed_C, groups_C: discounted numbers of groups with both outcomes, and of all groups.
    """

    value_C: Floats
    recent_C: tuple[tuple[float, ...], ...]
    count_C: NDArray[np.int64]
    passed_C: Floats
    tried_C: Floats
    mixed_C: Floats
    groups_C: Floats

    @property
    def recent_means_C(self) -> Floats:
        """Mean of each window; 0 where it is empty."""
        return np.asarray([sum(recent) / len(recent) if recent else 0.0 for recent in self.recent_C])


def start_arms(number: int) -> Arms:
    """Make arms without evidence."""
    zeros_C = np.zeros(number)
    return Arms(zeros_C, ((),) * number, np.zeros(number, np.int64), zeros_C, zeros_C, zeros_C, zeros_C)


def learn_advantages(
    arms: Arms, arm_G: NDArray[np.int64], counts: Counts, alpha: float, window: int, standardised: bool
) -> Arms:
    """The arms after one step's groups: values, windows and numbers of groups.

    Args:
        arm_G: each group's arm.
        alpha: weight of the step's mean in the value; an arm without a group keeps its value.
        window: number of latest groups kept per arm.
    """
    taught: dict[int, list[float]] = defaultdict(list)
    for arm, passed, size in zip(arm_G.tolist(), counts.passed, counts.tried, strict=True):
        taught[arm].append(mean_advantage(passed, size, standardised))
    value_C, recent_C = arms.value_C.copy(), list(arms.recent_C)
    for arm, advantages in taught.items():
        value_C[arm] = moving_average(value_C[arm], sum(advantages) / len(advantages), alpha)
        recent_C[arm] = (*recent_C[arm], *advantages)[-window:]
    count_C = arms.count_C + np.bincount(arm_G, minlength=len(value_C))
    return replace(arms, value_C=value_C, recent_C=tuple(recent_C), count_C=count_C)


def learn_outcomes(arms: Arms, arm_G: NDArray[np.int64], counts: Counts, decay: float, reversion: float) -> Arms:
    """The arms after one step's groups: (s, n) <- decay (s, n) + (new s, new n) + reversion (1/2, 1), for every arm.

    So an arm without outcomes tends to `reversion` / (1 - decay) rollouts, half of them passed. The numbers of mixed
    groups and of all groups follow the same rule: they tend to as many groups, half of them mixed.
    """
    size = len(arms.value_C)
    mixed_G = [0 < passed < tried for passed, tried in zip(counts.passed, counts.tried, strict=True)]
    return replace(
        arms,
        passed_C=decay * arms.passed_C + np.bincount(arm_G, counts.passed, size) + reversion / 2,
        tried_C=decay * arms.tried_C + np.bincount(arm_G, counts.tried, size) + reversion,
        mixed_C=decay * arms.mixed_C + np.bincount(arm_G, mixed_G, size) + reversion / 2,
        groups_C=decay * arms.groups_C + np.bincount(arm_G, minlength=size) + reversion,
    )


def mean_advantage(passed: int, size: int, standardised: bool) -> float:
    """Mean absolute advantage of a group of binary rewards with k of N passed: 2 p (1 - p), p = k / N, centred on the
    group's mean; divided by the sample standard deviation, 2 sqrt(p (1 - p) (N - 1) / N). 0 without variance."""
    p = passed / size
    return 2 * math.sqrt(p * (1 - p) * (size - 1) / size) if standardised else 2 * p * (1 - p)


@dataclass(frozen=True, slots=True, eq=False)
class BanditState:
    """Evidence on each category, and how often each problem was proposed."""

    problems: ProblemSet
    arms: Arms
    turns_P: NDArray[np.int32]


@dataclass(frozen=True)
class Bandit(PassRateController[BanditState]):
    """Draws a category for every slot by the past gain of its groups, and takes the problems of a category in turn.

    - "sec": Q_c <- (1 - alpha) Q_c + alpha r_c in each step that tried category c, where r_c is the mean absolute
      advantage of its rollouts; P(c) is proportional to exp(Q_c / temperature). No code is published; alpha = 0.5 and
      temperature = 1 are ours.
    - "dump": score_c = mean absolute advantage over the latest `window` groups + bonus sqrt(2 ln(n + 1) / (n_c + 1)),
      with n_c groups of the category; P(c) is proportional to exp(score_c / 0.1).
    - "learnability": a pass rate p_c is drawn once per plan from Beta(1 + s, 1 + n - s), with the category's discounted
      counts s of n; P(c) is proportional to p_c (1 - p_c).
    - "survival": likewise, P(c) proportional to 1 - p_c^N - (1 - p_c)^N, the probability of a mixed group.
    - "thompson": the share of mixed groups is drawn in the same way; P(c) is proportional to it.

    The last three are the bin sampler of the marin project. There, a category at the floor can stay at it for ever,
    since its counts only decay. `reversion` prevents this: every step adds that many rollouts, half of them passed, and
    that many groups, half of them mixed; marin's default is 0, its later runs use 2. Only fresh groups are evidence,
    including zero-variance groups, whose advantages are 0. Rewards are successes.

    Attributes:
        category: name of the category column, words or numbers.
        alpha: weight of the newest step in SEC's Q.
        temperature: of the softmax; null = 1 for "sec", 0.1 for "dump" as in its code. The other kinds use none.
        window: number of groups in DUMP's average.
        bonus: factor on DUMP's exploration term.
        decay: discount factor per step of the counts of the last three kinds.
        reversion: pseudo-rollouts added to each category's counts in every step; 0 = none.
        floor: lowest share of a category, times the number of categories; null = 0.05 for marin's kinds as in its code,
            else 0.
        standardised: true = advantages are divided by the standard deviation of the group.
    """

    kind: Kind = "sec"
    category: str = "category"
    alpha: float = 0.5
    temperature: float | None = None
    window: int = 300
    bonus: float = 1.0
    decay: float = 0.95
    reversion: float = 2.0
    floor: float | None = None
    standardised: bool = True

    claims = frozenset({"problems"})

    def __post_init__(self) -> None:
        require(0 < self.alpha <= 1, "bandit.alpha", self.alpha, "give a weight above 0, at most 1")
        hot = self.temperature is None or self.temperature > 0
        require(hot, "bandit.temperature", self.temperature, "give a positive number, or null for the kind's default")
        require(self.window >= 1, "bandit.window", self.window, "give at least 1 group")
        require(self.bonus >= 0, "bandit.bonus", self.bonus, "give 0 or more")
        require(0 <= self.decay <= 1, "bandit.decay", self.decay, "give a number between 0 and 1")
        require(self.reversion >= 0, "bandit.reversion", self.reversion, "give 0 (= none) or more rollouts")
        fits = 0 <= (self.floor or 0) < 1
        require(fits, "bandit.floor", self.floor, "give a share from 0 to below 1, or null for the kind's default")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"feature:{self.category}"})

    def init(self, problems: ProblemSet) -> BanditState:
        """Raises UserError if the category column is missing or has a single value."""
        return BanditState(problems, start_arms(len(self._kinds(problems))), np.zeros(len(problems), np.int32))

    def propose(self, plan: Plan, state: BanditState, stream: Stream) -> tuple[Plan, BanditState]:
        if plan.missing == 0:
            return plan, state
        kinds, generator = self._kinds(state.problems), stream.generator()
        share_C, turns_P = self.shares(state.arms, plan.num_rollouts, generator), state.turns_P

        def choose(free_F: Positions, wanted: int) -> Positions:
            return draw_problems(kinds, share_C, free_F, wanted, turns_P, generator)

        chosen = fill_slots(plan, state.problems, choose)
        for position in chosen:
            category = kinds.category_P[position]
            request = Request(state.problems[position], plan.num_rollouts)
            plan = plan.add([request], f"{kinds.names[category]} {share_C[category]:.2f}")
        return plan, replace(state, turns_P=count_turns(turns_P, chosen))

    def shares(self, arms: Arms, size: int, generator: np.random.Generator) -> Floats:
        """The probability of each category, for groups of this size."""
        floor = self.floor if self.floor is not None else 0.0 if self.kind in TEMPERATURE else 0.05
        if self.kind not in TEMPERATURE:
            good_C, all_C = self._counts(arms)
            rate_C = generator.beta(1 + good_C, 1 + np.maximum(all_C - good_C, 0.0))
            worth = {"thompson": rate_C, "learnability": rate_C * (1 - rate_C), "survival": survival(rate_C, size)}
            return raise_to_floor(worth[self.kind], floor)
        score_C = arms.value_C
        if self.kind == "dump":
            score_C = optimistic(arms.recent_means_C, arms.count_C, self.bonus)
        return raise_to_floor(softmax(score_C, self.temperature or TEMPERATURE[self.kind]), floor)

    def _counts(self, arms: Arms) -> tuple[Floats, Floats]:
        return (arms.mixed_C, arms.groups_C) if self.kind == "thompson" else (arms.passed_C, arms.tried_C)

    def observe(self, state: BanditState, groups: Sequence[Group], step: int) -> BanditState:
        counts = fresh_counts(groups, state.problems)
        if not counts.positions:
            return state
        arm_G = self._kinds(state.problems).category_P[counts.positions]
        arms = learn_advantages(state.arms, arm_G, counts, self.alpha, self.window, self.standardised)
        return replace(state, arms=learn_outcomes(arms, arm_G, counts, self.decay, self.reversion))

    def _kinds(self, problems: ProblemSet) -> Categories:
        return categories(problems, self.category, "bandit.category")

    def metrics(self, state: BanditState) -> Mapping[str, float]:
        """For each category NAME: groups_NAME, its groups so far; value_NAME, the basis of its share: Q, the mean of
        the window, or the posterior mean."""
        names, arms, (good_C, all_C) = self._kinds(state.problems).names, state.arms, self._counts(state.arms)
        value_C = {"sec": arms.value_C, "dump": arms.recent_means_C}.get(self.kind, (1 + good_C) / (2 + all_C))
        groups = {f"groups_{name}": float(count) for name, count in zip(names, arms.count_C.tolist(), strict=True)}
        return groups | {f"value_{name}": value for name, value in zip(names, value_C.tolist(), strict=True)}
