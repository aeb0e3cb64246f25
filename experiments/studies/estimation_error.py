"""Measures the error of PROS's beliefs over a run: believed against freshly measured pass rates.

    python -m halfway.experiments.studies.estimation_error RUN [RUN ...] [--nodes 48] [--rollouts 64] [--out FOLDER]

At each checkpoint of each run (keep them all with `checkpoint.keep: 100`), some problems and some children in the pool
get new rollouts under the checkpoint's policy, which no belief sees. All beliefs are given the same evidence, the run's
up to that point, so they differ only in what they make of it. (Source: PROS, the figure of the estimation error.)

Equally many nodes are drawn from each of four kinds: problems and children, tried or not. A rate measured from n
rollouts is itself uncertain; `noise` is the error that a belief equal to the true rates would have.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track

from halfway.controllers.beliefs.forest import Floats, Forest, Positions
from halfway.controllers.beliefs.forest_beliefs import DiscountedBeta, LastRate
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes
from halfway.controllers.laws.selection import tree_of
from halfway.controllers.prefixes.reuse import prefix_of
from halfway.controllers.pros import Pros, ProsState, tag
from halfway.curriculum.groups import Request
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.report.statistics.intervals import over_seeds
from halfway.experiments.report.tables.text import TextTable, interval
from halfway.experiments.scripts import script, script_parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from halfway.trainers.loop.training import Training

KINDS = ("problems, tried", "problems, not tried", "children, tried", "children, not tried")
SHIFT = 0.7
NOISE = "noise"
PARENT = "its parent alone"


@dataclass(frozen=True)
class Evidence:
    """The evidence about the forest's nodes at a checkpoint.

    Attributes:
        forest: the forest, with all evidence up to the checkpoint.
        last_passed_M, last_tried_M: passes and rollouts of each node's latest group; 0 without a group.
    """

    forest: Forest
    last_passed_M: Floats
    last_tried_M: Floats


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Mean absolute error of a belief over the nodes of one kind, at one checkpoint of one run."""

    run: str
    step: int
    kind: str
    belief: str
    nodes: int
    error: float


@script
def main() -> int:
    """Measure every checkpoint, print the table, and write the table, its numbers and the figure."""
    parser = script_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs with the controller pros")
    parser.add_argument("--nodes", type=int, default=48, help="nodes of each kind at each checkpoint")
    parser.add_argument("--rollouts", type=int, default=64, help="fresh rollouts per node")
    parser.add_argument("--out", type=Path, default=Path("runs/estimation_error"))
    arguments = parser.parse_args()
    rows = [row for run in arguments.runs for row in measure(run, arguments.nodes, arguments.rollouts)]
    table = error_table(rows, arguments.nodes, arguments.rollouts)
    Console().print(table.rich())
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "estimation_error.md", table.markdown())
    plain = [{name: getattr(row, name) for name in ErrorRow.__slots__} for row in rows]
    write_text(arguments.out / "estimation_error.json", json.dumps(plain, indent=1) + "\n")
    error_figure(rows).savefig(arguments.out / "estimation_error.png", dpi=110)
    print(f"written to {arguments.out}")
    return 0


def measure(folder: Path, nodes: int, rollouts: int) -> list[ErrorRow]:
    """The errors at all checkpoints of one run.

    Args:
        nodes: how many nodes of each kind to measure at each checkpoint, if there are so many.
        rollouts: new rollouts per node.

    Raises:
        UserError: if the run has no checkpoints, or no PROS with the hierarchical belief.
    """
    config = load_run_config(folder / "config.yaml")
    pros = pros_of(config, folder)
    from halfway.experiments.running.build import build_run
    from halfway.trainers.loop.checkpoint import Checkpoints

    rows: list[ErrorRow] = []
    kept = Checkpoints(folder / "checkpoints", config.checkpoint)
    if not kept.steps():
        raise UserError(f"{folder}: no checkpoints; train it first, with checkpoint.keep=100")
    with TemporaryDirectory() as scratch:
        training = build_run(config, Path(scratch))
        for step in track(kept.steps(), description=str(folder)):
            state = load(training, kept.path(step), pros)
            stream = Stream(config.seed).at("estimation error", step)
            chosen = sample_nodes(state.forest, nodes, stream)
            measured = roll_out(training, state, np.concatenate(list(chosen.values())), rollouts, stream)
            believed = believe(evidence(state, folder / "decisions.jsonl", step), pros, step, stream)
            rows += [ErrorRow(folder.as_posix(), step, *rest) for rest in errors(chosen, measured, believed, rollouts)]
    return rows


