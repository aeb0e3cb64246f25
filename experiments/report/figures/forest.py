"""Figures of contrasts and cost ratios as points with intervals, one panel per condition."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from halfway.experiments.report.analysis.equal_cost import ContrastRow
from halfway.experiments.report.analysis.pooled import PooledRatio
from halfway.experiments.report.analysis.savings import END, Savings
from halfway.experiments.report.analysis.summary import Summary
from halfway.experiments.report.figures.style import INK, MUTED, arm_colors, flat, grid
from halfway.experiments.report.records import Comparison
from halfway.experiments.report.statistics.intervals import FEW
from halfway.experiments.report.tables.costs import ratio_text

ROW_INCHES = 0.27
MOST_ROWS = 40  # all pairs of ten arms would be too many to read; naming contrasts reduces them
TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10)
ROUND_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MOST_TICKS = 6


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
    if found.low is not None and found.high is not None and row.seeds > FEW:
        ax.plot([found.low, found.high], [y, y], color=color, linewidth=2.2, solid_capstyle="butt")
    ax.plot([found.value], [y], "o", color=color, markersize=6, markerfacecolor=color if row.clear else "white")


def saving_forest(comparison: Comparison, summary: Summary) -> Figure | None:
    """What arms spend until they have a score, as multiples of what the baseline spends; None without any ratio."""
    panels = summary.savings
    goals = [goal for goal in (panels[0].goals if panels else ()) if any(_drawn(found, goal) for found in panels)]
    if not goals:
        return None
    colors = arm_colors(comparison)
    others = [row.arm for row in panels[0].rows if row.ratios]
    figure, axes = grid(len(goals), len(panels), height=0.9 + ROW_INCHES * len(others), sharey=True, sharex=True)
    for found, ax in zip(panels, axes[0], strict=True):
        ax.set_title(found.axis.label)
    for goal, line in zip(goals, axes, strict=True):
        for found, ax in zip(panels, line, strict=True):
            shown = [(row.ratios[goal], row.seeds) for row in found.rows if row.ratios]
            ratios = [ratio and PooledRatio(ratio.value) if seeds <= FEW else ratio for ratio, seeds in shown]
            _ratios(ax, ratios, [colors[arm] for arm in others])
        line[0].set_ylabel(f"to {summary.design.baseline}'s end" if goal == END else f"to {goal}")
        _names(line[0], others)
    _ticks(axes[0][0])
    for ax in axes[-1]:
        ax.set_xlabel(f"times the cost of {summary.design.baseline}")
    return figure


def _drawn(found: Savings, goal: str) -> bool:
    return any(row.ratios.get(goal) for row in found.rows)


def _ratios(ax: Axes, row: Sequence[PooledRatio | None], colors: Sequence[str]) -> None:
    """One ratio per arm; an arrowhead if its interval has no upper end, words if it is not a finite number above 0."""
    ax.set_xscale("log")
    ax.axvline(1, color=MUTED, linewidth=0.9)
    for y, (ratio, color) in enumerate(zip(row, colors, strict=True)):
        if ratio is None:
            continue
        if not ratio.value:
            text = ratio_text(ratio).rstrip("*")
            words = ax.text(0.5, y, text, ha="center", va="center", fontsize=8, color=MUTED, backgroundcolor="white")
            words.set_transform(ax.get_yaxis_transform())
            continue
        endless = ratio.p is not None and ratio.high is None
        ends = [ratio.low or ratio.value, ratio.high or ratio.value]
        ax.plot(ends, [y, y], color=color, linewidth=2.2, solid_capstyle="butt")
        inside = color if ratio.clear else "white"
        ax.plot([ratio.value], [y], ">" if endless else "o", color=color, markersize=6, markerfacecolor=inside)
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
