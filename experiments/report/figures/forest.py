"""Charts of contrasts and cost ratios as points with intervals, one panel per condition."""

from typing import Any

from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.analysis.savings import END
from halfway.experiments.report.figures.charts import Chart, Spec, by_arm, chart, finite, value
from halfway.experiments.report.figures.colors import MUTED
from halfway.experiments.report.records import Comparison
from halfway.experiments.report.tables.costs import ratio_text

ROW = 20  # pixels
MOST_ROWS = 40  # all pairs of ten arms would be too many to read; naming contrasts reduces them
RANGE = (0.78, 1.28)  # of a ratio's axis, at least


def contrast_forest(comparison: Comparison, summary: Summary) -> Chart | None:
    """Differences in pass@1 at equal cost; markers are filled if significant after Holm's adjustment.

    None without contrasts, or with more than `MOST_ROWS` of them.
    """
    conditions = [matched for matched in summary.matched if matched.contrasts]
    if not 0 < len(conditions[0].contrasts if conditions else ()) <= MOST_ROWS:
        return None
    rows = [
        {
            "panel": f"equal {matched.axis.label.removeprefix('generated ')}" + (" *" if matched.headline else ""),
            "arm": row.arm,
            "name": f"{row.arm} vs {row.reference}",
            "at": finite(row.difference.value),
            **_ends(row.difference.low, row.difference.high),
            "clear": row.clear,
        }
        for matched in conditions
        for row in matched.contrasts
    ]
    return _forest(comparison, rows, value("at", "difference in pass@1"), 0, columns=3)


def saving_forest(comparison: Comparison, summary: Summary) -> Chart | None:
    """Costs of arms until they reach a score, as multiples of the baseline's; None without ratios."""
    baseline, rows, said = summary.design.baseline, list[dict[str, Any]](), list[float]()
    for goal in summary.savings[0].goals if summary.savings else ():
        for found in summary.savings:
            panel = f"{f'to {baseline} at its end' if goal == END else f'to {goal}'}: {found.axis.label}"
            for row in found.rows:
                if not row.ratios or (ratio := row.ratios[goal]) is None:
                    continue
                shown: dict[str, Any] = {"text": ratio_text(ratio).rstrip("*")}
                if ratio.value:
                    known = ratio.never is not None
                    ends = _ends(ratio.low or ratio.value, ratio.high or ratio.value) if known else {}
                    shown = {"at": finite(ratio.value), "clear": ratio.clear, **ends}
                    shown["endless"] = known and ratio.high is None
                    said += [ratio.value, *(end for end in ends.values() if end)]
                rows.append({"panel": panel, "arm": row.arm, "name": row.arm, **shown})
    domain = [min([RANGE[0], *said]), max([RANGE[1], *said])]
    x = value("at", f"times the cost of {baseline}", scale={"type": "log", "domain": domain, "nice": False})
    return _forest(comparison, rows, x, 1, columns=4)


def _ends(low: float | None, high: float | None) -> dict[str, float | None]:
    """The ends of an interval; few seeds have none."""
    return {"low": finite(low), "high": finite(high)} if low is not None and high is not None else {}


def _forest(comparison: Comparison, rows: list[dict[str, Any]], x: Spec, middle: float, columns: int) -> Chart | None:
    names = list(dict.fromkeys(row["name"] for row in rows))
    y, color = value("name", None, "nominal", sort=names), by_arm(comparison)
    tips = [
        {"field": "name"},
        *({"field": field, "format": ".3f"} for field in ("at", "low", "high")),
        {"field": "clear"},
    ]
    filled = {"condition": {"test": "datum.clear", **color, "legend": None}, "value": "transparent"}
    layers: list[Spec] = [
        {"mark": {"type": "rule", "color": MUTED}, "encoding": {"x": {"datum": middle, "type": "quantitative"}}},
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2.4},
            "encoding": {"y": y, "color": color, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "transform": [{"filter": "isValid(datum.at)"}],
            "mark": {"type": "point", "size": 60},
            "encoding": {
                **{"x": x, "y": y, "stroke": color, "fill": filled, "tooltip": tips},
                "shape": {"condition": {"test": "datum.endless", "value": "triangle-right"}, "value": "circle"},
            },
        },
        {
            "transform": [{"filter": "isValid(datum.text)"}],
            "mark": {"type": "text", "color": MUTED, "fontSize": 10, "align": "left", "dx": 5},
            "encoding": {"y": y, "text": {"field": "text"}, "x": {"datum": middle, "type": "quantitative"}},
        },
    ]  # fmt: skip
    return chart(rows, layers, columns, height=ROW * len(names))
