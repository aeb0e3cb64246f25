"""The simplest estimates of pass rates: counts and moving averages."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.curriculum import Group, Origin, ProblemSet


class Counts(NamedTuple):
    """Outcomes of groups: index of the problem, successes and rollouts. A problem may occur several times."""

    positions: list[int]
    passed: list[int]
    tried: list[int]


def fresh_groups(groups: Iterable[Group], problems: ProblemSet) -> list[Group]:
    """Select the groups that are evidence on the problems themselves, including groups without rollouts.

    Raises:
        KeyError: for a fresh problem of another set.
    """
    fresh = [group for group in groups if group.request.origin is Origin.FRESH]
    for group in fresh:
        problems.position(group.request.problem.id)
    return fresh


def is_whole(group: Group) -> bool:
    """True if the group has at least half of the requested rollouts; fewer are too little evidence for a verdict."""
    return group.size > 0 and 2 * group.size >= group.request.num_rollouts


def fresh_counts(groups: Iterable[Group], problems: ProblemSet) -> Counts:
    """Count the outcomes of `fresh_groups` with rollouts.

    Raises:
        KeyError: for a fresh problem of another set.
    """
    scored = [group for group in fresh_groups(groups, problems) if group.size]
    return Counts(
        positions=[problems.position(group.request.problem.id) for group in scored],
        passed=[group.num_passed for group in scored],
        tried=[group.size for group in scored],
    )


def predict_fresh(groups: Sequence[Group], problems: ProblemSet, rates: Callable[[Positions], Floats]) -> Floats:
    """Predict pass rates of groups, see `PassRateController.predict`: NaN for groups that are not fresh.

    Args:
        rates: expected pass rates of problems, given their indices.
    """
    expected_G = np.full(len(groups), np.nan)
    fresh = [i for i, group in enumerate(groups) if group.request.origin is Origin.FRESH]
    if fresh:
        expected_G[fresh] = rates(np.array([problems.position(groups[i].request.problem.id) for i in fresh]))
    return expected_G


def moving_average(mean: float, value: float, alpha: float) -> float:
    """Exponential moving average: (1 - alpha) mean + alpha value (Rollout Pass-Rate Control, equation 2).

    An observation loses half of its weight in ln 2 / -ln(1 - alpha) updates: 13.5 at alpha = 0.05.
    """
    return (1 - alpha) * mean + alpha * value
