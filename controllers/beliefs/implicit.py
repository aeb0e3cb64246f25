"""Implicit evidence: what the outcomes of some problems say about all others, through two reference models (BOTS)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from halfway.controllers.beliefs.forest import Floats, Forest

GUARD = 1e-6  # as in the published code; prevents division by 0 where both models pass equally often


def capability(rate: float, weak: float, strong: float) -> float:
    """Where the policy stands between two reference models: 0 = passes as often as the weak one, 1 = as the strong one.

    Args:
        rate, weak, strong: mean pass rates of the three on the same problems.
    """
    return (rate - weak) / (strong - weak + GUARD)


def predicted(weak_P: Floats, strong_P: Floats, capability: float) -> Floats:
    """Pass rates interpolated between the reference models' rates, or extrapolated beyond them, clipped to [0, 1]."""
    rate_P: Floats = strong_P - weak_P
    rate_P *= capability
    rate_P += weak_P
    return np.clip(rate_P, 0.0, 1.0, out=rate_P)


def with_implicit(forest: Forest, rate_P: Floats, rollouts: float, observed: Sequence[int]) -> Forest:
    """The forest with `rollouts` pseudo-rollouts added to each problem that was not observed, at its predicted rate."""
    own = list(observed)
    tried_M = forest.tried_M + rollouts
    passed_M: Floats = rollouts * rate_P
    passed_M += forest.passed_M
    tried_M[own], passed_M[own] = forest.tried_M[own], forest.passed_M[own]
    return replace(forest, passed_M=passed_M, tried_M=tried_M, stale_R=np.ones(forest.num_trees, np.bool_))
