"""The pass rate of the present policy, estimated from rollouts of an earlier one by importance weights."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Estimate(NamedTuple):
    """A pass rate, and the effective sample size behind it; `weighted` says whether the weights were used."""

    rate: float
    size: float
    weighted: bool


def importance_rate(log_ratios_N: ArrayLike, successes_N: ArrayLike, clip: float, least_size: float) -> Estimate:
    """sum w r / sum w with w = exp(log pi_now(y) - log pi_then(y)): self-normalised importance sampling, DARE (arXiv
    2605.09188).

    The effective sample size is (sum w)^2 / sum w^2, from 1 if one rollout has all the weight to N. Below `least_size`
    the plain mean of the rewards is taken instead.

    Args:
        log_ratios_N: of whole rollouts, each summed over the tokens that were generated.
        successes_N: whether each rollout passed.
        clip: bound on the size of a log-ratio.
    """
    ratios_N = np.clip(np.asarray(log_ratios_N, np.float64), -clip, clip)
    weights_N, passed_N = np.exp(ratios_N), np.asarray(successes_N, np.float64)
    size = float(weights_N.sum() ** 2 / (weights_N**2).sum())
    weighted = size >= least_size
    rate = np.average(passed_N, weights=weights_N) if weighted else passed_N.mean()
    return Estimate(float(rate), size, weighted)
