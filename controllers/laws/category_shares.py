"""Laws over categories of problems: their shares of the slots, and the problems that fill these."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.features import Categories
from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.laws.choose_problems import first_by


def softmax(score_C: Floats, temperature: float) -> Floats:
    """Probabilities in proportion to exp(score / temperature)."""
    weights_C = np.exp((score_C - score_C.max()) / temperature)
    shares_C: Floats = weights_C / weights_C.sum()
    return shares_C


def raise_to_floor(weight_C: Floats, floor: float) -> Floats:
    """Weights as probabilities, each raised to floor / C if it is lower, and normalised again. If all weights are 0,
    the probabilities are equal."""
    total = weight_C.sum()
    share_C = weight_C / total if total > 0 else np.full(len(weight_C), 1 / len(weight_C))
    share_C = np.maximum(share_C, floor / len(share_C))
    result_C: Floats = share_C / share_C.sum()
    return result_C


def part_by_rate(rate: float, reference: float, sharpness: float, floor: float) -> float:
    """The part of its share that a source gets: rate^s / (rate^s + reference^s), at least `floor`.

    One half if it is as good as the reference, also if both rates are 0; nearly all if it is better.

    Args:
        rate, reference: gain per unit of cost of the source and of its competitor; may be infinite.
        sharpness: s, how fast the part falls.
    """
    if rate == reference:
        return max(floor, 0.5)
    if rate == 0 or math.isinf(reference):
        return floor
    ratio = min(reference / rate, 1e6)
    part: float = 1 / (1 + ratio**sharpness)
    return max(floor, part)


def optimistic(mean_C: Floats, count_C: NDArray[np.int64], bonus: float) -> Floats:
    """Upper confidence bounds: mean + bonus sqrt(2 ln(n + 1) / (n_c + 1)), n being the sum of all n_c (DUMP's code)."""
    bound_C: Floats = mean_C + bonus * np.sqrt(2 * math.log(int(count_C.sum()) + 1) / (count_C + 1))
    return bound_C


def cosine_shares(progress: float, levels: int) -> Floats:
    """E2H-C: level i of K gets a (K - i) / S + (1 - a) (i + 1) / S, S = K (K + 1) / 2, a = (1 + cos(pi progress)) / 2.

    The weight moves from the easiest to the hardest level. No probability falls below 1 / S, which the published code
    enforces too.

    Args:
        progress: finished share of the training steps, from 0 to 1.
        levels: K, easiest first.
    """
    level_K = np.arange(levels)
    early = 0.5 * (1 + math.cos(math.pi * progress))
    shares_K: Floats = (early * (levels - level_K) + (1 - early) * (level_K + 1)) / (levels * (levels + 1) / 2)
    return shares_K


def gaussian_shares(progress: float, levels: int, exponent: float, width: float, floor: float) -> Floats:
    """E2H-G: floor + (1 - K floor) q_i, with q_i in proportion to exp(-(i - mu)^2 / (2 width^2)) and
    mu = progress^exponent (K - 1), in levels.

    Args:
        exponent: of the mean's progress; below 1, the mean moves faster at the beginning.
        floor: lowest probability of a level, at most 1 / K.
    """
    mu = progress**exponent * (levels - 1)
    # The largest exponent is shifted to 0, so that a narrow bell between two levels does not underflow.
    shares_K = floor + (1 - levels * floor) * softmax(-((np.arange(levels) - mu) ** 2) / 2, width**2)
    return shares_K


def share_out(share_C: Floats, room_C: NDArray[np.int64], wanted: int, generator: np.random.Generator) -> Positions:
    """Number of slots of each category: every slot draws a category among those with room left.

    Args:
        room_C: problems that each category may still give; together at least `wanted`.
    """
    count_C = np.zeros(len(share_C), np.int64)
    while wanted > 0:
        share_C = np.where(room_C > count_C, share_C, 0.0)
        if share_C.sum() == 0:  # the categories with a share are exhausted
            share_C = (room_C > count_C).astype(np.float64)
        drawn_C = generator.multinomial(wanted, share_C / share_C.sum())
        taken_C = np.minimum(drawn_C, room_C - count_C)
        count_C, wanted = count_C + taken_C, wanted - int(taken_C.sum())
    return count_C


def draw_problems(
    kinds: Categories,
    share_C: Floats,
    free_F: Positions,
    wanted: int,
    turns_P: NDArray[np.int32],
    generator: np.random.Generator,
) -> Positions:
    """Positions for `wanted` slots: each draws a category and takes a free problem of it with the fewest turns.

    So each category cycles through its problems in random order, like its own data loader.

    Args:
        free_F: positions to choose from.
        turns_P: number of turns of each problem so far.
    """
    room_C = np.bincount(kinds.category_P[free_F], minlength=len(kinds))
    count_C = share_out(share_C, room_C, min(wanted, len(free_F)), generator)
    free_P = np.zeros(len(turns_P), np.bool_)
    free_P[free_F] = True
    chosen: list[Positions] = [np.zeros(0, np.int64)]
    for category in np.flatnonzero(count_C).tolist():
        members = kinds.members(category)
        members = members[free_P[members]]
        chosen.append(members[first_by([turns_P[members]], int(count_C[category]), generator)])
    return np.concatenate(chosen)


def count_turns(turns_P: NDArray[np.int32], positions: Sequence[int]) -> NDArray[np.int32]:
    """Add one turn to each of some problems."""
    turns_P = turns_P.copy()
    np.add.at(turns_P, list(positions), 1)
    return turns_P
