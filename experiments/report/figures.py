"""The pictures of a report: functions of a comparison that return a matplotlib figure, or None without data.

They ask for a comparison whose runs have finished a step (`Comparison.started`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from halfway.experiments.report.prefix_metrics import Bucket, bucket_metrics
from halfway.experiments.report.records import BAND, Comparison, Run
from halfway.experiments.report.statistics.intervals import over_seeds
from halfway.experiments.report.summary import NOT_IN_A_STEP, summarize_arm

Array = NDArray[np.float64]
# Okabe and Ito's palette: told apart with every common form of colour blindness. Its yellow is too pale for lines. The
# last two are for comparisons of many arms.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31", "#882255", "#999933")
PAGE_WIDTH = 12.5
INK, MUTED, GRID = "#1f2933", "#66717e", "#e4e7eb"
FATES = {"trained": "#009E73", "carried": "#56B4E9", "degenerate": "#9aa5b1", "surplus": "#E69F00", "lost": "#D55E00"}
PARTS = {
    "rollout": "#0072B2",
    "update": "#E69F00",
    "sync": "#56B4E9",
    "propose": "#D55E00",
    "observe": "#CC79A7",
    "evaluate": "#9aa5b1",
    "checkpoint": "#cbd2d9",
}
# Origins of groups, and what they are called.
KINDS = {"fresh": "fresh", "prefix": "behind a prefix", "generated": "generated"}
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#9aa5b1",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "axes.titlecolor": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "halfway",
}


def arm_colors(comparison: Comparison) -> dict[str, str]:
    """One colour an arm, the same in every picture."""
    return {arm: PALETTE[i % len(PALETTE)] for i, arm in enumerate(comparison.runs)}


def learning_curves(comparison: Comparison) -> Figure | None:
    """Held-out pass@1 against four costs, with bands over seeds."""
    if not any(len(run.evaluations) > 1 for run in comparison.all_runs):
        return None
    units = {"rollouts": "rollouts", "tokens": "generated tokens", "step": "learner steps", "seconds": "seconds"}
    figure, axes = _grid(1, 4, height=3.3, sharey=True)
    shared = comparison.budget[0].removesuffix("s") if comparison.budget else ""
    for (unit, label), ax in zip(units.items(), flat(axes), strict=True):
        for arm, color in arm_colors(comparison).items():
            _curve(ax, comparison.runs[arm], unit, arm, color)
        ax.set_xlabel(f"{label} (the shared budget)" if unit.removesuffix("s") == shared else label)
        _thousands(ax)
    axes[0][0].set_ylabel("held-out pass@1")
    _legend_above(figure, axes[0][0])
    return figure


def _curve(ax: Axes, runs: Sequence[Run], unit: str, arm: str, color: str) -> None:
    runs = [run for run in runs if len(run.evaluations) > 1]
    points = min((len(run.evaluations) for run in runs), default=0)
    if points == 0:
        return
    rows = [[run.evaluations[i] for run in runs] for i in range(points)]
    x = [float(np.mean([getattr(evaluation, unit) for evaluation in row])) for row in rows]
    estimates = [over_seeds([evaluation.pass_at_1 for evaluation in row]) for row in rows]
    ax.plot(x, [estimate.value for estimate in estimates], color=color, label=arm, marker="o", markersize=3.5)
    if len(runs) > 1:
        low, high = [e.low or 0.0 for e in estimates], [e.high or 0.0 for e in estimates]
    else:
        margin = [1.96 * row[0].stderr for row in rows]
        low = [e.value - m for e, m in zip(estimates, margin, strict=True)]
        high = [e.value + m for e, m in zip(estimates, margin, strict=True)]
    ax.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)


def pass_counts(comparison: Comparison) -> Figure | None:
    """Pass-count histogram over time: an area for each k, fresh, prefixed and generated groups apart."""
    panels = [
        (arm, kind, counts)
        for arm, runs in comparison.runs.items()
        for kind in KINDS
        if (counts := summed_counts(runs, kind)) is not None
    ]
    if not panels:
        return None
    columns = min(3, len(panels))
    figure, axes = _grid(-(-len(panels) // columns), columns, height=2.7, sharey=True)
    for ax in flat(axes)[len(panels) :]:
        ax.set_axis_off()
    sizes = {counts.shape[1] for _, _, counts in panels}
    for (arm, kind, counts), ax in zip(panels, flat(axes), strict=False):
        shares = smoothed_shares(counts)
        colors = count_colors(counts.shape[1] - 1)
        ax.stackplot(np.arange(len(shares)), shares.T, colors=colors, edgecolor="white", linewidth=0.25)
        ax.set_title(f"{arm}: {KINDS[kind]}")
        ax.set_xlim(0, max(1, len(shares) - 1))
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_ylim(0, 1)
        ax.grid(False)
    for ax in axes[-1]:
        ax.set_xlabel("learner step")
    for ax in [row[0] for row in axes]:
        ax.set_ylabel("share of groups")
    size = max(sizes) - 1
    handles = [Patch(color=color) for color in count_colors(size)]
    labels = [f"{k} of {size}" for k in range(size + 1)]
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", title="passed")
    return figure


def zero_variance(comparison: Comparison) -> Figure | None:
    """Share of degenerate groups over steps, fresh, prefixed and generated groups apart."""
    found = {group.origin for run in comparison.all_runs for group in run.groups if group.scored}
    kinds = [kind for kind in KINDS if kind in found]
    if not kinds:
        return None
    figure, axes = _grid(1, max(2, len(kinds)), height=3.1, sharey=True)
    for kind, ax in zip(kinds, flat(axes), strict=False):
        for arm, color in arm_colors(comparison).items():
            counts = summed_counts(comparison.runs[arm], kind)
            if counts is None:
                continue
            degenerate = counts[:, 0] + counts[:, -1]
            ax.plot(smoothed_ratio(degenerate, counts.sum(axis=1)), color=color, label=arm)
        ax.set_title("groups behind a prefix" if kind == "prefix" else f"{kind} groups")
        ax.set_xlabel("learner step")
        ax.set_ylim(bottom=0)
        _percent_axis(ax)
    axes[0][0].set_ylabel("share of degenerate groups")
    for ax in flat(axes)[len(kinds) :]:
        ax.set_axis_off()
    _legend_above(figure, axes[0][0])
    return figure


def prefix_control(comparison: Comparison) -> Figure | None:
    """Mean child pass rate, degenerate children and prefix ratio of each parent bucket over steps."""
    arms = {arm: buckets for arm, runs in comparison.runs.items() if (buckets := run_buckets(runs))}
    if not arms:
        return None
    figure, axes = _grid(len(arms), 3, height=3.1)
    for (arm, buckets), row in zip(arms.items(), axes, strict=True):
        runs = comparison.runs[arm]
        row[0].axhspan(0.4, 0.6, color="#009E73", alpha=0.09, linewidth=0)
        row[0].axhline(0.5, color="#009E73", linewidth=0.8)
        for bucket, color in zip(buckets, bucket_colors(buckets), strict=True):
            label = f"{bucket[0]} of {bucket[1]}"
            totals, passed, degenerate = bucket_series(runs, bucket)
            row[0].plot(smoothed_ratio(passed, totals), color=color, label=label)
            row[1].plot(smoothed_ratio(degenerate, totals), color=color)
            for run in runs:
                row[2].plot(*reported(run, "ratio", bucket), color=color, alpha=0.75, linewidth=1.2)
        row[0].set(title=f"{arm}: child pass rate", ylim=(0, 1), xlabel="learner step")
        row[1].set(title="degenerate children", ylim=(0, 1), xlabel="learner step")
        row[2].set(title="prefix ratio", ylim=(0, 1), xlabel="learner step")
        _percent_axis(row[1])
        if not any(reported(run, "ratio", bucket)[0] for run in runs for bucket in buckets):
            row[2].text(0.5, 0.5, "the controller reports none", ha="center", transform=row[2].transAxes, color=MUTED)
    _legend_above(figure, axes[0][0], title="parent passed")
    return figure


def rollout_fates(comparison: Comparison) -> Figure | None:
    """Where the rollouts of each arm went, and how many were never generated."""
    arms = [summarize_arm(arm, runs) for arm, runs in comparison.runs.items()]
    if not arms:
        return None
    figure, axes = _grid(1, 1, height=1.2 + 0.5 * len(arms))
    ax = axes[0][0]
    for i, arm in enumerate(arms):
        total, left = sum(arm.rollout_fates.values()), 0.0
        for fate, color in FATES.items():
            width = arm.rollout_fates.get(fate, 0.0)
            ax.barh(i, width, left=left, color=color, height=0.62, edgecolor="white", linewidth=0.8)
            if width > 0.06 * total:
                _inside(ax, left + width / 2, i, f"{width / total:.0%}", color)
            left += width
        saved = arm.skipped * _group_size(comparison.runs[arm.arm])
        ax.barh(i, saved, left=left, color="white", height=0.62, edgecolor="#9aa5b1", hatch="////", linewidth=0.8)
    ax.set_yticks(range(len(arms)), [arm.arm for arm in arms], color=INK)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("rollouts a run")
    _thousands(ax)
    used = [fate for fate in FATES if any(arm.rollout_fates.get(fate) for arm in arms)]
    handles = [Patch(color=FATES[fate], label=fate) for fate in used]
    if any(arm.skipped for arm in arms):
        label = "skipped before rollout (not generated)"
        handles.append(Patch(facecolor="white", edgecolor="#9aa5b1", hatch="////", label=label))
    figure.legend(handles=handles, loc="outside upper left", ncols=6)
    return figure


def learner_metrics(comparison: Comparison) -> Figure | None:
    """Response length and every number that the learner reports, over steps."""
    names = list(dict.fromkeys(name for run in comparison.all_runs for step in run.steps for name in step.learner))
    preferred = [name for word in ("entropy", "grad", "loss", "kl", "clip") for name in names if word in name]
    names = list(dict.fromkeys([*preferred, *names]))[:7]
    if not comparison.runs:
        return None
    panels = len(names) + 1
    columns = panels if panels <= 4 else -(-panels // 2)
    figure, axes = _grid(-(-panels // columns), columns, height=2.4)
    for ax in flat(axes)[panels:]:
        ax.set_axis_off()
    for name, ax in zip(["tokens a rollout", *names], flat(axes), strict=False):
        for arm, color in arm_colors(comparison).items():
            series = [
                response_lengths(run) if name == "tokens a rollout" else _metric(run, name)
                for run in comparison.runs[arm]
            ]
            mean = ragged_mean(series)
            ax.plot(mean, color=color, linewidth=0.7, alpha=0.3)
            ax.plot(smoothed_ratio(np.nan_to_num(mean), np.isfinite(mean).astype(float)), color=color, label=arm)
        ax.set_title(name.replace("_", " "))
        ax.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4))
        ax.set_xlabel("learner step")
    _legend_above(figure, axes[0][0])
    return figure


def timing(comparison: Comparison) -> Figure | None:
    """Mean seconds of a step by part."""
    arms = comparison.runs
    if not arms:
        return None
    figure, axes = _grid(1, 1, height=1.2 + 0.5 * len(arms))
    ax = axes[0][0]
    seen = {part for runs in arms.values() for run in runs for step in run.steps for part in step.timing}
    parts = {**PARTS, **dict.fromkeys(sorted(seen - set(PARTS)), "#52606d")}
    for i, runs in enumerate(arms.values()):
        steps, left = [step for run in runs for step in run.steps], 0.0
        for part, color in parts.items():
            width = sum(step.timing.get(part, 0.0) for step in steps) / len(steps)
            hatch = "////" if part in NOT_IN_A_STEP else None
            label = part if i == 0 and part in seen else None
            ax.barh(i, width, 0.62, left, color=color, edgecolor="white", hatch=hatch, linewidth=0.6, label=label)
            left += width
    ax.set_yticks(range(len(arms)), list(arms), color=INK)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("mean seconds a step")
    figure.legend(loc="outside upper left", ncols=7)
    return figure


def summed_counts(runs: Sequence[Run], kind: str) -> Array | None:
    """Histogram of k a step, (steps, N + 1), of the scored groups of one origin, summed over seeds; None without any.
    From the decision log: the histograms of the steps once counted generated groups among the fresh ones."""
    groups = [group for run in runs for group in run.groups if group.origin == kind and group.scored]
    if not groups:
        return None
    total = np.zeros((max(run.num_steps for run in runs), 1 + max(group.size for group in groups)))
    for group in groups:
        total[group.step, group.k] += 1
    return total


def run_buckets(runs: Sequence[Run]) -> list[Bucket]:
    """Parent buckets (k, N) that occur, in order of k."""
    return sorted({group.bucket for run in runs for group in run.groups if group.prefixed and group.bucket})


def bucket_series(runs: Sequence[Run], bucket: Bucket) -> tuple[Array, Array, Array]:
    """A value a step, summed over seeds: child groups, the sum of their pass rates, and how many are degenerate."""
    series = np.zeros((3, max(run.num_steps for run in runs)))
    for run in runs:
        for group in run.groups:
            if group.prefixed and group.bucket == bucket and group.scored and group.step < series.shape[1]:
                series[:, group.step] += (1, group.pass_rate, group.degenerate)
    return series[0], series[1], series[2]


def reported(run: Run, word: str, bucket: Bucket) -> tuple[list[int], list[float]]:
    """Steps and values of what the controller reports for a bucket under a name with `word` in it."""
    points = [
        (step.step, value)
        for step in run.steps
        if (name := bucket_metrics(step.controllers, word, [bucket]).get(bucket))
        and (value := step.controllers[name]) is not None
    ]
    return [x for x, _ in points], [y for _, y in points]


def response_lengths(run: Run) -> Array:
    """Generated tokens a rollout, one value a step."""
    rollouts = np.diff([step.rollouts for step in run.steps], prepend=0)
    tokens = np.diff([step.tokens for step in run.steps], prepend=0)
    return divide(tokens, rollouts)


def smoothed_ratio(numerators: Array, denominators: Array) -> Array:
    """Sum over sum in a centred window of about a tenth of the run; not a number where nothing was counted."""
    window = np.ones(2 * max(1, round(len(numerators) / 20)) + 1)
    top, bottom = (np.convolve(values, window, mode="full") for values in (numerators, denominators))
    cut = slice(len(window) // 2, len(window) // 2 + len(numerators))
    return divide(top[cut], bottom[cut])


def smoothed_shares(counts: Array) -> Array:
    """Shares of each column in a centred window; zero where nothing was counted."""
    total = counts.sum(axis=1)
    return np.nan_to_num(np.stack([smoothed_ratio(column, total) for column in counts.T], axis=1))


def ragged_mean(series: Sequence[Array]) -> Array:
    """Mean over seeds at each step, of those that got there."""
    stacked = np.full((len(series), max(map(len, series))), np.nan)
    for row, values in zip(stacked, series, strict=True):
        row[: len(values)] = values
    counted = np.isfinite(stacked).sum(axis=0)
    return divide(np.nansum(stacked, axis=0), counted)


def divide(numerators: Array, denominators: Array) -> Array:
    """Quotients; not a number where the denominator is zero, or was meant to be before rounding."""
    known = np.asarray(denominators) > 1e-9
    return np.where(known, numerators / np.where(known, denominators, 1.0), np.nan)


def count_colors(size: int) -> list[str]:
    """Colours of k = 0..N: grey at both ends, orange below 3/8, green in 3/8..5/8, blue above."""
    inner = np.arange(1, size)
    below, above = inner[inner / size < BAND[0]], inner[inner / size > BAND[1]]
    return [
        "#52606d",
        *_shades(("#b93c0a", "#f5b26b"), len(below)),
        *_shades(("#8fd0a8", "#00805c", "#8fd0a8"), size - 1 - len(below) - len(above)),
        *_shades(("#86c5ea", "#0b5d99"), len(above)),
        "#cbd2d9",
    ]


def _shades(stops: Sequence[str], count: int) -> list[str]:
    ramp = LinearSegmentedColormap.from_list("shades", stops)
    return [to_hex(ramp(x)) for x in (np.linspace(0, 1, count) if count > 1 else [0.5])][:count]


def bucket_colors(buckets: Sequence[Bucket]) -> list[str]:
    return [count_colors(size)[k] if 0 < k < size else MUTED for k, size in buckets]


def _metric(run: Run, name: str) -> Array:
    values = [step.learner.get(name) for step in run.steps]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _group_size(runs: Sequence[Run]) -> float:
    sizes = [group.size for run in runs for group in run.groups if group.scored]
    return float(np.median(sizes)) if sizes else 0.0


def _grid(rows: int, columns: int, height: float, sharey: bool = False) -> tuple[Figure, list[list[Axes]]]:
    """A figure of `rows` x `columns` panels as wide as the page; height is that of a row, in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.06, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=(PAGE_WIDTH, height * rows), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    return figure, [list(row) for row in axes]


