"""Writes the HTML report of a comparison or a single run as one file that needs no network."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from halfway.curriculum.support.atomic import replacing, write_text
from halfway.experiments.report.figures.all_figures import PICTURES, captions
from halfway.experiments.report.figures.style import STYLE, arm_colors
from halfway.experiments.report.html import rendered
from halfway.experiments.report.provenance import read_provenance, versions
from halfway.experiments.report.records import Comparison, load_comparison_records
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.summary import Summary, summarize
from halfway.experiments.report.tables.all_tables import tables, write_tables
from halfway.experiments.report.tables.arms import budget_text, plan_text
from halfway.experiments.report.tables.text import interval, number, percent

PIXELS_AN_INCH = 130


@dataclass(frozen=True, slots=True)
class Report:
    """The path of the written page, and the summary that it shows."""

    path: Path
    summary: Summary


def write_report(directory: Path) -> Report:
    """Write report.html, summary.json, summary.md and figures/*.png into a run or comparison directory.

    Raises:
        UserError: if the directory holds no run, or a record cannot be read.
    """
    comparison = load_comparison_records(directory)
    summary = summarize(comparison)
    write_tables(directory, summary)
    page = rendered(
        "report.html.j2",
        title=str(comparison.config.get("name") or directory.resolve().name),
        facts=facts(comparison, summary),
        cards=cards(summary, arm_colors(comparison)),
        tables=tables(summary),
        pictures=pictures(comparison.started(), summary, directory / "figures"),
    )
    path = directory / "report.html"
    write_text(path, page)
    return Report(path, summary)


def facts(comparison: Comparison, summary: Summary) -> dict[str, str]:
    """The facts at the top of the page, by label: arms, seeds, runs, budget, plan, command, machine and versions."""
    provenance = read_provenance(comparison.directory)
    used = provenance.get("versions")
    seeds = sorted({run.seed for run in comparison.all_runs})
    unfinished = sum(not run.finished for run in comparison.all_runs)
    runs = f"{len(comparison.all_runs)}"
    if unfinished:
        runs += f", {unfinished} of them unfinished: what follows is preliminary"
    listed = ", ".join(f"{package} {number}" for package, number in (used or versions()).items())
    found = {
        "Arms": ", ".join(comparison.runs),
        "Seeds": ", ".join(map(str, seeds)),
        "Runs": runs,
        "Budget": budget_text(summary),
        "Plan": plan_text(summary),
        "Command": "; ".join([*provenance.get("earlier", []), provenance.get("command", "not recorded")]),
        "Machine": str(provenance.get("machine", "not recorded")),
        "Versions": listed if used else f"of the environment that wrote this page: {listed}",
    }
    return found


def cards(summary: Summary, colors: Mapping[str, str]) -> list[dict[str, Any]]:
    """One card with the main results of each arm, by final pass@1, highest first; unevaluated arms come last."""
    arms = {arm.arm: arm for arm in summary.arms}
    order = [*summary.ranking, *(name for name in arms if name not in summary.ranking)]
    return [
        {
            "arm": name,
            "color": colors[name],
            "after": number(arms[name].after),
            "interval": bounds(arms[name].after),
            "gain": interval(arms[name].gain, signed=True),
            "wasted": percent(arms[name].wasted),
            "rollouts": number(arms[name].rollouts, 0),
        }
        for name in order
    ]


def bounds(estimate: Estimate | None) -> str:
    """The interval without its value, as text."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "no interval"
    return f"{estimate.low:.3f} to {estimate.high:.3f}"


def pictures(comparison: Comparison, summary: Summary, folder: Path) -> list[dict[str, str]]:
    """Draw every picture that has data, save it as PNG, and return it as an inline SVG with its heading and caption."""
    folder.mkdir(exist_ok=True)
    explained = captions(summary.intervals)
    drawn = []
    with rc_context(STYLE):
        for picture in PICTURES:
            figure = picture.draw(comparison, summary)
            if figure is None:
                continue
            with replacing(folder / f"{picture.name}.png") as temporary:
                figure.savefig(temporary, dpi=PIXELS_AN_INCH, format="png")
            drawn.append({"heading": picture.heading, "caption": explained[picture.name], "source": inline_svg(figure)})
    return drawn


def inline_svg(figure: Figure) -> str:
    """The figure as SVG in a `data:` URL; equal figures give equal text."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
