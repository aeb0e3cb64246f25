"""When a group has had enough rollouts: split-conformal thresholds on its successes (C-GRPO)."""

import math
from collections.abc import Callable, Mapping, Sequence

LARGEST = 1.0
"""The score of a group that is not solved; by `first_success` also of one that only its last rollout solves."""


def first_success_score(passed: Sequence[bool]) -> float:
    """Rank of the first success, counted from 1, divided by the number of rollouts; 1 if there is none."""
    return next((place / len(passed) for place, success in enumerate(passed, 1) if success), LARGEST)


def pass_rate_score(passed: Sequence[bool]) -> float:
    """Share of failures. Since scores tie, coverage is at least what was asked for, but not exactly that."""
    return 1 - sum(passed) / len(passed)


SCORES: Mapping[str, Callable[[Sequence[bool]], float]] = {
    "first_success": first_success_score,
    "pass_rate": pass_rate_score,
}


def conformal_quantile(scores: Sequence[float], miss: float) -> float:
    """Score number ceil((n + 1) (1 - miss)) of n scores in ascending order; the largest if there are fewer.

    A further score, exchangeable with these, is at most this quantile with probability 1 - miss or more, unless the
    quantile had to be cut to the largest score. Without scores it is 1, which no score exceeds.
    """
    if not scores:
        return LARGEST
    place = math.ceil((len(scores) + 1) * (1 - miss) - 1e-9)
    return sorted(scores)[min(max(place, 1), len(scores)) - 1]


def accepted_miss(failures: Sequence[float], margin: float) -> float:
    """The share of groups that may be missed: those that all N rollouts fail to solve, plus a margin; in [.05, .95].

    A fixed small share would put every threshold of a weak policy at 1.

    Args:
        failures: each group's share of failures among all N rollouts.
    """
    solved = sum(share < 1 for share in failures) / max(1, len(failures))
    return min(max(1 - solved + margin, 0.05), 0.95)