def flat(axes: Sequence[Sequence[Axes]]) -> list[Axes]:
    return [ax for row in axes for ax in row]


def _legend_above(figure: Figure, ax: Axes, title: str | None = None) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=8, title=title, alignment="left")


def _thousands(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlim(left=0)


def _percent_axis(ax: Axes) -> None:
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _inside(ax: Axes, x: float, y: float, text: str, background: str) -> None:
    dark = background in (FATES["degenerate"], FATES["surplus"], FATES["carried"])
    ax.text(x, y, text, ha="center", va="center", color=INK if dark else "white", fontsize=9)


def captions(intervals: str) -> Mapping[str, str]:
    """What a reader sees in each picture, by its name."""
    smooth = "Lines are centred moving averages over a tenth of the run, all seeds together."
    return {
        "learning_curves": "Held-out pass@1 against four measures of cost; only one of them was made equal between "
        f"the arms. Lines: means over seeds, at their mean cost, as far as every seed got. "
        f"Bands: {intervals.split(';')[0]}.",
        "pass_counts": "Groups by their number of passing rollouts, over training. Grey areas are degenerate groups "
        "(dark: none passed, light: all passed), which teach nothing; green is the middle, where a group carries the "
        "most signal. Centred moving averages over a tenth of the run, all seeds together.",
        "zero_variance": f"Share of the rolled-out groups in which all rollouts passed or none did. {smooth}",
        "prefix_control": "Groups behind a prefix, by the pass count of the parent group. Left: their mean pass rate, "
        "with 0.5 +- 0.1 shaded. Middle: how many of these groups are degenerate all the same. Right: the prefix "
        f"ratio that the controller set, one line a seed. {smooth}",
        "rollout_fates": "Mean rollouts of a run by what became of them. Hatched: what the skipped problems would have "
        "taken; these rollouts were never generated and cost nothing.",
        "learner_metrics": "Response length (replayed tokens not counted) and what the learner reports. Pale lines: "
        "means over seeds; strong lines: their moving averages.",
        "timing": "Where the seconds of a step go. Hatched parts do not count against a budget of seconds.",
    }


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure and its heading; `name` is the file name without its ending."""

    name: str
    heading: str
    draw: Callable[[Comparison], Figure | None]


PICTURES = (
    Picture("learning_curves", "Held-out pass@1", learning_curves),
    Picture("rollout_fates", "Where the rollouts went", rollout_fates),
    Picture("pass_counts", "Pass counts over time", pass_counts),
    Picture("zero_variance", "Groups without signal", zero_variance),
    Picture("prefix_control", "What the prefixes do", prefix_control),
    Picture("learner_metrics", "The learner", learner_metrics),
    Picture("timing", "Where the time goes", timing),
)
