"""Advantages from the rewards of a group."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Added to the standard deviation. TRL's value, of the same order as in other GRPO implementations.
STD_EPSILON = 1e-4


def advantages(
    rewards_N: ArrayLike | Sequence[bool],
    baseline: Literal["leave_one_out", "mean"] = "leave_one_out",
    divide_by_std: bool = False,
) -> NDArray[np.float64]:
    """Reward minus baseline, for each of the N rollouts of a group.

    With binary rewards and k successes, "leave_one_out" gives (N - k) / (N - 1) to a success and -k / (N - 1) to a
    failure, so the mean square is k (N - k) / (N - 1)^2; "mean" gives these values times (N - 1) / N. A zero-variance
    group gives zeros exactly.

    Args:
        rewards_N: at least two.
        baseline: "leave_one_out" = mean of the other N - 1 rewards (RLOO, Kool et al. 2019, Ahmadian et al. 2024);
            "mean" = mean of all N (GRPO, Shao et al. 2024, section 4.1.2; without the division Dr. GRPO's, Liu
            et al. 2025, section 3.2).
        divide_by_std: divide by the sample standard deviation (N - 1 degrees of freedom) plus `STD_EPSILON`.

    Raises:
        ValueError: for fewer than two rewards.
    """
    values_N = np.asarray(rewards_N, np.float64)
    num = len(values_N)
    if num < 2:
        raise ValueError(f"advantages: a group needs at least 2 rewards, not {num}")
    if (values_N == values_N[0]).all():
        return np.zeros(num)  # exactly, without rounding errors
    total = values_N.sum()
    baseline_N = (total - values_N) / (num - 1) if baseline == "leave_one_out" else total / num
    scale = values_N.std(ddof=1) + STD_EPSILON if divide_by_std else 1.0
    advantages_N: NDArray[np.float64] = (values_N - baseline_N) / scale
    return advantages_N
