"""Figures of held-out scores over training."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from halfway.experiments.report.analysis.axes import ROLLOUTS, SECONDS, STEPS, TOKENS, Axis
from halfway.experiments.report.analysis.curves import amounts, keep_evaluated, problems_told_apart, scores
from halfway.experiments.report.analysis.plan import read_design
from halfway.experiments.report.analysis.starts import rate, strata_names
from halfway.experiments.report.figures.style import (
    INK,
    MUTED,
    PALETTE,
    arm_colors,
    flat,
    legend_above,
    panels,
    shades,
    thousands,
)
from halfway.experiments.report.records import Comparison, Run
from halfway.experiments.report.statistics.crossed import crossed_mean
from halfway.experiments.report.statistics.intervals import FEW

CROWD = 20  # up to this many arms, every arm's line has its own colour and label
HIGHEST, LOWEST = 5, 4  # with more arms, how many of the best and the worst have one
BLACK, BEHIND = "#000000", "#c3cad3"


def learning_curves(comparison: Comparison) -> Figure | None:
    """Held-out pass@1 against every measure of cost, with bands over seeds, in one panel per measure."""
    if not any(len(run.evaluations) > 1 for run in comparison.all_runs):
        return None
    design = read_design(comparison)
    measures = [STEPS, ROLLOUTS, TOKENS, *design.costs, SECONDS]
    figure, axes = panels(len(measures), len(measures) if len(measures) <= 4 else 3, height=3.3, sharey=True)
    shared = comparison.budget[0] if comparison.budget else ""
    lines = lines_of(comparison, design.baseline)
    apart = problems_told_apart(comparison.all_runs, design.instances)
    alone = all(len(runs) == 1 for runs in comparison.runs.values())
    for axis, ax in zip(measures, flat(axes), strict=False):
        for arm, line in lines.items():
            _curve(ax, comparison.runs[arm], axis, line, apart, alone)
        for target in design.targets:
            ax.axhline(target, color=MUTED, linewidth=0.8, linestyle=":")
        ax.set_xlabel(f"{axis.label} (the shared budget)" if axis.name == shared else axis.label)
        thousands(ax)
    for row in axes:
        row[0].set_ylabel("held-out pass@1")
    legend_above(figure, axes[0][0])
    return figure


def strata_curves(comparison: Comparison) -> Figure | None:
    """Held-out pass rate of each stratum against rollouts, in one panel per arm."""
    names = strata_names(comparison.all_runs)
    arms = {arm: kept for arm, runs in comparison.runs.items() if (kept := [run for run in runs if run.evaluations])}
    if not names or not arms:
        return None
    columns = min(4, max(2, len(arms)))
    figure, axes = panels(len(arms), columns, height=2.7, sharey=True, sharex=True)
    colors = shades(("#f0c05a", "#e2703a", "#c22f55", "#7b2d8b", "#3f78c9", "#0b2233"), len(names))
    for (arm, runs), ax in zip(arms.items(), flat(axes), strict=False):
        for name, color in zip(names, colors, strict=True):
            x, y = stratum_series(runs, name)
            ax.plot(x, y, color=color, label=name or "no stratum", marker="o", markersize=2.5, linewidth=1.5)
        ax.set_title(arm)
        ax.set_ylim(0, 1)
    thousands(axes[0][0])  # the other panels share this axis
    for ax in flat(axes)[len(arms) - columns : len(arms)] if len(arms) > columns else axes[0]:
        ax.set_xlabel("rollouts")
        ax.tick_params(labelbottom=True)  # the lowest panel of each column, which need not be in the last row
    for row in axes:
        row[0].set_ylabel("held-out pass rate")
    legend_above(figure, axes[0][0], title="stratum")
    return figure


def stratum_series(runs: Sequence[Run], stratum: str) -> tuple[list[float], list[float]]:
    """Mean rollouts and mean pass rate over seeds, at each evaluation that all runs have reached."""
    rows = list(zip(*(run.evaluations for run in runs), strict=False))
    means = [[found for one in row if (found := rate(one, stratum)) is not None] for row in rows]
    known = [(fmean(one.rollouts for one in row), fmean(mean)) for row, mean in zip(rows, means, strict=True) if mean]
    return [x for x, _ in known], [y for _, y in known]


class Line(NamedTuple):
    """How an arm's curve is drawn; a curve without a label is a thin line behind the others."""

    label: str
    color: str
    style: str
    band: bool = True


def lines_of(comparison: Comparison, baseline: str | None) -> dict[str, Line]:
    """How each arm's curve is drawn, in drawing order.

    With more than `CROWD` arms, only the baseline and the best and worst arms have colours, and come last, on top.
    """
    if len(comparison.runs) <= CROWD:
        # Arms beyond the palette's length repeat its colours with dashed lines.
        return {
            arm: Line(arm, color, "-" if i < len(PALETTE) else "--")
            for i, (arm, color) in enumerate(arm_colors(comparison).items())
        }
    ranked = sorted(comparison.runs, key=lambda arm: -_last(comparison.runs[arm]))
    named = dict.fromkeys([*ranked[:HIGHEST], *ranked[-LOWEST:], *([baseline] if baseline else [])])
    behind = {arm: Line("", BEHIND, "-") for arm in comparison.runs if arm not in named}
    others = [arm for arm in named if arm != baseline]
    colors = dict(zip(others, (color for color in PALETTE if color != BLACK), strict=False))
    return behind | {
        arm: Line(arm, colors[arm], "-", band=False) if arm in colors else Line(arm, INK, "-") for arm in named
    }


def _last(runs: Sequence[Run]) -> float:
    return fmean([run.evaluations[-1].pass_at_1 for run in runs if run.evaluations] or [0.0])


def _curve(ax: Axes, runs: Sequence[Run], axis: Axis, line: Line, apart: bool, alone: bool) -> None:
    runs = keep_evaluated(runs)
    points = min((len(run.evaluations) for run in runs), default=0)
    if points == 0:
        return
    x = np.mean([amounts(run, axis)[:points] for run in runs], axis=0)
    curves = np.stack([scores(run, apart)[:points] for run in runs], axis=1)
    estimates = [crossed_mean(table_SP).estimate.as_rate for table_SP in curves]
    y = [estimate.value for estimate in estimates]
    if not line.label:
        ax.plot(x, y, line.style, color=line.color, linewidth=0.9)
        return
    ax.plot(x, y, line.style, color=line.color, label=line.label, marker="o", markersize=3.5)
    if line.band and 1 < len(runs) <= FEW:
        for run in runs:
            heights = [each.pass_at_1 for each in run.evaluations]
            ax.plot(amounts(run, axis), heights, ".-", color=line.color, linewidth=0.6, markersize=3, alpha=0.6)
    elif line.band and (len(runs) > FEW or alone) and all(estimate.low is not None for estimate in estimates):
        low, high = ([getattr(estimate, end) for estimate in estimates] for end in ("low", "high"))
        ax.fill_between(x, low, high, color=line.color, alpha=0.13, linewidth=0)
