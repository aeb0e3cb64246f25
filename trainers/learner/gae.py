"""Generalized advantage estimation: from a critic's values to advantages and returns. Needs numpy and scipy only."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.trainers.learner.batch import Floats, TrainingSequence
from halfway.trainers.learner.learner_options import CriticOptions

# Under the root, against division by zero if all advantages are equal.
VARIANCE_EPSILON = 1e-8


def gae(values_K: Floats, reward: float, gamma: float, gae_lambda: float) -> NDArray[np.float64]:
    """Advantages of the K tokens that the policy wrote in a rollout (Schulman et al. 2016, section 3).

    A_k = sum over j >= 0 of (gamma lambda)^j d_{k+j}, with d_k = r_k + gamma V_{k+1} - V_k. The reward comes with the
    last token; the value after it is 0.

    Args:
        values_K: value of the state before each token, over all turns of the rollout, without observations.
    """
    from scipy.signal import lfilter

    values_K = np.asarray(values_K, np.float64)
    deltas_K = gamma * np.append(values_K[1:], 0) - values_K
    deltas_K[-1] += reward
    # The recursion A_k = d_k + gamma lambda A_{k+1}, from the end.
    advantages_K: NDArray[np.float64] = lfilter([1.0], [1.0, -gamma * gae_lambda], deltas_K[::-1])[::-1]
    return advantages_K


def with_targets(
    sequences: Sequence[TrainingSequence], values: Sequence[Floats], options: CriticOptions
) -> tuple[list[TrainingSequence], dict[str, float]]:
    """Add values, advantages and returns to the sequences of a batch.

    The return is advantage + value. Advantages are whitened after that, by mean and variance over all tokens in the
    loss of the batch.

    Args:
        values: one array over the tokens of each sequence; entries outside its mask are ignored.

    Returns:
        The sequences; and `value` and `return`, means over the tokens, and `explained_variance` = 1 - var(return -
        value) / var(return): 1 is a perfect critic, 0 a constant one. 0 if all returns are equal.
    """
    assert sequences, "a batch without sequences has nothing to estimate"
    values = [np.asarray(row_T, np.float64)[s.mask_T] for s, row_T in zip(sequences, values, strict=True)]
    estimated = [
        gae(values_K, s.reward, options.gamma, options.gae_lambda)
        for s, values_K in zip(sequences, values, strict=True)
    ]
    values_M, advantages_M = np.concatenate(values), np.concatenate(estimated)
    returns_M = values_M + advantages_M
    if options.whiten:
        advantages_M = (advantages_M - advantages_M.mean()) / np.sqrt(advantages_M.var() + VARIANCE_EPSILON)
    ends = np.cumsum([len(values_K) for values_K in values])[:-1]
    parts = (np.split(array_M, ends) for array_M in (advantages_M, values_M, returns_M))
    filled = [
        replace(s, advantages_T=_place(s, advantages_K), values_T=_place(s, values_K), returns_T=_place(s, returns_K))
        for s, advantages_K, values_K, returns_K in zip(sequences, *parts, strict=True)
    ]
    variance = returns_M.var()
    explained = 1 - (returns_M - values_M).var() / variance if variance > 0 else 0.0
    metrics = {"value": values_M.mean(), "return": returns_M.mean(), "explained_variance": explained}
    return filled, {name: float(value) for name, value in metrics.items()}


def _place(sequence: TrainingSequence, values_K: Floats) -> NDArray[Any]:
    """Put values at the masked tokens of a sequence, 0 elsewhere."""
    placed_T = np.zeros(sequence.length)
    placed_T[sequence.mask_T] = values_K
    return placed_T
