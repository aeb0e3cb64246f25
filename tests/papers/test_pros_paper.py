"""PROS beside the procedure of its source (a third party's summary), written out here and run on the same outcomes.

Its nodes are problems and beginnings of correct rollouts. The pass rate of each is believed by the source's model,
psi_root ~ N(mu, tau^2), psi_child ~ N(psi_root, sigma^2), here integrated on a grid where the controller samples; the
batch is what is believed nearest one half. Counts are discounted before new outcomes are added. The source has neither
exploration nor quotas nor caps, so they are off.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from controller_harness import problem_set

from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes
from halfway.controllers.prefixes.reuse import prefix_of
from halfway.controllers.pros import Pros
from halfway.curriculum import Group, Origin, Plan, Request, Rollout, Stream, Turn

N, BATCH, STEPS = 8, 6, 12
MU, TAU, SIGMA, FORGETTING = 0.0, 1.5, 0.7, 0.9
GRID = np.linspace(-9, 9, 361)
SLACK = 0.03
"""How far the controller's sampled rates may be from the grid's."""

Node = tuple[str, tuple[int, ...]]
SOURCE = Pros(
    exploration=0.0,
    per_tree=None,
    tree_children=None,
    total_children=None,
    leak_tokens=0,
    belief=PassRateBelief(bayes=HierarchicalBayes(sweeps=320, burn_in=20)),
)


def normal(x: np.ndarray, mean: float | np.ndarray, deviation: float) -> np.ndarray:
    return np.exp(-(((x - mean) / deviation) ** 2) / 2)


class Source:
    """The counts of every node and what is believed about it."""

    def __init__(self, problems: list[str]) -> None:
        self.counts: dict[Node, tuple[float, float]] = {(problem, ()): (0.0, 0.0) for problem in problems}

    def likelihood(self, node: Node) -> np.ndarray:
        passed, tried = self.counts[node]
        return np.exp(passed * GRID - tried * np.logaddexp(0, GRID))

    def rates(self) -> dict[Node, float]:
        """sigmoid(E psi) of every node."""
        around = normal(GRID[None, :], GRID[:, None], SIGMA)  # of a child (columns) given its root (rows)
        around /= around.sum(axis=1, keepdims=True)
        found = {}
        for root in [node for node in self.counts if not node[1]]:
            children = [node for node in self.counts if node[0] == root[0] and node[1]]
            evidence = {child: around @ self.likelihood(child) for child in children}
            posterior = normal(GRID, MU, TAU) * self.likelihood(root)
            for child in children:
                posterior = posterior * evidence[child]
                posterior /= posterior.sum()
            posterior /= posterior.sum()
            found[root] = float(posterior @ GRID)
            for child in children:
                mean_given_root = around @ (self.likelihood(child) * GRID) / evidence[child]
                found[child] = float(posterior @ mean_given_root)
        return {node: 1 / (1 + math.exp(-logit)) for node, logit in found.items()}

    def learn(self, groups: list[Group]) -> None:
        """Discount the nodes that were tried, add their outcomes, and grow a child of every correct rollout."""
        for made in groups:
            node = node_of(made.request)
            passed, tried = self.counts[node]
            new = sum(rollout.success for rollout in made.rollouts)
            self.counts[node] = (FORGETTING * passed + new, FORGETTING * tried + N)
        for made in groups:
            for rollout in made.rollouts:
                start = beginning(rollout)
                if rollout.success and start:
                    self.counts.setdefault((made.request.problem.id, start), (0.0, 0.0))


def beginning(rollout: Rollout) -> tuple[int, ...]:
    """The tokens before the least certain one in the middle half of a rollout's own tokens; () if too short."""
    (turn,) = rollout.turns
    own, best = turn.entropies_T[turn.num_replayed :], -1
    for place in range(len(own)):
        if len(own) / 4 <= place < 3 * len(own) / 4 and (best < 0 or own[place] > own[best]):
            best = place
    return tuple(turn.tokens_T[: turn.num_replayed + best].tolist()) if len(own) >= 4 else ()


