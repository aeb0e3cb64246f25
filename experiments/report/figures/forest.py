"""Figures of contrasts and cost ratios as points with intervals, one panel per condition."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from halfway.experiments.report.analysis.contrasts import ContrastRow
from halfway.experiments.report.analysis.reach import Reach, Spent, reach_axes
from halfway.experiments.report.figures.style import INK, MUTED, arm_colors, flat, grid
from halfway.experiments.report.records import Comparison
from halfway.experiments.report.summary import Summary

ROW_INCHES = 0.27
MOST_ROWS = 40  # all pairs of ten arms would be too many to read; naming contrasts reduces them
TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10)
ROUND_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MOST_TICKS = 6
MARKERS = {"": "o", "at least": ">", "at most": "<"}


def contrast_forest(comparison: Comparison, summary: Summary) -> Figure | None:
    """Differences in pass@1 where all arms have spent equally; markers are filled if clear after Holm's adjustment.

    None without contrasts, or with more than `MOST_ROWS` of them.
    """
    conditions = [matched for matched in summary.matched if matched.contrasts]
    rows = len(conditions[0].contrasts) if conditions else 0
    if not 0 < rows <= MOST_ROWS:
        return None
    figure, axes = grid(1, len(conditions), height=1.1 + ROW_INCHES * rows, sharey=True, sharex=True)
    colors = arm_colors(comparison)
    for matched, ax in zip(conditions, flat(axes), strict=True):
        for y, row in enumerate(matched.contrasts):
            _difference(ax, y, row, colors[row.arm])
        ax.axvline(0, color=MUTED, linewidth=0.9)
        ax.set_title(f"equal {matched.axis.label.removeprefix('generated ')}" + (" *" if matched.headline else ""))
        ax.set_xlabel("difference in pass@1")
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.grid(axis="y", visible=False)
    _names(axes[0][0], [f"{row.arm} vs {row.reference}" for row in conditions[0].contrasts])
    return figure


def _difference(ax: Axes, y: float, row: ContrastRow, color: str) -> None:
    found = row.difference
    if found.low is not None and found.high is not None:
        ax.plot([found.low, found.high], [y, y], color=color, linewidth=2.2, solid_capstyle="butt")
    ax.plot([found.value], [y], "o", color=color, markersize=6, markerfacecolor=color if row.clear else "white")


def reach_forest(comparison: Comparison, summary: Summary) -> Figure | None:
    """The arms' costs to reach each target, relative to the baseline's; None without any ratio."""
    reaches = [reach for reach in summary.reach if any(s.ratio for row in reach.rows for s in row.spent.values())]
    if not reaches:
        return None
    axes_of_cost = [axis for axis in reach_axes(summary.design) if axis.name != "seconds"]
    others = [row.arm for row in reaches[0].rows if row.arm != summary.design.baseline]
    colors = arm_colors(comparison)
    height = 0.9 + ROW_INCHES * len(others)
    figure, axes = grid(len(reaches), len(axes_of_cost), height=height, sharey=True, sharex=True)
    for axis, ax in zip(axes_of_cost, axes[0], strict=True):
        ax.set_title(axis.label)
    for reach, line in zip(reaches, axes, strict=True):
        spent_of = {row.arm: row.spent for row in reach.rows}
        for axis, ax in zip(axes_of_cost, line, strict=True):
            ratios(ax, [spent_of[arm][axis.name] for arm in others], [colors[arm] for arm in others])
        line[0].set_ylabel(f"to {_goal(reach)}")
        _names(line[0], others)
    _ticks(axes[0][0])
    for ax in axes[-1]:
        ax.set_xlabel(f"times the cost of {summary.design.baseline}")
    return figure


def _goal(reach: Reach) -> str:
    return f"{reach.baseline}'s end" if reach.kind == "baseline" else f"{reach.target:.3g}"


def ratios(ax: Axes, row: Sequence[Spent], colors: Sequence[str]) -> None:
    """Draw what arms spent as multiples of the baseline's cost, one row per arm."""
    ax.set_xscale("log")
    ax.axvline(1, color=MUTED, linewidth=0.9)
    for y, (spent, color) in enumerate(zip(row, colors, strict=True)):
        if spent.ratio is None:
            text = "not reached" if spent.bound and not spent.at_start else ""
            ax.text(1, y, text, ha="center", va="center", fontsize=8, color=MUTED, backgroundcolor="white")
            continue
        found = spent.ratio
        ends = [found.value if end is None else end for end in (found.low, found.high)]
        ax.plot(ends, [y, y], color=color, linewidth=2.2, solid_capstyle="butt")
        marker, inside = MARKERS[spent.ratio_bound], color if spent.clear else "white"
        ax.plot([found.value], [y], marker, color=color, markersize=6, markerfacecolor=inside)
    ax.grid(axis="y", visible=False)


def _ticks(ax: Axes) -> None:
    """Set round ticks on a logarithmic axis, and widen it if needed so that it has some."""
    low, high = ax.get_xlim()
    low, high = min(low, 0.78), max(high, 1.28)
    shown = [tick for tick in TICKS if low <= tick <= high]
    ax.set_xlim(low, high)
    ax.set_xticks(shown if len(shown) <= MOST_TICKS else [tick for tick in shown if tick in ROUND_TICKS])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def _names(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names, color=INK)
    ax.set_ylim(len(names) - 0.4, -0.6)
