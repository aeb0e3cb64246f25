"""Figures of groups over training: pass counts, zero-variance groups, and groups behind prefixes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.prefix import ParentCount
from halfway.experiments.report.analysis.starts import parent_counts
from halfway.experiments.report.figures.series import (
    child_series,
    reported_series,
    smoothed_ratio,
    smoothed_shares,
    summed_counts,
)
from halfway.experiments.report.figures.style import (
    MUTED,
    arm_colors,
    count_colors,
    flat,
    grid,
    legend_above,
    panels,
    percent_axis,
    step_axis,
)
from halfway.experiments.report.records import Comparison

# The origins of groups, and their names in titles.
KINDS = {"fresh": "fresh", "prefix": "behind a prefix", "generated": "generated"}


MOST_PROBLEMS = 60


def pass_counts(comparison: Comparison) -> Figure | None:
    """Shares of the pass counts k over steps as stacked areas, in one panel per arm and origin of the groups."""
    shown = [
        (arm, kind, counts)
        for arm, runs in comparison.runs.items()
        for kind in KINDS
        if (counts := summed_counts(runs, kind)) is not None
    ]
    if not shown:
        return None
    figure, axes = panels(len(shown), min(3, len(shown)), height=2.7, sharey=True)
    sizes = {counts.shape[1] for _, _, counts in shown}
    for (arm, kind, counts), ax in zip(shown, flat(axes), strict=False):
        shares = smoothed_shares(counts)
        colors = count_colors(counts.shape[1] - 1)
        ax.stackplot(np.arange(len(shares)), shares.T, colors=colors, edgecolor="white", linewidth=0.25)
        ax.set_title(f"{arm}: {KINDS[kind]}")
        ax.set_xlim(0, max(1, len(shares) - 1))
        step_axis(ax)
        ax.set_ylim(0, 1)
        ax.grid(False)
    for ax in [row[0] for row in axes]:
        ax.set_ylabel("share of groups")
    size = max(sizes) - 1
    handles = [Patch(color=color) for color in count_colors(size)]
    labels = [f"{k} of {size}" for k in range(size + 1)]
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", title="passed")
    return figure


def problem_map(comparison: Comparison) -> Figure | None:
    """The last pass count of each problem at each step in the first run of each arm; rows are the same in all panels.

    Of many problems `MOST_PROBLEMS` are shown, evenly spaced from the one that passed least to the one that passed
    most.
    """
    tried: dict[str, list[GroupRecord]] = {}
    for runs in comparison.runs.values():
        for group in runs[0].groups:
            if group.fresh and group.scored:
                tried.setdefault(group.problem, []).append(group)
    if len(tried) < 2:
        return None
    order = sorted(tried, key=lambda name: (np.mean([group.pass_rate for group in tried[name]]), name))
    chosen = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, MOST_PROBLEMS).astype(int))]
    size = max(group.size for groups in tried.values() for group in groups)
    figure, axes = panels(len(comparison.runs), min(3, len(comparison.runs)), height=3.4, sharey=True)
    for (arm, runs), ax in zip(comparison.runs.items(), flat(axes), strict=False):
        last_PT = np.full((len(chosen), runs[0].num_steps), np.nan)
        for group in runs[0].groups:
            if group.fresh and group.scored and group.problem in chosen:
                last_PT[chosen.index(group.problem), group.step :] = round(group.pass_rate * size)
        colors = ListedColormap(count_colors(size))
        ax.imshow(last_PT, aspect="auto", cmap=colors, vmin=-0.5, vmax=size + 0.5, interpolation="nearest")
        ax.set_title(arm)
        step_axis(ax)
        ax.set_yticks(range(len(chosen)), chosen)  # for `hover`
        ax.tick_params(left=False, labelleft=False)
        ax.grid(False)
    axes[0][0].set_ylabel(f"{len(chosen)} of {len(order)} problems")
    return figure


def zero_variance(comparison: Comparison) -> Figure | None:
    """Share of zero-variance groups over steps, one line per arm, in one panel per origin of the groups."""
    found = {group.origin for run in comparison.all_runs for group in run.groups if group.scored}
    kinds = [kind for kind in KINDS if kind in found]
    if not kinds:
        return None
    figure, axes = panels(len(kinds), max(2, len(kinds)), height=3.1, sharey=True)
    for kind, ax in zip(kinds, flat(axes), strict=False):
        for arm, color in arm_colors(comparison).items():
            counts = summed_counts(comparison.runs[arm], kind)
            if counts is None:
                continue
            zero_variance = counts[:, 0] + counts[:, -1]
            ax.plot(smoothed_ratio(zero_variance, counts.sum(axis=1)), color=color, label=arm)
        ax.set_title("groups behind a prefix" if kind == "prefix" else f"{kind} groups")
        step_axis(ax)
        ax.set_ylim(bottom=0)
        percent_axis(ax)
    axes[0][0].set_ylabel("share of zero-variance groups")
    legend_above(figure, axes[0][0])
    return figure


def prefix_control(comparison: Comparison) -> Figure | None:
    """Child pass rate, share of zero-variance children, and prefix ratio over steps, by the parents' pass count."""
    arms = {arm: found for arm, runs in comparison.runs.items() if (found := parent_counts(runs))}
    if not arms:
        return None
    figure, axes = grid(len(arms), 3, height=3.1)
    for (arm, parents), row in zip(arms.items(), axes, strict=True):
        runs = comparison.runs[arm]
        row[0].axhspan(0.4, 0.6, color="#009E73", alpha=0.09, linewidth=0)
        row[0].axhline(0.5, color="#009E73", linewidth=0.8)
        for parent, color in zip(parents, parent_colors(parents), strict=True):
            label = f"{parent.passed} of {parent.size}"
            totals, passed, zero_variance = child_series(runs, parent)
            row[0].plot(smoothed_ratio(passed, totals), color=color, label=label)
            row[1].plot(smoothed_ratio(zero_variance, totals), color=color)
            for run in runs:
                row[2].plot(*reported_series(run, "ratio", parent), color=color, alpha=0.75, linewidth=1.2)
        for ax, title in zip(row, (f"{arm}: child pass rate", "zero-variance children", "prefix ratio"), strict=True):
            ax.set(title=title, ylim=(0, 1))
            step_axis(ax)
        percent_axis(row[1])
        if not any(reported_series(run, "ratio", parent)[0] for run in runs for parent in parents):
            row[2].text(0.5, 0.5, "the controller reports none", ha="center", transform=row[2].transAxes, color=MUTED)
    legend_above(figure, axes[0][0], title="parent passed")
    return figure


def parent_colors(parents: Sequence[ParentCount]) -> list[str]:
    return [count_colors(size)[k] if 0 < k < size else MUTED for k, size in parents]
