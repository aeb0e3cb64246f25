"""Writes verdict.json and a picture per kind of data from the committed curves and the plan:

    python experiments/results/when_does_it_pay/verdict.py

`make reproduction` then writes the tables. `--page FOLDER` is for another page than this.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from matplotlib import rc_context

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.analysis.pooled import by_instance, pool
from halfway.experiments.report.figures.colors import PALETTE
from halfway.experiments.report.figures.style import STYLE, grid, legend_above, thousands
from halfway.experiments.report.records import Run
from halfway.experiments.reproduction.run_curves import read_curves
from halfway.experiments.results.when_does_it_pay.verdict_numbers import Verdict, compared, judge
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
GREYS = ("#000000", "#777777", "#bbbbbb")
"""Of the plain recipes that are best along some axis, the one along rollouts first."""
DRAWN = 4
"""How many arms beside them have a line: those with the largest areas along rollouts without extra information."""


@script
def main() -> int:
    """Judge, write and draw."""
    parser = script_parser(__doc__)
    parser.add_argument("--page", type=Path, default=FOLDER, help="folder of the plan, the curves and the page")
    page = parser.parse_args().page
    plan = yaml_bases.parse(page / "plan.yaml")
    files = {regime: page / "curves" / f"{regime}.jsonl.gz" for regime in plan["regimes"]}
    curves = {regime: read_curves(path) for regime, path in files.items() if path.exists()}
    verdict = judge(curves, plan)
    text = msgspec.json.format(msgspec.json.encode(rounded(msgspec.to_builtins(verdict))), indent=1)
    write_text(page / "verdict.json", text.decode() + "\n")
    for regime in verdict.regimes:
        _, runs_of = compared(curves[regime], plan)
        draw(page / f"verdict_{regime}.png", verdict, regime, runs_of, plan["instances"])
    return 0


def rounded(value: object) -> object:
    """The value with its numbers rounded to four decimals, learning rates excepted."""
    if isinstance(value, dict):
        return {key: each if key == "rates" else rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def draw(path: Path, verdict: Verdict, regime: str, runs_of: Mapping[str, Sequence[Run]], instances: int) -> None:
    """Score against each cost: mean curves with 95 % bands; the best of the arms with extra information is dashed."""
    found = verdict.regimes[regime].axes[ROLLOUTS.name]
    plain = dict.fromkeys(verdict.regimes[regime].baselines.values())
    others = sorted((arm for arm in found if arm not in plain), key=lambda arm: -found[arm].area)
    only_outcomes = [arm for arm in others if arm not in verdict.extra_information]
    informed = [arm for arm in others if arm in verdict.extra_information]
    shown = {arm: runs_of[arm] for arm in (*plain, *only_outcomes[:DRAWN], *informed[:1])}
    colors = (*GREYS[: len(plain)], *PALETTE)
    with rc_context(STYLE):
        figure, axes = grid(1, len(verdict.prices), height=3.3, sharey=True)
        for axis, ax in zip(verdict.prices, axes[0], strict=True):
            pooled = pool(by_instance(shown, instances), axis)
            bands = np.percentile(pooled.draws_DAG, [2.5, 97.5], axis=0)
            for place, (arm, color) in enumerate(zip(pooled.arms, colors, strict=False)):
                inside = pooled.grid_G <= pooled.ends_A[place]
                x = pooled.grid_G[inside]
                label, style = (f"{arm} (extra information)", "--") if arm in informed else (arm, "-")
                ax.plot(x, pooled.means_AG[place, inside], style, color=color, label=label)
                ax.fill_between(x, *(band[place, inside] for band in bands), color=color, alpha=0.1, linewidth=0)
            ax.set_xlabel(axis.label)
            thousands(ax)
        axes[0][0].set_ylabel("held-out pass@1")
        legend_above(figure, axes[0][0])
        figure.savefig(path, dpi=100, format="png")


if __name__ == "__main__":
    sys.exit(main())
