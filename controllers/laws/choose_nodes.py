"""Laws that choose nodes of a forest: a ranking, and its first nodes under a quota."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from halfway.controllers.beliefs.forest import Floats, Forest, Positions
from halfway.controllers.laws.choose_problems import DIGITS, draw_keys, first_by
from halfway.curriculum.signals import expected_update_mass

Ties = Literal["random", "least_tried"]


@dataclass(slots=True)
class Taken:
    """The nodes that a plan already has, and the nodes that it must not take.

    Attributes:
        nodes: nodes in the plan.
        trees: tree -> number of its nodes in the plan.
        refused: nodes that another member has refused for this plan, or that an earlier round of the step took.
    """

    nodes: set[int] = field(default_factory=set)
    trees: Counter[int] = field(default_factory=Counter)
    refused: set[int] = field(default_factory=set)

    def take(self, node: int, tree: int) -> None:
        self.nodes.add(node)
        self.trees[tree] += 1


def distance_to_band(rate: Floats, band: tuple[float, float]) -> Floats:
    """Distance of a pass rate from a band (low, high); 0 inside it, both ends included."""
    low, high = band
    distance = rate - (low if low == high else np.clip(rate, low, high))
    return np.abs(distance, out=distance)


@dataclass(slots=True)
class Ranking:
    """Nodes in the order of some keys, smallest first, ranked only as far as needed.

    Attributes:
        keys: the first decides, to six digits; the next decides ties, and chance the rest. None = random order.
        size: number of nodes.
        ranked: the first nodes of the order. Broken ties stay broken.
    """

    keys: Sequence[Floats]
    size: int
    generator: np.random.Generator
    ranked: Positions = field(default_factory=lambda: np.zeros(0, np.int64))

    def first(self, number: int) -> list[int]:
        """Rank and return the first `number` nodes, or all if there are fewer."""
        more = min(number, self.size) - len(self.ranked)
        if more > 0:
            self.ranked = np.concatenate([self.ranked, self._next(more)])
        nodes: list[int] = self.ranked[:number].tolist()
        return nodes

    def _next(self, number: int) -> Positions:
        left = None
        if len(self.ranked):
            left_M = np.ones(self.size, np.bool_)
            left_M[self.ranked] = False
            left = np.flatnonzero(left_M)
        if not self.keys:
            return self.generator.choice(self.size if left is None else left, number, replace=False)
        if left is None:
            return first_by(self.keys, number, self.generator, DIGITS)
        return np.asarray(left[first_by([key[left] for key in self.keys], number, self.generator, DIGITS)])


def nearest(forest: Forest, band: tuple[float, float], ties: Ties, generator: np.random.Generator) -> Ranking:
    """Rank nodes by the distance of their believed pass rate from the band, nearest first.

    Args:
        ties: order of equals (to six digits): at random, or by the fewest discounted rollouts, then at random. At the
            start all roots are equal.
    """
    keys = [distance_to_band(forest.rate_M, band)]
    if ties == "least_tried":
        keys.append(forest.tried_M)
    return Ranking(keys, len(forest.rate_M), generator)


def by_update_mass(forest: Forest, size: int, generator: np.random.Generator) -> Ranking:
    """Rank nodes by draws in proportion to pass@N - rate, see `halfway.curriculum.signals.expected_update_mass`.

    Args:
        size: N, rollouts of a group.
    """
    keys = [draw_keys(expected_update_mass(forest.rate_M, size), generator)]
    return Ranking(keys, len(forest.rate_M), generator)


def in_random_order(forest: Forest, generator: np.random.Generator) -> Ranking:
    """Rank all nodes at random."""
    return Ranking((), len(forest.rate_M), generator)


def pick(ranking: Ranking, forest: Forest, wanted: int, per_tree: int | None, taken: Taken) -> list[int]:
    """Pick the first nodes of a ranking, and add them to `taken`.

    It passes over nodes that are in the plan or refused, and nodes whose tree has filled its quota. If nothing else is
    left, quota and refusals are dropped, and then nodes repeat: a plan may want more groups than there are nodes.
    """
    chosen: list[int] = []
    for quota, refused in ((per_tree, taken.refused), (None, set[int]())):
        chosen += _first(ranking, forest, wanted - len(chosen), quota, refused | taken.nodes, taken)
    while len(chosen) < wanted:
        chosen += _first(ranking, forest, wanted - len(chosen), None, set(), taken)
    return chosen


def _first(
    ranking: Ranking, forest: Forest, wanted: int, quota: int | None, barred: set[int], taken: Taken
) -> list[int]:
    chosen: list[int] = []
    looked_at = min(ranking.size, 4 * (wanted + len(barred)))
    while wanted > 0:
        chosen = _under_quota(ranking.first(looked_at), forest, wanted, quota, barred, taken)
        if len(chosen) == wanted or looked_at == ranking.size:
            break
        looked_at = min(ranking.size, 4 * looked_at)
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
    """Find the tree of one node."""
    return node if node < forest.num_trees else int(forest.tree_C[node - forest.num_trees])
