"""Pools many hidden states into one vector: over the tokens of a text, or over the turns of a trajectory.

PROPEL, table 10. The paper's names are kept: for a trajectory, "last_token" is the vector of the last turn.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Pool = Callable[[Tensor], Tensor]


def mean_last(count: int) -> Pool:
    """The mean over the last `count` rows, or over all if there are fewer."""
    return lambda states_ND: states_ND[-count:].mean(0)


def last(states_ND: Tensor) -> Tensor:
    return states_ND[-1]


def mean(states_ND: Tensor) -> Tensor:
    return states_ND.mean(0)


def mean_last_half(states_ND: Tensor) -> Tensor:
    """The mean over the last half, the middle one included if their number is odd."""
    return states_ND[len(states_ND) // 2 :].mean(0)


def maximum(states_ND: Tensor) -> Tensor:
    return states_ND.amax(0)


def first_last_concat(states_ND: Tensor) -> Tensor:
    return torch.cat([states_ND[0], states_ND[-1]])


def mean_std_concat(states_ND: Tensor) -> Tensor:
    """Mean and population standard deviation, which is 0 for a single turn."""
    return torch.cat([states_ND.mean(0), states_ND.std(0, correction=0)])


TOKEN_POOLINGS: Mapping[str, Pool] = {"last_token": last, "mean_full": mean, "mean_last_50": mean_last(50)}
"""How the states of the tokens that were written are pooled; rows in the order of the text."""

TRAJECTORY_POOLINGS: Mapping[str, Pool] = {
    **TOKEN_POOLINGS,
    "mean_last_5": mean_last(5),
    "mean_last_3": mean_last(3),
    "mean_last_half": mean_last_half,
    "max": maximum,
    "first_last_concat": first_last_concat,
    "mean_std_concat": mean_std_concat,
}
"""How the vectors of the assistant's turns are pooled; rows in the order of the trajectory."""
