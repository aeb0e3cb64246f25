"""State of PROS: problems with the prefixes cut from their rollouts, and the node that each group is evidence on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.calibration import Line
from halfway.controllers.beliefs.forest import Forest, prune
from halfway.controllers.laws.choose_nodes import Taken, tree_of
from halfway.controllers.prefixes.reuse import Start, text_of
from halfway.curriculum import Group, Origin, Plan, ProblemSet, Request

COUNTS = (
    "seeded",
    "used",
    "dropped_truncated",
    "dropped_too_short",
    "dropped_leak",
    "dropped_duplicate",
    "evicted_tree",
    "evicted_total",
    "unscored",
    "foreign",
)
BAND = (0.3, 0.7)  # used only for the metric "in_band"


@dataclass(frozen=True, slots=True, eq=False)
class ProsState:
    """The forest of problems and prefixes with its evidence, and event counts, after PROS.

    Attributes:
        forest: evidence and belief; the root of tree t is problem t of the set.
        starts: the start of each child of the forest.
        counts: number of events of each kind in `COUNTS`.
        replayed, generated: numbers of such tokens in all rollouts so far.
        offered, offered_in: nodes proposed so far in the step `offered_in`; its further rounds take other nodes.
        line: the line from a probe's guess to the mean of a root's prior; None = all roots have the same mean.
        error_roots, error_children: mean absolute difference between believed and observed pass rate, over the latest
            step with such groups. With N rollouts per group, even the true rates would not reach 0.
    """

    problems: ProblemSet
    forest: Forest
    starts: tuple[Start, ...] = ()
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    replayed: int = 0
    generated: int = 0
    offered: tuple[int, ...] = ()
    offered_in: int = -1
    line: Line | None = None
    error_roots: float = 0.0
    error_children: float = 0.0


class Outcome(NamedTuple):
    """The outcome of a node's group."""

    node: int
    tree: int
    group: Group


def position_of(problems: ProblemSet, problem_id: str) -> int | None:
    """Index of a problem; None for a problem of another set."""
    try:
        return problems.position(problem_id)
    except KeyError:
        return None


def children_of(state: ProsState, requests: Sequence[Request]) -> dict[tuple[int, bytes], int]:
    """Children of the trees of some requests: (tree, packed prefix) -> node."""
    ids = {request.problem.id for request in requests if request.origin is not Origin.GENERATED}
    trees = [tree for problem_id in ids if (tree := position_of(state.problems, problem_id)) is not None]
    concerned_R = np.zeros(state.forest.num_trees, np.bool_)
    concerned_R[trees] = True
    children = np.flatnonzero(concerned_R[state.forest.tree_C]).tolist()
    first = state.forest.num_trees
    return {(int(state.forest.tree_C[child]), state.starts[child].text): first + child for child in children}


def node_of(state: ProsState, group: Group, known: Mapping[tuple[int, bytes], int]) -> int | None:
    """Find the node that a group is evidence on; None for another controller's group, or a removed child's.

    Raises:
        KeyError: for a fresh problem of another set.
    """
    request = group.request
    if request.origin is Origin.FRESH:
        return state.problems.position(request.problem.id)
    tree = position_of(state.problems, request.problem.id)
    if request.origin is not Origin.PREFIX or request.prefix is None or tree is None:
        return None
    return known.get((tree, text_of(request.prefix)))


def find_taken(plan: Plan, state: ProsState) -> Taken:
    """Find the nodes that a plan already has, its groups per tree, and the skipped problems.

    Groups in hand count too: other members' by their requests, the controller's own by `ProsState.offered`.
    """
    taken = Taken()
    in_hand = [group.request for group in plan.in_hand if not group.request.decided_by(plan.member)]
    requests = (*plan.requests, *in_hand)
    known = children_of(state, [request for request in requests if request.prefix is not None])
    for request in requests:
        tree = position_of(state.problems, request.problem.id)
        if tree is None or request.origin is Origin.GENERATED:
            continue
        taken.trees[tree] += 1
        node = tree if request.prefix is None else known.get((tree, text_of(request.prefix)))
        if node is not None:
            taken.nodes.add(node)
    positions = (position_of(state.problems, skip.problem_id) for skip in plan.skipped)
    taken.refused = {position for position in positions if position is not None}
    for node in set(state.offered) - taken.nodes:
        taken.refused.add(node)
        taken.trees[tree_of(state.forest, node)] += 1
    return taken


def track_errors(state: ProsState, outcomes: Sequence[Outcome]) -> ProsState:
    """Record the mean errors of the beliefs about these outcomes."""
    first, rate_M = state.forest.num_trees, state.forest.rate_M
    roots = [abs(rate_M[o.node] - o.group.pass_rate) for o in outcomes if o.node < first]
    children = [abs(rate_M[o.node] - o.group.pass_rate) for o in outcomes if o.node >= first]
    return replace(
        state,
        error_roots=float(np.mean(roots)) if roots else state.error_roots,
        error_children=float(np.mean(children)) if children else state.error_children,
    )


def evict(state: ProsState, forest: Forest, keep_C: NDArray[np.bool_], from_tree: int, from_total: int) -> ProsState:
    """Remove some children from the state.

    Args:
        forest: the state's forest with up-to-date beliefs.
        keep_C: whether a child stays.
        from_tree, from_total: numbers of children over the cap of their tree, and over the cap of all trees.
    """
    counts = Counter(state.counts)
    counts.update({"evicted_tree": from_tree, "evicted_total": from_total})
    starts = tuple(start for start, stays in zip(state.starts, keep_C.tolist(), strict=True) if stays)
    first, place_C = forest.num_trees, np.cumsum(keep_C) - 1
    stay = (node for node in state.offered if node < first or keep_C[node - first])
    offered = tuple(node if node < first else first + int(place_C[node - first]) for node in stay)
    return replace(
        state, forest=prune(forest, keep_C, before=state.forest), starts=starts, counts=dict(counts), offered=offered
    )


def figures(state: ProsState) -> Mapping[str, float]:
    """Compute the metrics of `halfway.controllers.pros.Pros`."""
    forest = state.forest
    roots, children = forest.rate_M[: forest.num_trees], forest.rate_M[forest.num_trees :]
    total = state.replayed + state.generated
    values: dict[str, float] = {
        **state.counts,
        "children": forest.num_children,
        "trees_with_children": len(np.unique(forest.tree_C)),
        "mean_rate_roots": roots.mean(),
        "mean_rate_children": children.mean() if len(children) else 0.0,
        "in_band": ((forest.rate_M >= BAND[0]) & (forest.rate_M <= BAND[1])).mean(),
        "share_replayed": state.replayed / total if total else 0.0,
        "error_roots": state.error_roots,
        "error_children": state.error_children,
    }
    if forest.scales is not None:
        scales = forest.scales
        values |= {"mu": scales.mu, "tau": scales.tau, "sigma": scales.sigma, "shift": scales.shift}
    if state.line is not None:
        values |= {"offset": state.line.mean_2[0], "slope": state.line.mean_2[1]}
    return {name: float(value) for name, value in values.items()}
