"""Charts of held-out scores over training."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from halfway.experiments.report.analysis.axes import ROLLOUTS, SECONDS, STEPS, TOKENS, Axis
from halfway.experiments.report.analysis.curves import amounts, keep_evaluated, problems_known, scores
from halfway.experiments.report.analysis.plan import Design, read_design
from halfway.experiments.report.analysis.starts import rate, strata_names
from halfway.experiments.report.figures.charts import Chart, X, by_arm, by_name, chart, finite, lines, value
from halfway.experiments.report.figures.colors import MUTED, shades
from halfway.experiments.report.records import Comparison, Run
from halfway.experiments.report.statistics.crossed import crossed_mean
from halfway.experiments.report.statistics.intervals import FEW

CROWD = 20  # with more arms, the page starts with only some of them on
HIGHEST, LOWEST = 5, 4
STRATA = ("#f0c05a", "#e2703a", "#c22f55", "#7b2d8b", "#3f78c9")


def measures(design: Design) -> list[Axis]:
    """The measures of cost for a chart's horizontal axis, the shared budget's first."""
    found = [design.headline, ROLLOUTS, STEPS, TOKENS, *design.costs, SECONDS]
    return list({axis.name: axis for axis in found}.values())


def learning_curves(comparison: Comparison) -> Chart | None:
    """Held-out pass@1: means over seeds; bands with more than `FEW` seeds, otherwise the single runs."""
    if not comparison.runs:
        return None
    design = read_design(comparison)
    known = problems_known(comparison.all_runs, design.instances)
    rows = [row for arm, runs in comparison.runs.items() for row in _curve(arm, runs, design, known)]
    y = value("y", "held-out pass@1", scale={"zero": False})
    x = {**X, "title": design.headline.label}
    color, tips = by_arm(comparison), ["arm", "run", "y:.3f", "low:.3f", "high:.3f", "x:,.0f"]
    targets = [
        {"mark": {"type": "rule", "strokeDash": [2, 3], "color": MUTED}, "encoding": {"y": {"datum": target}}}
        for target in design.targets
    ]
    mean, single = {"filter": "datum.run == 'mean'"}, {"filter": "datum.run != 'mean'"}
    band = {
        "mark": {"type": "area", "opacity": 0.13},
        "encoding": {"x": x, "y": value("low", "held-out pass@1"), "y2": {"field": "high"}, "color": color},
    }
    layers = [
        {**band, "transform": [mean, {"filter": "isValid(datum.low)"}]},
        {**lines(y, color, tips, x, strokeWidth=0.7, opacity=0.6)[0], "transform": [single]},
        {**lines(y, color, tips, x, point={"size": 26})[0], "transform": [mean]},
        lines(y, color, tips, x)[1],
        *targets,
    ]  # fmt: skip
    return chart(rows, layers, height=250)


def _curve(arm: str, runs: Sequence[Run], design: Design, known: bool) -> list[dict[str, object]]:
    """The points of an arm's mean curve, up to the shortest run; with few runs, also those of each run."""
    runs = keep_evaluated(runs)
    points = min((len(run.evaluations) for run in runs), default=0)
    if not points:
        return []
    axes = measures(design)
    spent = {axis.name: np.mean([amounts(run, axis)[:points] for run in runs], axis=0) for axis in axes}
    estimates = [crossed_mean(table_SP).estimate.as_rate
                 for table_SP in np.stack([scores(run, known)[:points] for run in runs], axis=1)]  # fmt: skip
    banded = len(runs) > FEW
    same = {"panel": "", "arm": arm}
    rows: list[dict[str, object]] = []
    for i, each in enumerate(estimates):
        at = {name: finite(amount[i]) for name, amount in spent.items()}
        ends = (
            {"low": finite(each.low), "high": finite(each.high)}
            if banded and each.low is not None and each.high is not None
            else {}
        )
        rows.append({**same, "run": "mean", "y": finite(each.value), **ends, **at, "x": at[axes[0].name]})
    for run in runs if 1 < len(runs) <= FEW else ():
        for one in run.evaluations:
            at = {axis.name: finite(axis.of(one)) for axis in axes}
            rows.append({**same, "run": f"seed {run.seed}", "y": finite(one.pass_at_1), **at, "x": at[axes[0].name]})
    return rows


def strata_curves(comparison: Comparison) -> Chart | None:
    """Held-out pass rate of each stratum, in one panel per arm."""
    names = strata_names(comparison.all_runs)
    rows = [
        {"panel": arm, "arm": arm, "stratum": name or "no stratum", "step": step, "x": step, "y": finite(y)}
        for arm, runs in comparison.runs.items()
        for name in names
        for step, y in stratum_series([run for run in runs if run.evaluations], name)
    ]
    colors = dict(zip([name or "no stratum" for name in names], shades(STRATA, len(names)), strict=True))
    y = value("y", "held-out pass rate", scale={"domain": [0, 1]})
    return chart(rows, lines(y, by_name("stratum", colors, "stratum"), ["stratum", "y:.3f", "x:,.0f"]), height=170)


def stratum_series(runs: Sequence[Run], stratum: str) -> list[tuple[int, float]]:
    """Mean step and mean pass rate over seeds, at each evaluation that all runs have reached."""
    rows = list(zip(*(run.evaluations for run in runs), strict=False))
    means = [[found for one in row if (found := rate(one, stratum)) is not None] for row in rows]
    return [(round(fmean(one.step for one in row)), fmean(mean)) for row, mean in zip(rows, means, strict=True) if mean]


def shown_first(comparison: Comparison, baseline: str | None) -> list[str]:
    """The arms that are on when a page opens: all, or with many arms the best, the worst and the baseline."""
    if len(comparison.runs) <= CROWD:
        return list(comparison.runs)
    ranked = sorted(comparison.runs, key=lambda arm: -_last(comparison.runs[arm]))
    return list(dict.fromkeys([*ranked[:HIGHEST], *ranked[-LOWEST:], *([baseline] if baseline else [])]))


def _last(runs: Sequence[Run]) -> float:
    return fmean([run.evaluations[-1].pass_at_1 for run in runs if run.evaluations] or [0.0])
