"""Measures of the learning signal of a group of binary rewards, as functions of its pass rate or pass count.

N is the number of rollouts of a group, k its number of successes, p the success probability of one rollout. All
quantities are largest at one half, except the update mass. Equations are from appendix E of the Prefix Sampling paper
(arXiv 2605.05112), unless another source is named. Arguments are numbers or arrays; results have the broadcast shape.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

NEAR_HALF = (3 / 8, 5 / 8)
"""Pass rates near one half, both ends included."""


def entropy(p: ArrayLike) -> Floats:
    """Information in the outcome of one rollout: -p log2 p - (1 - p) log2 (1 - p), in bits (E.1, eq. 4).

    0 at p = 0 and p = 1.
    """
    p = _probability(p)
    q = 1 - p
    # 0 log 0 is 0; the inner `where` keeps the logarithm away from it.
    return np.asarray(-p * np.log2(np.where(p > 0, p, 1)) - q * np.log2(np.where(q > 0, q, 1)) + 0.0)


def survival(p: ArrayLike, size: ArrayLike) -> Floats:
    """Probability that a group of `size` rollouts is mixed: 1 - p^N - (1 - p)^N (E.2, eq. 8)."""
    p, size = _probability(p), _counts(size, 1)
    return np.asarray(1 - p**size - (1 - p) ** size)


def mean_centred_variance(passed: ArrayLike, size: ArrayLike) -> Floats:
    """Mean square of the advantages reward - group mean: k (N - k) / N^2 (E.3, eq. 12)."""
    passed, size = _group(passed, size, 1)
    return np.asarray(passed * (size - passed) / size**2)


def update_mass(passed: ArrayLike, size: ArrayLike) -> Floats:
    """Mean absolute advantage of a group under MaxRL: 2 (1[k > 0] - k / N), see `halfway.controllers.maxrl`.

    Largest for a single success. Its mean over any joint distribution of the outcomes is 2 (P(K > 0) - E[K] / N).
    """
    passed, size = _group(passed, size, 1)
    return np.asarray(2 * ((passed > 0) - passed / size))


def expected_update_mass(p: ArrayLike, size: ArrayLike) -> Floats:
    """Expected update mass of a group before sampling: 2 (pass@N - pass@1) = 2 (1 - (1 - p)^N - p)
    (github.com/linjiw/curriculum-maxrl, for the objective of arXiv 2602.02710).

    Largest at p = 1 - N^(-1 / (N - 1)), 0.26 for N = 8; 0 at p = 0 and p = 1.
    """
    p, size = _probability(p), _counts(size, 1)
    return np.asarray(2 * (1 - (1 - p) ** size - p))


def standardize(rewards_N: ArrayLike, virtual: Sequence[float] = (), epsilon: float = 1e-6) -> Floats:
    """(r - mean) / (standard deviation + epsilon), over real and virtual rewards together, with the sample standard
    deviation."""
    values_N = np.asarray(rewards_N, np.float64)
    known = np.concatenate([values_N, np.asarray(virtual, np.float64)])
    if len(known) and (known == known[0]).all():
        return np.zeros(len(values_N))  # not what rounding leaves of the difference
    return np.asarray((values_N - known.mean()) / (known.std(ddof=1) + epsilon))


def _probability(p: ArrayLike) -> Floats:
    values = np.asarray(p, np.float64)
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError(f"a probability must lie in 0..1, not {p!r}")
    return values


def _counts(size: ArrayLike, least: int) -> Floats:
    values = np.asarray(size, np.float64)
    if not np.all(values >= least):
        raise ValueError(f"a group needs at least {least} rollouts here, not {size!r}")
    return values


def _group(passed: ArrayLike, size: ArrayLike, least: int) -> tuple[Floats, Floats]:
    successes, sizes = np.asarray(passed, np.float64), _counts(size, least)
    if not np.all((successes >= 0) & (successes <= sizes)):
        raise ValueError(f"the number of successes must lie in 0..N, not {passed!r} of {size!r}")
    return successes, sizes