def node_of(request: Request) -> Node:
    turns = request.prefix.turns if request.prefix else ()
    return request.problem.id, tuple(int(token) for turn in turns for token in turn.tokens_T)


def rolled_out(request: Request, rng: np.random.Generator) -> Group:
    """Rollouts of different lengths; whoever starts later passes more often."""
    past = np.array(node_of(request)[1], np.int32)
    easy = int(request.problem.id.removeprefix("p")) / 8
    chance = 1 / (1 + math.exp(2 - easy - len(past) / 15))
    rollouts = []
    for success in (rng.random(N) < chance).tolist():
        own = int(rng.integers(2, 30))
        entropies_T = np.concatenate([0 * past, rng.random(own).round(1)]).astype(np.float32)
        tokens_T = np.concatenate([past, rng.integers(2, 1000, own)]).astype(np.int32)
        rollouts.append(Rollout((Turn(tokens_T, -entropies_T, entropies_T, 0, num_replayed=len(past)),), success))
    return Group(request, np.zeros(2, np.int32), tuple(rollouts), "tokens")


class Step(NamedTuple):
    """One plan of the controller, and what the source's procedure says before it."""

    believed: dict[Node, float]
    counts: dict[Node, tuple[float, float]]
    source: Source
    chosen: list[Node]


def steps(controller: Pros, seed: int) -> Iterator[Step]:
    problems = problem_set(8)
    state, source = controller.init(problems), Source([problem.id for problem in problems])
    rng = np.random.default_rng(seed)
    for step in range(STEPS):
        plan = Plan(step, BATCH, N, member="pros")
        plan, state = controller.propose(plan, state, Stream(seed).at(step))
        roots = [(problem.id, ()) for problem in problems]
        children = [
            node_of(Request(problems[int(tree)], N, Origin.PREFIX, prefix_of(start)))
            for tree, start in zip(state.forest.tree_C, state.starts, strict=True)
        ]
        nodes, forest = [*roots, *children], state.forest
        counts = zip(forest.passed_M.tolist(), forest.tried_M.tolist(), strict=True)
        believed = dict(zip(nodes, forest.rate_M.tolist(), strict=True))
        chosen = [node_of(request) for request in plan.requests]
        yield Step(believed, dict(zip(nodes, counts, strict=True)), source, chosen)
        groups = [rolled_out(request, rng) for request in plan.requests]
        state = controller.observe(state, groups, step)
        source.learn(groups)


def check(controller: Pros, seed: int = 0) -> None:
    visits = Counter[Node]()
    for step, (believed, counts, source, chosen) in enumerate(steps(controller, seed)):
        assert counts.keys() == source.counts.keys(), f"step {step}"
        assert all(counts[node] == pytest.approx(source.counts[node]) for node in counts), f"step {step}"
        rates = source.rates()
        worst = max(abs(believed[node] - rates[node]) for node in rates)
        assert worst < SLACK, f"step {step}: a belief differs by {worst:.3f}"
        furthest = sorted(abs(rate - 0.5) for rate in rates.values())[BATCH - 1]
        assert len(set(chosen)) == BATCH, f"step {step}"
        assert all(abs(rates[node] - 0.5) < furthest + 2 * SLACK for node in chosen), f"step {step}: chosen from afar"
        visits.update(chosen)
    assert sum(count > 1 for node, count in visits.items() if node[1]) >= 3, "children come back"


def test_nodes_rates_and_choices_are_those_of_the_source():
    check(SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        replace(SOURCE, belief=replace(SOURCE.belief, forgetting=0.7)),
        replace(SOURCE, belief=replace(SOURCE.belief, bayes=replace(SOURCE.belief.bayes, sigma=1.4))),
        replace(SOURCE, selection="random"),
        replace(SOURCE, grandchildren=False),
    ],
    ids=["forgetting", "sigma", "selection", "grandchildren"],
)
def test_the_comparison_can_fail(other: Pros):
    with pytest.raises(AssertionError, match="step"):
        check(other)
