"""Charts of groups over training: pass counts, zero-variance groups, and groups with prefixes."""

from typing import Any

import numpy as np

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.prefix import ParentCount
from halfway.experiments.report.analysis.starts import parent_counts
from halfway.experiments.report.figures.charts import (
    Chart,
    X,
    by_arm,
    by_name,
    chart,
    finite,
    lines,
    percent,
    under,
    value,
)
from halfway.experiments.report.figures.colors import MUTED, count_colors
from halfway.experiments.report.figures.series import (
    MOST_COUNTS,
    child_series,
    points,
    report_series,
    scale_count,
    smooth_ratio,
    smooth_shares,
    sum_counts,
)
from halfway.experiments.report.records import Comparison

# The origins of groups, and their names in titles.
KINDS = {"fresh": "fresh", "prefix": "behind a prefix", "generated": "generated"}
MOST_PROBLEMS = 60


def pass_counts(comparison: Comparison) -> Chart | None:
    """Shares of the pass counts k over steps as stacked areas, in one panel per arm and origin of the groups."""
    rows, colors = list[dict[str, Any]](), dict[str, str]()
    for arm, runs in comparison.runs.items():
        for kind, title in KINDS.items():
            counts = sum_counts(runs, kind)
            if counts is None:
                continue
            size = counts.shape[1] - 1
            names = [f"{k} of {size}" for k in range(size + 1)]
            colors |= dict(zip(names, count_colors(size), strict=True))
            shares_TK = smooth_shares(counts)
            tops_TK = shares_TK.cumsum(axis=1)
            for k, name in enumerate(names):
                same = {"panel": f"{arm}: {title}", "arm": arm, "passed": name}
                for point in points(tops_TK[:, k]):
                    share = shares_TK[point["step"], k]
                    rows.append(
                        {**same, **point, "share": finite(share), "low": finite(tops_TK[point["step"], k] - share)}
                    )
    encoding = {
        "x": X,
        "y": value("y", "share of groups", scale={"domain": [0, 1]}),
        "y2": {"field": "low"},
        "color": by_name("passed", colors, "passed"),
    }
    layers = [
        {"mark": {"type": "area", "clip": True}, "encoding": encoding},
        under(encoding, ["passed", "share:.0%", "x:,.0f"]),
    ]
    return chart(rows, layers, height=170)


def problem_map(comparison: Comparison) -> Chart | None:
    """The last pass count of each problem at each step in the first run of each arm; rows are equal in all panels.

    Of many problems `MOST_PROBLEMS` are shown, evenly spaced from the least passed to the most passed.
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
    size = min(MOST_COUNTS, max(group.size for groups in tried.values() for group in groups))
    rows: list[dict[str, Any]] = []
    for arm, runs in comparison.runs.items():
        last: dict[str, dict[str, Any]] = {}
        for group in sorted(runs[0].groups, key=lambda group: group.step):
            if group.fresh and group.scored and group.problem in tried and group.problem in chosen:
                if group.problem in last:
                    last[group.problem] |= {"end": group.step, "x2": group.step}
                passed = f"{round(group.pass_rate * size)} of {size}"
                last[group.problem] = {
                    **{"panel": arm, "arm": arm, "problem": group.problem, "passed": passed},
                    **{"step": group.step, "x": group.step, "end": runs[0].num_steps, "x2": runs[0].num_steps},
                }
                rows.append(last[group.problem])
    colors = dict(zip([f"{k} of {size}" for k in range(size + 1)], count_colors(size), strict=True))
    encoding = {
        **{"x": X, "x2": {"field": "x2"}, "color": by_name("passed", colors, "passed")},
        "y": value(
            "problem", f"{len(chosen)} of {len(order)} problems", "nominal", sort=chosen, axis={"labels": False}
        ),
        "tooltip": [{"field": field} for field in ("problem", "passed", "step")],
    }
    return chart(rows, [{"mark": {"type": "rect", "clip": True}, "encoding": encoding}], height=220)


def zero_variance(comparison: Comparison) -> Chart | None:
    """Share of zero-variance groups over steps, one line per arm, in one panel per origin of the groups."""
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for arm, runs in comparison.runs.items():
            counts = sum_counts(runs, kind)
            if counts is not None:
                share_T = smooth_ratio(counts[:, 0] + counts[:, -1], counts.sum(axis=1))
                title = "groups behind a prefix" if kind == "prefix" else f"{kind} groups"
                rows += [{"panel": title, "arm": arm, **point} for point in points(share_T)]
    y = percent("y", "share of zero-variance groups")
    return chart(rows, lines(y, by_arm(comparison), ["arm", "y:.1%", "x:,.0f"]), height=220)


def prefix_control(comparison: Comparison) -> Chart | None:
    """Child pass rate, share of zero-variance children, and prefix ratio over steps, by the parents' pass count."""
    rows, colors = list[dict[str, Any]](), dict[str, str]()
    for arm, runs in comparison.runs.items():
        for parent in parent_counts(runs):
            name = f"{parent.passed} of {parent.size}"
            colors[name] = parent_color(parent)
            totals_T, passed_T, zero_variance_T = child_series(runs, parent)
            same = {"arm": arm, "parent": name}
            for title, part_T in (("child pass rate", passed_T), ("zero-variance children", zero_variance_T)):
                found = points(smooth_ratio(part_T, totals_T))
                rows += [{"panel": f"{arm}: {title}", **same, "run": "", **point} for point in found]
            for run in runs:
                rows += [
                    {"panel": f"{arm}: prefix ratio", **same, "run": run.seed, "step": x, "x": x, "y": finite(y)}
                    for x, y in report_series(run, "ratio", parent)
                ]
    middle = {"mark": {"type": "rule", "color": "#009E73"}, "encoding": {"y": {"datum": 0.5}}}
    y = value("y", None, scale={"domain": [0, 1]})
    tips = ["parent", "run", "y:.3f", "x:,.0f"]
    rows.sort(key=lambda row: list(comparison.runs).index(row["arm"]))
    return chart(
        rows, [middle, *lines(y, by_name("parent", dict(sorted(colors.items())), "parent passed"), tips)], height=180
    )


def parent_color(parent: ParentCount) -> str:
    size = min(parent.size, MOST_COUNTS)
    return count_colors(size)[scale_count(*parent)] if 0 < parent.passed < parent.size else MUTED
