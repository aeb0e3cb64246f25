"""A forest of problems and the prefixes cut from their rollouts, with evidence and belief on every node."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]
Positions = NDArray[np.int64]
Decay = Literal["observe", "step"]

ROUNDING = 1e-9
CACHED = 1 << 15
"""Nodes whose counts a processor's cache holds."""
# Fewer discounted rollouts than this count as no evidence; otherwise every tree ever tried would be estimated forever.
FORGOTTEN = 1e-6


@dataclass(frozen=True, slots=True)
class Scales:
    """Hyperparameters of the two-layer logit-normal model, all in logits.

    A root has log-odds psi_0 ~ N(mu, tau^2), each of its children psi_i ~ N(psi_0 + shift, sigma^2). The source has no
    `shift` (0): there a child is on average as hard as its root.
    """

    mu: float
    tau: float
    sigma: float
    shift: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees of two layers: a problem (root), and the problems that start from prefixes of its rollouts (children).

    Node t is the root of tree t; node R + i is child i, which belongs to tree `tree_C[i]`. Suffixes: _R trees, _C
    children, _M = R + C nodes. The arrays take 33 bytes per root (41 with offsets) and 36 bytes per child.

    Attributes:
        tree_C: tree of each child.
        passed_M, tried_M: discounted successes and rollouts of each node; a child's do not count for its root.
        logit_M: log-odds from which the next estimation starts: a sampler's latest draw, or the latest solution.
        rate_M: believed pass rate.
        stale_R: whether a tree's evidence has changed since its last estimation.
        scales: hyperparameters in use; None if the belief has none.
        refreshed: step of the latest estimation; -1 before the first.
        fitted: step of the latest fit of the hyperparameters; -1 before the first.
        offset_R: distance of each root's prior mean from mu, in logits; None = 0 for all.

    Raises:
        UserError: if the sizes do not match, or a node has more successes than rollouts: a damaged state.
    """

    tree_C: Ints
    passed_M: Floats
    tried_M: Floats
    logit_M: Floats
    rate_M: Floats
    stale_R: Flags
    scales: Scales | None = None
    refreshed: int = -1
    fitted: int = -1
    offset_R: Floats | None = None

    def __post_init__(self) -> None:
        size = self.num_trees + len(self.tree_C)
        for name in ("passed_M", "tried_M", "logit_M", "rate_M"):
            length = len(getattr(self, name))
            if length != size:
                raise UserError(f"forest.{name}: {length} values for {size} nodes; resume from an intact checkpoint")
        if self.offset_R is not None and len(self.offset_R) != self.num_trees:
            raise UserError(
                f"forest.offset_R: {len(self.offset_R)} values for {self.num_trees} roots; "
                "resume from an intact checkpoint"
            )
        if len(self.tree_C) and not 0 <= self.tree_C.min() <= self.tree_C.max() < self.num_trees:
            raise UserError("forest.tree_C: a child of a tree that does not exist; resume from an intact checkpoint")

    @property
    def num_trees(self) -> int:
        return len(self.stale_R)

    @property
    def num_children(self) -> int:
        return len(self.tree_C)

    def check_counts(self) -> None:
        """Raise UserError if a node has more successes than rollouts, or a count that is not finite."""
        for start in range(0, len(self.tried_M), CACHED):
            passed, tried = self.passed_M[start : start + CACHED], self.tried_M[start : start + CACHED]
            failed = tried - passed
            # NaN and infinity fail these comparisons too.
            if passed.min() >= 0 and failed.min() >= -ROUNDING and failed.max() < np.inf:
                continue
            node = start + int(np.argmin((passed >= 0) & (passed <= tried + ROUNDING) & np.isfinite(tried)))
            raise UserError(
                f"forest: node {node} has {self.passed_M[node]} successes of {self.tried_M[node]} rollouts; "
                "resume from an intact checkpoint"
            )


def bare_forest(num_trees: int, logit: float, rate: float, scales: Scales | None = None) -> Forest:
    """Make roots without evidence or children, each with the given belief."""
    zeros = np.zeros(num_trees)
    return Forest(
        tree_C=np.zeros(0, np.int32),
        passed_M=zeros,
        tried_M=zeros,
        logit_M=np.full(num_trees, logit),
        rate_M=np.full(num_trees, rate),
        stale_R=np.zeros(num_trees, np.bool_),
        scales=scales,
    )


def learn(
    forest: Forest,
    nodes: Sequence[int],
    passed: Sequence[int],
    tried: Sequence[int],
    forgetting: float,
    decay_on: Decay = "observe",
    in_place: bool = False,
) -> Forest:
    """Add one step's outcomes to the counts: (s, n) <- lambda (s, n) + (new s, new n).

    Args:
        nodes: the observed nodes; a node that occurs twice is discounted once and gets the sum.
        passed, tried: successes and rollouts of each.
        forgetting: lambda; 1 = nothing is forgotten, 0 = only the newest step counts.
        decay_on: "observe" discounts the nodes just observed, as in the source; "step" discounts every node, so that
            nodes without visits drift back to the prior, and makes every tree with evidence stale in every step.
        in_place: whether the forest's arrays may be changed, since nothing else refers to them.

    Raises:
        ValueError: if an outcome has more successes than rollouts.
    """
    if len(nodes) == 0 and decay_on == "observe":
        return forest
    where = np.asarray(nodes, np.int64)
    new_passed, new_tried = np.asarray(passed, np.float64), np.asarray(tried, np.float64)
    if not np.all((new_passed >= 0) & (new_passed <= new_tried)):
        raise ValueError(f"more successes than rollouts: {list(passed)} of {list(tried)}")
    if not in_place:
        forest = replace(
            forest,
            passed_M=forest.passed_M.copy(),
            tried_M=forest.tried_M.copy(),
            stale_R=forest.stale_R.copy(),
        )
    stale_R, passed_M, tried_M = forest.stale_R, forest.passed_M, forest.tried_M
    stale_R[trees_of(forest, where)] = True
    if decay_on == "observe":
        touched = np.unique(where)
        passed_M[touched] *= forgetting
        tried_M[touched] *= forgetting
        forgotten = touched[tried_M[touched] < FORGOTTEN]
    else:
        stale_R |= forest.tried_M[: forest.num_trees] > 0
        stale_R[forest.tree_C[forest.tried_M[forest.num_trees :] > 0]] = True
        passed_M *= forgetting
        tried_M *= forgetting
        forgotten = np.flatnonzero((tried_M < FORGOTTEN) & (tried_M > 0))
    passed_M[forgotten] = tried_M[forgotten] = 0.0
    np.add.at(passed_M, where, new_passed)
    np.add.at(tried_M, where, new_tried)
    return forest


def grow(forest: Forest, trees: Sequence[int]) -> Forest:
    """Add children without evidence to the given trees. They start with the belief of their roots."""
    if len(trees) == 0:
        return forest
    added = np.asarray(trees, np.int32)
    shift = forest.scales.shift if forest.scales else 0.0
    zeros, stale_R = np.zeros(len(added)), forest.stale_R.copy()
    stale_R[added] = True
    return replace(
        forest,
        tree_C=np.concatenate([forest.tree_C, added]),
        passed_M=np.concatenate([forest.passed_M, zeros]),
        tried_M=np.concatenate([forest.tried_M, zeros]),
        logit_M=np.concatenate([forest.logit_M, forest.logit_M[added] + shift]),
        rate_M=np.concatenate([forest.rate_M, forest.rate_M[added]]),
        stale_R=stale_R,
    )


def prune(forest: Forest, keep_C: Flags, before: Forest | None = None) -> Forest:
    """Remove children. A tree that loses evidence becomes stale.

    Args:
        before: the forest from which this one was made; arrays that it does not share are changed in place.
    """
    if keep_C.all():
        return forest
    num_trees = forest.num_trees
    stale_R = forest.stale_R.copy()
    stale_R[forest.tree_C[~keep_C & (forest.tried_M[num_trees:] > 0)]] = True

    def kept(name: str) -> Floats:
        values_M: Floats = getattr(forest, name)
        values_C = values_M[num_trees:][keep_C]
        if before is None or values_M is getattr(before, name):
            return np.concatenate([values_M[:num_trees], values_C])
        values_M[num_trees : num_trees + len(values_C)] = values_C
        return values_M[: num_trees + len(values_C)]

    return replace(
        forest,
        tree_C=forest.tree_C[keep_C],
        passed_M=kept("passed_M"),
        tried_M=kept("tried_M"),
        logit_M=kept("logit_M"),
        rate_M=kept("rate_M"),
        stale_R=stale_R,
    )


def trees_of(forest: Forest, nodes: Positions) -> Positions:
    """Find the tree of each node."""
    if forest.num_children == 0:
        return nodes
    inner = np.maximum(nodes - forest.num_trees, 0)
    return np.where(nodes < forest.num_trees, nodes, forest.tree_C[inner])


def nodes_of(forest: Forest, trees: Positions) -> tuple[Positions, Positions]:
    """List the nodes of some trees, roots in the given order, then children; and each node's index in `trees`.

    Args:
        trees: the trees, each once.
    """
    chosen_R = np.zeros(forest.num_trees, np.bool_)
    chosen_R[trees] = True
    children = np.flatnonzero(chosen_R[forest.tree_C])
    place_R = np.empty(forest.num_trees, np.int32)
    place_R[trees] = np.arange(len(trees), dtype=np.int32)
    place = place_R[forest.tree_C[children]]
    # With neighbours in memory, the sums over a tree's children are cheap.
    order = np.argsort(place, kind="stable")
    return np.concatenate([trees, forest.num_trees + children[order]]), place[order].astype(np.int64)


def enforce_caps(
    forest: Forest, distance_C: Floats, per_tree: int | None, in_total: int | None
) -> tuple[Flags, int, int]:
    """Choose the children that stay under caps: those believed nearest the target and, among equals, the newest.

    Args:
        distance_C: distance of each child's believed pass rate from the target.
        per_tree, in_total: the caps; None = no cap.

    Returns:
        Whether each child stays, and the numbers of children over the first and the second cap.
    """
    keep_C = np.ones(forest.num_children, np.bool_)
    if per_tree is not None and forest.num_children:
        _, tree_of, counts = np.unique(forest.tree_C, return_inverse=True, return_counts=True)
        full = np.flatnonzero(counts[tree_of] > per_tree)
        order = full[np.lexsort((-full, distance_C[full], forest.tree_C[full]))]
        sorted_trees = forest.tree_C[order]
        first = np.searchsorted(sorted_trees, sorted_trees)
        keep_C[order[np.arange(len(order)) - first >= per_tree]] = False
    gone_tree = int((~keep_C).sum())
    left = forest.num_children - gone_tree
    if in_total is not None and left > in_total:
        children = np.flatnonzero(keep_C)
        order = np.lexsort((-children, distance_C[children]))
        keep_C[children[order[in_total:]]] = False
    return keep_C, gone_tree, forest.num_children - gone_tree - int(keep_C.sum())
