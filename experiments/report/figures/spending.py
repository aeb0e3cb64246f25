"""Charts of where rollouts and seconds went, and of a run's metrics by step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halfway.experiments.report.analysis.arm_summary import NOT_IN_A_STEP, WITHIN_ROLLOUT
from halfway.experiments.report.figures.charts import Chart, Spec, by_arm, by_name, chart, finite, lines, value
from halfway.experiments.report.figures.series import Array, divide, points, ragged_mean, smooth_ratio
from halfway.experiments.report.records import Comparison, Run, outcome_rollouts

FATES = {
    "trained": "#009E73",
    "carried": "#56B4E9",
    "waiting": "#CC79A7",
    "zero-variance": "#9aa5b1",
    "surplus": "#E69F00",
    "declined": "#F0E442",
    "lost": "#D55E00",
}
SKIPPED = "skipped before rollout (not generated)"
PARTS = {
    "rollout": "#0072B2",
    "update": "#E69F00",
    "sync": "#56B4E9",
    "propose": "#D55E00",
    "observe": "#CC79A7",
    "evaluate": "#9aa5b1",
    "checkpoint": "#cbd2d9",
}
SHORT = "abs(datum.value) >= 1000 ? format(datum.value, '~s') : format(datum.value, '.3~g')"
BAR = 34  # pixels
MOST_METRICS = 8


def rollout_fates(comparison: Comparison) -> Chart | None:
    """Outcomes of each arm's rollouts, and rollouts saved by skipping, as one bar per arm."""
    parts: dict[str, dict[str, float]] = {}
    for arm, runs in comparison.runs.items():
        fates = outcome_rollouts([group for run in runs for group in run.groups])
        parts[arm] = {fate: fates[fate.replace("-", "_")] / len(runs) for fate in FATES}
        parts[arm][SKIPPED] = sum(len(run.skips) for run in runs) / len(runs) * _group_size(runs)
    return _bars(parts, {**FATES, SKIPPED: "#dfe3e8"}, "rollouts per run", ",.0f", outside=(SKIPPED,))


def timing(comparison: Comparison) -> Chart | None:
    """Mean seconds per step by part of the training loop, as one bar per arm."""
    seen = {part for run in comparison.all_runs for step in run.steps for part in step.timing}
    colors = {**PARTS, **dict.fromkeys(sorted(seen - {*PARTS, *WITHIN_ROLLOUT}), "#52606d")}
    parts = {
        arm: {
            part: float(np.mean([step.timing.get(part, 0.0) for run in runs for step in run.steps])) for part in colors
        }
        for arm, runs in comparison.runs.items()
    }
    return _bars(parts, colors, "mean seconds per step", ".3f", outside=NOT_IN_A_STEP)


def _bars(
    parts: Mapping[str, Mapping[str, float]], colors: Mapping[str, str], title: str, form: str, outside: Sequence[str]
) -> Chart | None:
    """One stacked bar per arm; parts `outside` are pale and do not count in the shares."""
    rows: list[dict[str, Any]] = []
    widest = max((sum(amounts.values()) for amounts in parts.values()), default=0.0)
    for arm, amounts in parts.items():
        left, total = 0.0, sum(amount for part, amount in amounts.items() if part not in outside)
        for part, amount in amounts.items():
            if amount:
                share = amount / total if part not in outside and total else 0.0
                text = f"{share:.0%}" if share >= 0.1 and amount > 0.08 * widest else ""
                same = {
                    "panel": "",
                    "arm": arm,
                    "part": part,
                    "amount": finite(amount),
                    "share": finite(share),
                    "text": text,
                }
                rows.append(
                    {**same, "start": finite(left), "until": finite(left + amount), "at": finite(left + amount / 2)}
                )
                left += amount
    seen = {row["part"] for row in rows}
    place: Spec = {"y": value("arm", None, "nominal", sort=list(parts))}
    pale = {"condition": {"test": f"indexof({list(outside)!r}, datum.part) >= 0", "value": 0.45}, "value": 1}
    bar = {
        **place,
        "x": value("start", title),
        "x2": {"field": "until"},
        "color": by_name("part", {part: color for part, color in colors.items() if part in seen}),
        "opacity": pale,
        "tooltip": [
            *({"field": field} for field in ("arm", "part")),
            *({"field": "amount", "format": form}, {"field": "share", "format": ".0%"}),
        ],
    }
    dark = [part for part, color in colors.items() if color in ("#0072B2", "#52606d")]
    ink = {"condition": {"test": f"indexof({dark!r}, datum.part) >= 0", "value": "white"}, "value": "#111111"}
    inside = {**place, "x": {"field": "at", "type": "quantitative"}, "text": {"field": "text"}, "color": ink}
    layers = [
        {"mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.8}, "encoding": bar},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": inside},
    ]
    return chart(rows, layers, height=BAR * len(parts))


def training(comparison: Comparison) -> Chart | None:
    """Pass rate, zero-variance share, response length, tokens per second and the learner's metrics over steps."""
    names = list(dict.fromkeys(name for run in comparison.all_runs for step in run.steps for name in step.learner))
    preferred = [name for word in ("entropy", "grad", "loss", "kl", "clip") for name in names if word in name]
    reported = {name: {step.learner.get(name) for run in comparison.all_runs for step in run.steps} for name in names}
    metrics = [name for name in dict.fromkeys([*preferred, *names]) if len(reported[name]) > 1][:MOST_METRICS]
    rows: list[dict[str, Any]] = []
    for arm, runs in comparison.runs.items():
        series = [{**_series(run), **{name: _metric(run, name) for name in metrics}} for run in runs]
        for name in series[0]:
            mean_T = ragged_mean([each[name] for each in series])
            smooth_T = smooth_ratio(np.nan_to_num(mean_T), np.isfinite(mean_T).astype(float))
            rows += [{"panel": name.replace("_", " "), "arm": arm, **point} for point in points(smooth_T)]
    rows.sort(key=lambda row: row["panel"] in {name.replace("_", " ") for name in metrics})
    y = value("y", None, axis={"labelExpr": SHORT}, scale={"zero": False})
    return chart(rows, lines(y, by_arm(comparison), ["arm", "y:.4~g", "x:,.0f"]), columns=4, height=150, free="y")


def _series(run: Run) -> dict[str, Array]:
    """The series of every run by step, (steps,) each."""
    sums_QT = np.zeros((4, run.num_steps))
    for group in run.groups:
        if group.scored and group.origin != "stored" and group.step < run.num_steps:
            sums_QT[:, group.step] += (group.pass_rate, 1, group.zero_variance, 1)
    rollouts, tokens, seconds = (
        np.diff([getattr(step, unit) for step in run.steps], prepend=0) for unit in ("rollouts", "tokens", "seconds")
    )
    return {
        "training pass rate": divide(sums_QT[0], sums_QT[1]),
        "zero-variance share": divide(sums_QT[2], sums_QT[3]),
        "tokens per rollout": divide(tokens, rollouts),
        "tokens per second": divide(tokens, seconds),
    }


def _metric(run: Run, name: str) -> Array:
    values = [step.learner.get(name) for step in run.steps]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _group_size(runs: Sequence[Run]) -> float:
    sizes = [group.size for run in runs for group in run.groups if group.scored]
    return float(np.median(sizes)) if sizes else 0.0