def pros_of(config: RunConfig, folder: Path) -> Pros:
    """The PROS in a run's chain; raises UserError if there is none whose belief is hierarchical."""
    for _, member in config.members():
        if isinstance(member, Pros) and member.belief.kind == "hierarchical":
            return member
    raise UserError(f"controllers: {folder} has no pros with belief.kind=hierarchical; give another run")


def load(training: "Training", checkpoint: Path, pros: Pros) -> ProsState:
    """Load a checkpoint's session and policy, sync the policy to the engine, and return PROS's state."""
    training.session.load_state_dict(json.loads((checkpoint / "loop.json").read_text())["session"])
    states = training.session.state
    training.learner.load(checkpoint)
    training.sync()
    [state] = [state for state in states.values() if isinstance(state, ProsState)]
    return state


def evidence(state: ProsState, decisions: Path, step: int) -> Evidence:
    """The forest of a checkpoint, and each node's latest group before it, from the decision log."""
    forest = state.forest
    names = {(state.problems[tree_of(forest, node)].id, label): node for node, label in labels(state)}
    passed_M, tried_M = np.zeros(len(forest.rate_M)), np.zeros(len(forest.rate_M))
    for line in decisions.read_text().splitlines():
        record = json.loads(line)
        if record["step"] >= step or record["outcome"] == "skipped" or not record["n"]:
            continue
        action = " ".join(action for _, action in record["decisions"])
        label = action.split("#")[1][:8] if record["origin"] == "prefix" and "#" in action else ""
        node = names.get((record["problem"], label))
        if node is not None:
            passed_M[node], tried_M[node] = record["k"], record["n"]
    return Evidence(forest, passed_M, tried_M)


def labels(state: ProsState) -> Iterator[tuple[int, str]]:
    """Every node with the label by which the decision log tells it from other nodes of its problem; "" for problems."""
    first = state.forest.num_trees
    yield from ((node, "") for node in range(first))
    yield from ((first + i, tag(start.text)) for i, start in enumerate(state.starts))


def sample_nodes(forest: Forest, size: int, stream: Stream) -> dict[str, Positions]:
    """Draw at most `size` nodes of each kind, by kind."""
    is_root_M = np.arange(len(forest.rate_M)) < forest.num_trees
    tried_M = forest.tried_M > 0
    generator = stream.at("nodes").generator()
    chosen = {}
    for kind, mask_M in zip(
        KINDS, (is_root_M & tried_M, is_root_M & ~tried_M, ~is_root_M & tried_M, ~is_root_M & ~tried_M), strict=True
    ):
        nodes = np.flatnonzero(mask_M)
        chosen[kind] = np.sort(generator.permutation(nodes)[:size])
    return chosen


def roll_out(
    training: "Training", state: ProsState, nodes: Positions, rollouts: int, stream: Stream
) -> dict[int, float]:
    """The pass rate of each node over new rollouts, by node; nodes whose rollouts were all lost are left out."""
    first = state.forest.num_trees
    requests = []
    for node in nodes.tolist():
        problem = state.problems[tree_of(state.forest, node)]
        if node < first:
            requests.append(Request(problem, rollouts))
        else:
            requests.append(Request(problem, rollouts, Origin.PREFIX, prefix_of(state.starts[node - first])))
    groups = training.rollouts.run(requests, stream.at("rollout"))
    return {node: group.pass_rate for node, group in zip(nodes.tolist(), groups, strict=True) if group.size}


def believe(known: Evidence, pros: Pros, step: int, stream: Stream) -> dict[str, Floats]:
    """The pass rates that each belief gives to all nodes, (nodes,), by the belief's name."""
    forest = replace(known.forest, stale_R=np.ones_like(known.forest.stale_R))
    last = replace(forest, passed_M=known.last_passed_M, tried_M=known.last_tried_M)
    hierarchical = pros.belief.bayes
    rate_M = refreshed(hierarchical, forest, step, stream)
    parents_M = np.concatenate([rate_M[: forest.num_trees], rate_M[forest.tree_C]])
    beliefs = {
        "hierarchical": rate_M,
        PARENT: parents_M,
        "Beta": refreshed(DiscountedBeta(), forest, step, stream),
        "last rate": refreshed(LastRate(), last, step, stream),
    }
    if forest.scales is not None and forest.scales.shift == 0:
        shifted = replace(forest, scales=replace(forest.scales, shift=SHIFT))
        beliefs[f"hierarchical, shift {SHIFT}"] = refreshed(hierarchical, shifted, step, stream)
    return beliefs


