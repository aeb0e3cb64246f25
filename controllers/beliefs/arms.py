"""The evidence on a bandit's arms, which are categories of problems: what they taught, and how often they pass."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import Counts, moving_average
from halfway.controllers.beliefs.forest import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """The evidence on each of C arms.

    Attributes:
        value_C: moving average of the mean absolute advantage (SEC's Q).
        recent_C: mean absolute advantages of the latest groups, oldest first (DUMP's window).
        count_C: number of groups so far.
        passed_C, tried_C: discounted successes and rollouts, including what the reversion adds.
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


def untried(number: int) -> Arms:
    """Arms without evidence."""
    zeros_C = np.zeros(number)
    return Arms(zeros_C, ((),) * number, np.zeros(number, np.int64), zeros_C, zeros_C, zeros_C, zeros_C)


def with_advantages(
    arms: Arms, arm_G: NDArray[np.int64], counts: Counts, alpha: float, window: int, standardised: bool
) -> Arms:
    """The arms after one step's groups: values, windows and numbers of groups.

    Args:
        arm_G: each group's arm.
        alpha: weight of the step's mean in the value; an arm without a group keeps its value.
        window: number of latest groups of each arm that are remembered.
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


def with_outcomes(arms: Arms, arm_G: NDArray[np.int64], counts: Counts, decay: float, reversion: float) -> Arms:
    """The arms after one step's groups: (s, n) <- decay (s, n) + (new s, new n) + reversion (1/2, 1), for every arm.

    So an arm without outcomes tends to `reversion` / (1 - decay) rollouts, half of which passed. The numbers of mixed
    groups and of all groups are updated in the same way and tend to as many groups, half of which are mixed.
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
