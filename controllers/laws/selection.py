"""Laws that choose nodes of a forest: a key for every node, and the smallest keys under a quota."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from halfway.controllers.beliefs.forest import Floats, Forest

Ties = Literal["random", "least_tried"]

# Distances that agree to six digits are a tie; what breaks it is smaller than that digit.
TIE = 1e-6


@dataclass(slots=True)
class Taken:
    """What a plan under construction holds already, and what it must not hold.

    Attributes:
        nodes: nodes in the plan.
        trees: how often each tree is in the plan.
        refused: nodes that another member has refused for this plan, or that an earlier round of the step took.
    """

    nodes: set[int] = field(default_factory=set)
    trees: Counter[int] = field(default_factory=Counter)
    refused: set[int] = field(default_factory=set)

    def take(self, node: int, tree: int) -> None:
        self.nodes.add(node)
        self.trees[tree] += 1


def distance_to_band(rate: Floats, band: tuple[float, float]) -> Floats:
    """How far a pass rate is from a band (low, high); 0 inside it, both ends included."""
    return np.maximum(np.maximum(band[0] - rate, rate - band[1]), 0.0)


def nearness(forest: Forest, band: tuple[float, float], ties: Ties, generator: np.random.Generator) -> Floats:
    """A key whose smallest values are the nodes believed nearest the band.

    Args:
        ties: among equals (to six digits) the first are random, or those with the fewest discounted rollouts and then
            random. Random in the end either way, since at the start every root is believed to be the same.
    """
    key_M = np.round(distance_to_band(forest.rate_M, band), 6)
    if ties == "least_tried":
        key_M += TIE / 2 * forest.tried_M / (1 + forest.tried_M)
    key_M += TIE / 1000 * generator.random(len(key_M))
    return key_M


def pick(key_M: Floats, forest: Forest, wanted: int, per_tree: int | None, taken: Taken) -> list[int]:
    """The nodes with the smallest keys, smallest first; `taken` grows by them.

    A node in the plan or refused is passed over, and so is one whose tree has its quota. When nothing else is left the
    quota and the refusals fall, and then nodes repeat: a plan may want more groups than there are nodes.
    """
    chosen: list[int] = []
    for quota, refused in ((per_tree, taken.refused), (None, set[int]())):
        chosen += _smallest(key_M, forest, wanted - len(chosen), quota, refused | taken.nodes, taken)
    while len(chosen) < wanted:
        chosen += _smallest(key_M, forest, wanted - len(chosen), None, set(), taken)
    return chosen


def _smallest(
    key_M: Floats, forest: Forest, wanted: int, quota: int | None, barred: set[int], taken: Taken
) -> list[int]:
    chosen: list[int] = []
    looked_at = min(len(key_M), 4 * (wanted + len(barred)))
    while wanted > 0:
        nearest = np.argpartition(key_M, looked_at - 1)[:looked_at]
        nearest = nearest[np.argsort(key_M[nearest], kind="stable")]
        chosen = _under_quota(nearest.tolist(), forest, wanted, quota, barred, taken)
        if len(chosen) == wanted or looked_at == len(key_M):
            break
        looked_at = min(len(key_M), 4 * looked_at)
    for node in chosen:
        taken.take(node, tree_of(forest, node))
    return chosen


def _under_quota(
    nodes: list[int], forest: Forest, wanted: int, quota: int | None, barred: set[int], taken: Taken
) -> list[int]:
    chosen: list[int] = []
    trees = taken.trees.copy()
    for node in nodes:
        tree = tree_of(forest, node)
        if node in barred or (quota is not None and trees[tree] >= quota):
            continue
        chosen.append(node)
        trees[tree] += 1
        if len(chosen) == wanted:
            break
    return chosen


def tree_of(forest: Forest, node: int) -> int:
    """The tree that one node belongs to."""
    return node if node < forest.num_trees else int(forest.tree_C[node - forest.num_trees])
