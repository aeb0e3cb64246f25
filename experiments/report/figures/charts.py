"""Builds charts as Vega-Lite specifications, for the page and for SVG, PNG and PDF files."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import replacing
from halfway.experiments.report.figures.colors import GRID, INK, MUTED, arm_colors
from halfway.experiments.report.records import Comparison

Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
PAGE_WIDTH = 1100  # pixels
FONT = "Inter, Helvetica Neue, Arial, Liberation Sans, DejaVu Sans, sans-serif"
X: Spec = {"field": "x", "type": "quantitative", "title": "step", "scale": {"nice": False, "zero": False}}
"""The horizontal axis of a chart by step; the page can replace it by another measure of cost."""
CONFIG: Spec = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **{"gridColor": GRID, "domainColor": "#9aa5b1", "tickColor": "#9aa5b1", "labelColor": MUTED},
        **{"titleColor": MUTED, "titleFontWeight": "normal", "tickCount": 5, "labelOverlap": True, "labelLimit": 260},
    },
    "axisX": {"grid": False, "labelSeparation": 6},
    "header": {
        "labelColor": INK,
        "labelFontWeight": "bold",
        "labelAnchor": "start",
        "title": None,
        "labelFontSize": 12,
    },
    "legend": {
        "orient": "top",
        "title": None,
        "columns": 6,
        "labelColor": INK,
        "titleColor": INK,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
        "labelLimit": 260,
    },
    "line": {"strokeWidth": 1.8},
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that a notebook shows by itself.

    Attributes:
        spec: a Vega-Lite specification: panels side by side, each with the same layers.
    """

    spec: Spec

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The drawn rows. Rows with an arm disappear with it; rows with a step move when the page's x axis changes."""
        found: list[dict[str, Any]] = self.spec["data"]["values"]
        return found

    @property
    def panels(self) -> list[str]:
        """The titles of the panels."""
        found: list[str] = self.spec["facet"]["sort"]
        return found

    def save(self, path: Path) -> None:
        """Write the chart as .svg, .png or .pdf, each atomically."""
        import vl_convert

        with replacing(path) as temporary:
            if path.suffix == ".svg":
                temporary.write_text(vl_convert.vegalite_to_svg(self._paper()))
            elif path.suffix == ".png":
                temporary.write_bytes(vl_convert.vegalite_to_png(self._paper(), ppi=130))
            else:
                temporary.write_bytes(vl_convert.vegalite_to_pdf(self._paper()))

    def __repr__(self) -> str:
        return f"Chart({', '.join(self.panels)}; {len(self.rows)} rows)"

    def _repr_svg_(self) -> str:
        import vl_convert

        return str(vl_convert.vegalite_to_svg(self._paper()))

    def _paper(self) -> Spec:
        """The specification without the marks that only show values under the cursor."""
        spec = copy.copy(self.spec)
        layers = [layer for layer in spec["spec"]["layer"] if layer["mark"].get("opacity") != 0]
        return {**spec, "spec": {**spec["spec"], "layer": layers}, "background": "white"}


Draw = Callable[..., Chart | None]


def chart(rows: Rows, layers: Sequence[Spec], columns: int = 3, height: int = 200, free: str = "") -> Chart | None:
    """Make a chart of rows that name their panels; None without rows.

    Args:
        columns: maximum number of panels in a row.
        free: the channels, of "xy", whose scales differ between panels.
    """
    panels = list(dict.fromkeys(str(row["panel"]) for row in rows))
    if not panels:
        return None
    columns = min(columns, len(panels))
    spec = {
        "data": {"values": [dict(row) for row in rows]},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "title": None},
        "columns": columns,
        "spec": {"width": PAGE_WIDTH // columns - 60, "height": height, "layer": list(layers)},
        "resolve": {
            "axis": {"x": "independent", "y": "independent"},
            "scale": dict.fromkeys(free, "independent"),
        },
        "config": CONFIG,
    }
    return Chart(spec)


def by_arm(comparison: Comparison) -> Spec:
    """The colour channel of charts with a line or mark for each arm."""
    colors = arm_colors(comparison)
    scale = {"domain": list(colors), "range": list(colors.values())}
    return {"field": "arm", "type": "nominal", "scale": scale}


def by_name(field: str, colors: Mapping[str, str], title: str | None = None) -> Spec:
    """The colour channel of charts whose marks have their own names."""
    scale = {"domain": list(colors), "range": list(colors.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": title}}


def lines(y: Spec, color: Spec, tips: Sequence[str], x: Spec = X, **mark: Any) -> list[Spec]:
    """Layers of one line per colour and `run`, with the values under the cursor."""
    shared: Spec = {"x": x, "y": y, "color": color}
    line = {"mark": {"type": "line", "clip": True, **mark}, "encoding": {**shared, "detail": {"field": "run"}}}
    return [line, under(shared, tips)]


def under(encoding: Spec, tips: Sequence[str]) -> Spec:
    """A layer that shows values under the cursor: fields, each with its format after a colon."""
    shown = [dict(zip(("field", "format"), tip.split(":"), strict=False)) for tip in tips]
    return {
        "mark": {"type": "point", "size": 90, "opacity": 0, "clip": True},
        "encoding": {**encoding, "tooltip": shown},
    }


def value(field: str, title: str | None = None, kind: str = "quantitative", **more: Any) -> Spec:
    """A Vega-Lite encoding channel that shows a field of the rows."""
    return {"field": field, "type": kind, "title": title, **more}


def percent(field: str, title: str | None = None) -> Spec:
    """A vertical axis of shares from 0 on."""
    return value(field, title, axis={"format": ".0%"})


def finite(number: float) -> float | None:
    """Round a number to five digits for JSON; None if it is not finite."""
    return float(f"{number:.5g}") if abs(number) < float("inf") else None