def refreshed(
    estimator: HierarchicalBayes | DiscountedBeta | LastRate, forest: Forest, step: int, stream: Stream
) -> Floats:
    """The pass rates that an estimator derives from the evidence in a forest, (nodes,)."""
    return estimator.refresh(forest, step, stream.at("belief")).rate_M


def errors(
    chosen: Mapping[str, Positions], measured: Mapping[int, float], believed: Mapping[str, Floats], rollouts: int
) -> Iterator[tuple[str, str, int, float]]:
    """Yield (kind, belief, number of nodes, mean absolute error), with the measurement's own error as `noise`.

    On average, a binomial proportion from n trials is about sqrt(2 p (1 - p) / (pi n)) away from p. The true p of a
    node with k passes is unknown; (k + 1/2) / (n + 1) stands in for it. Using k / n would give an error of zero where
    all or none passed; this estimate is rather too large there (at p = .01 and n = 48 it is on average 1.2 times the
    true error, while k / n gives .6 times).
    """
    for kind, nodes in chosen.items():
        known = [node for node in nodes.tolist() if node in measured]
        if not known:
            continue
        truth = np.asarray([measured[node] for node in known])
        for belief, rate_M in believed.items():
            yield kind, belief, len(known), float(np.abs(rate_M[known] - truth).mean())
        assumed = (truth * rollouts + 0.5) / (rollouts + 1)
        yield kind, NOISE, len(known), float(np.sqrt(2 * assumed * (1 - assumed) / (np.pi * rollouts)).mean())


def error_table(rows: Sequence[ErrorRow], nodes: int, rollouts: int) -> TextTable:
    """Errors averaged over a run's checkpoints, then over runs: one row per belief, one column per kind of nodes."""
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    beliefs = list(dict.fromkeys(row.belief for row in rows))
    cells = []
    for belief in beliefs:
        texts = [belief]
        for kind in kinds:
            runs: dict[str, list[float]] = defaultdict(list)
            for row in rows:
                if (row.kind, row.belief) == (kind, belief):
                    runs[row.run].append(row.error)
            texts.append(interval(over_seeds([float(np.mean(found)) for found in runs.values()])))
        cells.append(tuple(texts))
    return TextTable(
        "Mean absolute error of believed pass rates",
        ("belief", *kinds),
        tuple(cells),
        f"Against {rollouts} fresh rollouts per node, up to {nodes} nodes of a kind at each checkpoint; means over "
        f"{len({row.step for row in rows})} checkpoints, with 95 % t intervals over {len({row.run for row in rows})} "
        f"runs. `{NOISE}`: what the truth itself would be charged with.",
    )


def error_figure(rows: Sequence[ErrorRow]) -> "Figure":
    """The error of each belief over training, in one panel per kind of nodes."""
    import matplotlib.pyplot as plt

    from halfway.experiments.report.figures.style import MUTED, PALETTE, STYLE

    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    beliefs = list(dict.fromkeys(row.belief for row in rows))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(kinds), figsize=(3.4 * len(kinds), 3.2), sharey=True, squeeze=False)
        for kind, ax in zip(kinds, axes[0], strict=True):
            for i, belief in enumerate(beliefs):
                color = MUTED if belief == NOISE else PALETTE[i]
                line = {NOISE: ":", PARENT: "--"}.get(belief, "-")  # dashed, as it often covers another curve
                ax.plot(*_curve(rows, kind, belief), label=belief, color=color, linestyle=line)
            ax.set_title(kind)
            ax.set_xlabel("step")
        axes[0][0].set_ylim(bottom=0)  # after all curves, since it ends automatic limits
        axes[0][0].set_ylabel("mean absolute error")
        handles, names = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncol=len(names))
        figure.set_layout_engine("constrained")
    return figure


def _curve(rows: Sequence[ErrorRow], kind: str, belief: str) -> tuple[list[int], list[float]]:
    """The steps, and the mean error over runs at each step."""
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (row.kind, row.belief) == (kind, belief):
            found[row.step].append(row.error)
    steps = sorted(found)
    return steps, [float(np.mean(found[step])) for step in steps]


if __name__ == "__main__":
    sys.exit(main())
