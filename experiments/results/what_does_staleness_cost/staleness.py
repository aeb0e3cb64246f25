"""Compares runs at equal rollouts with the same run that waits, prints the page's table, and draws it:

    python experiments/results/what_does_staleness_cost/staleness.py [runs/staleness]

With a folder of runs, their curves and what their updates recorded are written beside this script first.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from matplotlib import rc_context

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.analysis.pooled import Pooled, area_gain, areas, pool
from halfway.experiments.report.figures.colors import PALETTE
from halfway.experiments.report.figures.style import STYLE, grid, legend_above
from halfway.experiments.report.records import Run, load_comparison_records
from halfway.experiments.reproduction.run_curves import by_arm, curve_of, read_curves, write_curves
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
CURVES, UPDATES = FOLDER / "curves.jsonl.gz", FOLDER / "updates.json"
RECORDED = ("effective_sample_size", "engine_gap", "mismatch_bounded")


@script
def main() -> int:
    """Collect if there is something to collect, then compare, print and draw."""
    parser = script_parser(__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    if folder:
        collect(folder)
    runs_of = by_arm(read_curves(CURVES))
    pooled = pool([runs_of], ROLLOUTS)
    updates = msgspec.json.decode(UPDATES.read_bytes())
    print("| arm | runs | ends at | area | area beside waiting | effective samples | gap, nats | bounded |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for arm, runs in runs_of.items():
        print(row(pooled, arm, runs, updates[arm]))
    draw(pooled)
    return 0


def collect(folder: Path) -> None:
    """Write the finished runs of a comparison: their curves, and means over the second half of their updates."""
    found = load_comparison_records(folder).runs
    arms = {arm: finished for arm, runs in found.items() if (finished := [run for run in runs if run.finished])}
    write_curves(CURVES, [curve_of(run, "middle") for runs in arms.values() for run in runs])
    means = {arm: {name: late_mean(runs, name) for name in RECORDED} for arm, runs in arms.items()}
    write_text(UPDATES, msgspec.json.format(msgspec.json.encode(means), indent=1).decode() + "\n")


def late_mean(runs: Sequence[Run], name: str) -> float | None:
    """The mean of what the learner recorded, over the second half of each run; None if it recorded no such thing."""
    steps = [step for run in runs for step in run.steps[len(run.steps) // 2 :]]
    values = [value for step in steps if (value := step.learner.get(name)) is not None]
    return round(statistics.fmean(values), 4) if values else None


def waits(arm: str) -> str:
    """The arm that differs in nothing but staleness and its correction."""
    return next((name for name in ("frontier", "prefix_sampling") if arm.startswith(name)), "waiting")


def row(pooled: Pooled, arm: str, runs: Sequence[Run], updates: Mapping[str, float | None]) -> str:
    """One row of the table in Markdown."""
    horizon = float(pooled.ends_A.min())
    ends = [run.evaluations[-1].pass_at_1 for run in runs]
    spread = f" +- {statistics.stdev(ends):.3f}" if len(ends) > 1 else ""
    area = areas(pooled, horizon)[0][pooled.place(arm)]
    gain = "-"
    if waits(arm) != arm:
        found = area_gain(pooled, arm, waits(arm), horizon).estimate
        gain = f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    recorded = " | ".join("-" if (value := updates[name]) is None else f"{value:.3f}" for name in RECORDED)
    return f"| {arm} | {len(runs)} | {statistics.fmean(ends):.3f}{spread} | {area:.3f} | {gain} | {recorded} |"


def draw(pooled: Pooled) -> None:
    """Mean curves of the truncated and of the masked corrections."""
    with rc_context(STYLE):
        figure, axes = grid(1, 2, height=3.3, sharey=True)
        for kind, ax in zip(("truncated", "masked"), axes[0], strict=True):
            for arm, color in zip(("waiting", *(f"{kind}_{n}" for n in (1, 2, 4, 8))), PALETTE, strict=False):
                ax.plot(pooled.grid_G, pooled.means_AG[pooled.place(arm)], color=color, label=arm.split("_")[-1])
            ax.set_title(kind)
            ax.set_xlabel("rollouts")
        axes[0][0].set_ylabel("held-out pass@1")
        legend_above(figure, axes[0][0])
        figure.savefig(FOLDER / "staleness.png", dpi=100, format="png")


if __name__ == "__main__":
    sys.exit(main())
