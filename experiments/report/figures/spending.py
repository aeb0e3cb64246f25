"""Figures of where rollouts and seconds went, and of what the learner reports."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from halfway.experiments.report.analysis.arm_summary import NOT_IN_A_STEP, WITHIN_ROLLOUT
from halfway.experiments.report.figures.series import Array, ragged_mean, response_lengths, smoothed_ratio
from halfway.experiments.report.figures.style import (
    INK,
    arm_colors,
    bars,
    flat,
    legend_above,
    panels,
    step_axis,
    thousands,
)
from halfway.experiments.report.records import Comparison, Run, outcome_rollouts

FATES = {
    "trained": "#009E73",
    "carried": "#56B4E9",
    "waiting": "#CC79A7",
    "zero_variance": "#9aa5b1",
    "surplus": "#E69F00",
    "lost": "#D55E00",
}
PARTS = {
    "rollout": "#0072B2",
    "update": "#E69F00",
    "sync": "#56B4E9",
    "propose": "#D55E00",
    "observe": "#CC79A7",
    "evaluate": "#9aa5b1",
    "checkpoint": "#cbd2d9",
}


def rollout_fates(comparison: Comparison) -> Figure | None:
    """What became of each arm's rollouts, and how many the skipped problems saved, as one bar per arm."""
    if not comparison.runs:
        return None
    figure, ax = bars(list(comparison.runs), "rollouts per run")
    used, skipped = set[str](), 0.0
    for i, runs in enumerate(comparison.runs.values()):
        fates, left = outcome_rollouts([group for run in runs for group in run.groups]), 0.0
        for fate, color in FATES.items():
            width = fates[fate] / len(runs)
            ax.barh(i, width, left=left, color=color, height=0.62, edgecolor="white", linewidth=0.8)
            if fates[fate] > 0.06 * fates.total():
                _inside(ax, left + width / 2, i, f"{fates[fate] / fates.total():.0%}", color)
            left += width
        used |= {fate for fate, count in fates.items() if count}
        saved = sum(len(run.skips) for run in runs) / len(runs) * _group_size(runs)
        ax.barh(i, saved, left=left, color="white", height=0.62, edgecolor="#9aa5b1", hatch="////", linewidth=0.8)
        skipped += saved
    thousands(ax)
    handles = [Patch(color=color, label=fate.replace("_", "-")) for fate, color in FATES.items() if fate in used]
    if skipped:
        label = "skipped before rollout (not generated)"
        handles.append(Patch(facecolor="white", edgecolor="#9aa5b1", hatch="////", label=label))
    legend_above(figure, handles=handles)
    return figure


def learner_metrics(comparison: Comparison) -> Figure | None:
    """Response length and up to seven of the learner's metrics over steps, in one panel each."""
    names = list(dict.fromkeys(name for run in comparison.all_runs for step in run.steps for name in step.learner))
    preferred = [name for word in ("entropy", "grad", "loss", "kl", "clip") for name in names if word in name]
    names = list(dict.fromkeys([*preferred, *names]))[:7]
    if not comparison.runs:
        return None
    count = len(names) + 1
    figure, axes = panels(count, count if count <= 4 else -(-count // 2), height=2.4)
    for name, ax in zip(["tokens per rollout", *names], flat(axes), strict=False):
        for arm, color in arm_colors(comparison).items():
            series = [
                response_lengths(run) if name == "tokens per rollout" else _metric(run, name)
                for run in comparison.runs[arm]
            ]
            mean = ragged_mean(series)
            ax.plot(mean, color=color, linewidth=0.7, alpha=0.3)
            ax.plot(smoothed_ratio(np.nan_to_num(mean), np.isfinite(mean).astype(float)), color=color, label=arm)
        ax.set_title(name.replace("_", " "))
        ax.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4))
        step_axis(ax)
    legend_above(figure, axes[0][0])
    return figure


def timing(comparison: Comparison) -> Figure | None:
    """Mean seconds per step by part of the training loop, as one bar per arm."""
    arms = comparison.runs
    if not arms:
        return None
    figure, ax = bars(list(arms), "mean seconds per step")
    seen = {part for runs in arms.values() for run in runs for step in run.steps for part in step.timing}
    parts = {**PARTS, **dict.fromkeys(sorted(seen - {*PARTS, *WITHIN_ROLLOUT}), "#52606d")}
    for i, runs in enumerate(arms.values()):
        steps, left = [step for run in runs for step in run.steps], 0.0
        for part, color in parts.items():
            width = sum(step.timing.get(part, 0.0) for step in steps) / len(steps)
            hatch = "////" if part in NOT_IN_A_STEP else None
            label = part if i == 0 and part in seen else None
            ax.barh(i, width, 0.62, left, color=color, edgecolor="white", hatch=hatch, linewidth=0.6, label=label)
            left += width
    legend_above(figure, ax)
    return figure


def _metric(run: Run, name: str) -> Array:
    values = [step.learner.get(name) for step in run.steps]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _group_size(runs: Sequence[Run]) -> float:
    sizes = [group.size for run in runs for group in run.groups if group.scored]
    return float(np.median(sizes)) if sizes else 0.0


def _inside(ax: Axes, x: float, y: float, text: str, background: str) -> None:
    dark = background in (FATES["zero_variance"], FATES["surplus"], FATES["carried"])
    ax.text(x, y, text, ha="center", va="center", color=INK if dark else "white", fontsize=9)
