"""Measures what the belief of PROS costs: sweeps, mixing, one step in a large forest, and memory.

    python experiments/results/how_fast_is_it/pros.py [--trees 5000] [--children 8] [--sweeps 100] [--large 1000000]

Everything runs on one thread. The plain per-node loop and Pyro's NUTS are measured on small forests of the same kind
and scaled in proportion to the number of nodes, which flatters NUTS: its trajectories grow with the dimension.
Effective sample sizes are for the log-odds, the median over nodes. Exits with 1 if a limit is exceeded.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from halfway.controllers.beliefs.forest import Floats, Forest, Scales, grow, learn, nodes_of
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes, gibbs
from halfway.controllers.beliefs.logit_normal import Trees, sigmoid
from halfway.controllers.beliefs.polya_gamma import draw
from halfway.controllers.prefixes.reuse import Start
from halfway.controllers.pros import Pros, ProsState
from halfway.curriculum.plan import Plan
from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.streams import Stream
from halfway.experiments.scripts import script, script_parser

SWEEP_LIMIT, STEP_LIMIT, BYTES_LIMIT = 2.0, 0.3, 200
CHANGED, GROUPS, NUM_ROLLOUTS, PREFIX_TOKENS = 512, 512, 8, 64
LOOP_TREES, LOOP_SWEEPS = 25, 4
NUTS_TREES, NUTS_DRAWS, NUTS_WARMUP = 5, 100, 100


@script
def main() -> int:
    """Measure everything, print the tables, and compare with the limits; returns 1 if one is exceeded."""
    parser = script_parser(__doc__)
    parser.add_argument("--trees", type=int, default=5000)
    parser.add_argument("--children", type=int, default=8)
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--large", type=int, default=1_000_000, help="nodes of the large forest")
    arguments = parser.parse_args()
    console = Console(width=120)
    forest = scattered(arguments.trees, arguments.children)
    console.print(polya_gamma_table(forest))
    table, sweeping = sweep_table(forest, arguments.children, arguments.sweeps)
    console.print(table)
    console.print(mixing_table(arguments.trees, arguments.children, arguments.sweeps))
    table, stepping, size = step_table(arguments.large, arguments.children)
    console.print(table)
    return int(sweeping > SWEEP_LIMIT or stepping > STEP_LIMIT or size > BYTES_LIMIT)


def scattered(trees: int, children: int, scales: Scales | None = None, seed: int = 0) -> Forest:
    """A forest whose nodes have counts drawn from the model and discounted unevenly, so that none is an integer."""
    scales = scales or Scales(0.0, 1.5, 0.7)
    generator = np.random.default_rng(seed)
    forest = HierarchicalBayes(scales.mu, scales.tau, scales.sigma).init(trees)
    forest = grow(forest, np.repeat(np.arange(trees), children))  # type: ignore[arg-type]
    root_R = generator.normal(scales.mu, scales.tau, trees)
    logit_M = np.concatenate([root_R, generator.normal(root_R[forest.tree_C], scales.sigma)])
    weight_M = generator.uniform(0.5, 5.0, len(logit_M))
    passed_M = weight_M * generator.binomial(NUM_ROLLOUTS, sigmoid(logit_M))
    return replace(forest, passed_M=passed_M, tried_M=NUM_ROLLOUTS * weight_M)


def polya_gamma_table(forest: Forest) -> Table:
    """Milliseconds for one Polya-Gamma draw per node."""
    table = Table("Polya-Gamma draws", "ms", "ns a draw", title=f"{len(forest.tried_M):,} draws, fractional shapes")
    generator = np.random.default_rng(0)
    tilt_M = generator.normal(0, 1.5, len(forest.tried_M))
    for name in ("series", "library"):
        if name == "library" and find_spec("polyagamma") is None:
            table.add_row("library: not installed", "", "")
            continue
        seconds = best(lambda name=name: draw(forest.tried_M, tilt_M, generator, name))  # type: ignore[misc]
        table.add_row(name, f"{1e3 * seconds:.2f}", f"{1e9 * seconds / len(tilt_M):.0f}")
    return table


def sweep_table(forest: Forest, children: int, sweeps: int) -> tuple[Table, float]:
    """Seconds for all sweeps of all nodes; returns the time of the slower Gibbs form."""
    nodes = len(forest.tried_M)
    table = Table("belief", "seconds", "measured on", title=f"{nodes:,} nodes x {sweeps} sweeps, default options")
    slowest = 0.0
    stale = replace(forest, stale_R=np.ones(forest.num_trees, np.bool_))
    for form in ("collapsed", "plain"):
        bayes = HierarchicalBayes(inference=form, sweeps=sweeps, burn_in=0)
        seconds = best(lambda bayes=bayes: bayes.refresh(stale, 0, Stream(0)), 2)  # type: ignore[misc]
        slowest = max(slowest, seconds)
        table.add_row(f"Gibbs, {form}", f"{seconds:.2f}", "all")
    seconds = best(lambda: HierarchicalBayes(inference="fixed_point").refresh(stale, 0, Stream(0)), 2)
    table.add_row("fixed point, to convergence", f"{seconds:.2f}", "all")
    small = scattered(LOOP_TREES, children)
    seconds = best(lambda: per_node_loop(small, LOOP_SWEEPS), 1)
    scaled = seconds * nodes / len(small.tried_M) * sweeps / LOOP_SWEEPS
    table.add_row("plain per-node loop", f"{scaled:.0f}", f"{len(small.tried_M)} nodes x {LOOP_SWEEPS}, scaled")
    if find_spec("pyro") is not None:
        seconds, _ = nuts(children)
        measured = NUTS_TREES * (children + 1)
        scaled = seconds * nodes / measured * sweeps / (NUTS_DRAWS + NUTS_WARMUP)
        table.add_row("Pyro NUTS", f"{scaled:.0f}", f"{measured} nodes x {NUTS_DRAWS + NUTS_WARMUP}, scaled")
    return table, slowest


def per_node_loop(forest: Forest, sweeps: int) -> list[float]:
    """The plain sampler in its most obvious form, one node after another."""
    generator, psi = np.random.default_rng(0), [0.0] * len(forest.tried_M)
    scales, trees = Scales(0.0, 1.5, 0.7), forest.num_trees
    of_tree: list[list[int]] = [(trees + np.flatnonzero(forest.tree_C == t)).tolist() for t in range(trees)]
    passed, tried = forest.passed_M.tolist(), forest.tried_M.tolist()
    for _ in range(sweeps):
        for root, children in enumerate(of_tree):
            for node in [root, *children]:
                omega, kappa = one_draw(tried[node], psi[node], generator), passed[node] - tried[node] / 2
                if node == root:
                    precision = omega + scales.tau**-2 + len(children) * scales.sigma**-2
                    linear = kappa + scales.mu * scales.tau**-2 + sum(psi[c] for c in children) * scales.sigma**-2
                else:
                    precision, linear = omega + scales.sigma**-2, kappa + psi[root] * scales.sigma**-2
                psi[node] = linear / precision + generator.standard_normal() / math.sqrt(precision)
    return psi


def one_draw(shape: float, tilt: float, generator: np.random.Generator) -> float:
    """One Polya-Gamma variable, drawn by the library, which is fast for single draws, if it is installed."""
    try:
        from polyagamma import random_polyagamma
    except ImportError:
        return float(draw(np.asarray([shape]), np.asarray([tilt]), generator)[0])
    return float(random_polyagamma(shape, tilt, random_state=generator, disable_checks=True))


def nuts(children: int) -> tuple[float, Floats]:
    """Seconds of NUTS on a small forest, warm-up included, and its draws."""
    from halfway.controllers.beliefs.bayes_model import evidence_of, posterior

    evidence = evidence_of(scattered(NUTS_TREES, children), np.arange(NUTS_TREES))
    start = time.perf_counter()
    draws = posterior(evidence, Scales(0.0, 1.5, 0.7), NUTS_DRAWS, NUTS_WARMUP, seed=0)
    return time.perf_counter() - start, draws


def mixing_table(trees: int, children: int, sweeps: int) -> Table:
    """Effective sample size of both Gibbs forms, for close and for loose families, and of NUTS."""
    nodes, burn_in, kept = trees * (children + 1), 50, 5 * sweeps
    table = Table(
        "sampler", "sigma", "ESS roots", "ESS children", "seconds", "ESS a second", title=f"mixing, {kept} draws"
    )
    for sigma in (0.1, 0.7):
        scales = Scales(0.0, 1.5, sigma)
        forest = scattered(trees // 10, children, scales)
        all_nodes, place_C = nodes_of(forest, np.arange(forest.num_trees))
        part = Trees(place_C, forest.passed_M[all_nodes], forest.tried_M[all_nodes])
        for form in ("collapsed", "plain"):
            draws: list[Floats] = []
            start = time.perf_counter()
            run(part, scales, burn_in + kept, form, draws)
            # Scaled to all trees, which are independent, so that the same draws cost in proportion.
            seconds = (time.perf_counter() - start) * nodes / len(all_nodes)
            sizes = effective_sizes(np.stack(draws[burn_in:]))
            roots, others = np.median(sizes[: forest.num_trees]), np.median(sizes[forest.num_trees :])
            rate = np.median(sizes) / seconds
            table.add_row(
                f"Gibbs, {form}", f"{sigma}", f"{roots:.0f}", f"{others:.0f}", f"{seconds:.2f}", f"{rate:.1f}"
            )
    if find_spec("pyro") is not None:
        seconds, found = nuts(children)
        sizes, seconds = effective_sizes(found), seconds * nodes / found.shape[1]
        roots, others = np.median(sizes[:NUTS_TREES]), np.median(sizes[NUTS_TREES:])
        table.add_row(
            f"Pyro NUTS ({len(found)} draws)",
            "0.7",
            f"{roots:.0f}",
            f"{others:.0f}",
            f"{seconds:.0f}",
            f"{np.median(sizes) / seconds:.3f}",
        )
    return table


def run(trees: Trees, scales: Scales, sweeps: int, form: Any, draws: list[Floats]) -> None:
    """Run Gibbs sweeps and append every draw of the log-odds to `draws`."""
    start_M, generator = np.zeros(len(trees.tried_M)), np.random.default_rng(0)
    gibbs(trees, start_M, scales, sweeps, generator, lambda _, given, logit_M: draws.append(logit_M), form)


def effective_sizes(draws: Floats) -> Floats:
    """Effective sample size of each column: draws / (1 + 2 sum of autocorrelations up to the first negative pair)."""
    count = len(draws)
    centred = draws - draws.mean(axis=0)
    padded = np.fft.rfft(centred, 2 * count, axis=0)
    correlation = np.fft.irfft(np.abs(padded) ** 2, axis=0)[:count]
    correlation /= correlation[0]
    pairs = correlation[: count // 2 * 2].reshape(count // 2, 2, -1).sum(axis=1)
    positive = np.cumprod(pairs > 0, axis=0)
    return np.asarray(count / np.maximum(2 * (pairs * positive).sum(axis=0) - 1, 1 / count))


def step_table(nodes: int, children: int) -> tuple[Table, float, float]:
    """Measure steps of PROS after 512 nodes of a large forest have changed.

    Returns:
        the table, the median seconds of `propose`, and bytes per node.
    """
    trees = nodes // (children + 1)
    nothing: dict[str, float | str] = {}
    problems = ProblemSet([Problem(f"p{i}", "", "", features=nothing) for i in range(trees)])
    forest, generator = scattered(trees, children), np.random.default_rng(1)
    text = bytes(4 * PREFIX_TOKENS)
    controller = Pros(tree_children=None, total_children=None, belief=PassRateBelief())
    title = f"{len(forest.tried_M):,} nodes, {CHANGED} trees changed, {GROUPS} groups planned"
    table = Table("a step", "", title=title)
    forest = HierarchicalBayes(inference="fixed_point").refresh(forest, 0, Stream(0))
    packed = Start(_packed(text), PREFIX_TOKENS, 4, NUM_ROLLOUTS, 0)
    state = ProsState(problems, forest, (packed,) * forest.num_children)
    times = []
    for step in range(5):
        changed = generator.choice(len(forest.tried_M), CHANGED, replace=False).tolist()
        passed = generator.integers(0, NUM_ROLLOUTS + 1, CHANGED).tolist()
        state = replace(state, forest=learn(state.forest, changed, passed, [NUM_ROLLOUTS] * CHANGED, 0.9))
        start = time.perf_counter()
        plan, state = controller.propose(Plan(step, GROUPS, NUM_ROLLOUTS, member="pros"), state, Stream(0).at(step))
        times.append(time.perf_counter() - start)
        assert plan.missing == 0
    size = forest.num_bytes / len(forest.tried_M)
    record = sys.getsizeof(packed) + sys.getsizeof(packed.text) - len(text) + 8
    table.add_row("propose, median of 5 steps", f"{np.median(times):.3f} s")
    table.add_row("propose, slowest", f"{max(times):.3f} s")
    table.add_row("evidence and belief", f"{size:.1f} bytes per node")
    table.add_row("prefix of a child, its tokens aside", f"{record} bytes per child")
    return table, float(np.median(times)), size + record


def _packed(tokens: bytes) -> bytes:
    from halfway.controllers.prefixes.reuse import pack
    from halfway.curriculum.rollouts import Turn

    tokens_T = np.frombuffer(tokens, np.int32)
    return pack([Turn(tokens_T, np.zeros(0, np.float32), np.zeros(0, np.float32), 0)], "tokens")


def best(measured: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the fastest of some calls, after one that warms up."""
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        measured()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


if __name__ == "__main__":
    sys.exit(main())
