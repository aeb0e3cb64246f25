"""Writes the HTML report of a comparison or a single run as one file that needs no network."""

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from halfway.curriculum.support.atomic import replacing, require_no_link, write_text, writing
from halfway.experiments.config.loading import flatten
from halfway.experiments.report.analysis.summary import Summary, summarize
from halfway.experiments.report.conclusions import conclude
from halfway.experiments.report.figures.all_figures import CAPTIONS, PICTURES
from halfway.experiments.report.figures.hover import hover
from halfway.experiments.report.figures.style import STYLE, arm_colors
from halfway.experiments.report.html import render
from halfway.experiments.report.problems import problem_views, without_texts
from halfway.experiments.report.provenance import read_provenance, versions
from halfway.experiments.report.records import Comparison, load_comparison_records
from halfway.experiments.report.tables.all_tables import tables, write_tables
from halfway.experiments.report.tables.arm_tables import budget_text, plan_text
from halfway.experiments.report.text_tables import NONE, TextTable, interval, number, percent

PIXELS_AN_INCH = 130
UNSAID = ("name", "seed", "output")


@dataclass(frozen=True, slots=True)
class Report:
    """The path of the written page, and the summary that it shows."""

    path: Path
    summary: Summary


def write_report(directory: Path) -> Report:
    """Write report.html, summary.json, summary.md and figures/*.png and *.svg into a run or comparison directory.

    Raises:
        UserError: if the directory holds no run, a record cannot be read, or a file cannot be written.
    """
    comparison = load_comparison_records(directory)
    summary = summarize(comparison)
    return Report(write_page(comparison, summary), summary)


def write_page(comparison: Comparison, summary: Summary) -> Path:
    """What `write_report` writes, of records that have been read. Returns the path of the page.

    Raises:
        WriteError: if a file cannot be written.
    """
    directory = comparison.directory
    write_tables(directory, summary)
    page = render(
        "report.html.j2",
        title=str(comparison.config.get("name") or directory.resolve().name),
        verdict=conclude(summary),
        facts=facts(comparison, summary),
        cards=cards(summary, arm_colors(comparison)),
        tables=[*tables(summary), *settings(comparison)],
        pictures=pictures(comparison.started(), summary, directory / "figures"),
        problems=problem_views(comparison.started()),
        without_texts=without_texts(comparison.started()),
    )
    path = directory / "report.html"
    write_text(path, page)
    return path


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
            "interval": interval(arms[name].after).partition(" ")[2] or "no interval",
            "told": arms[name].told,
            "gain": interval(arms[name].gain, signed=True),
            "wasted": percent(arms[name].wasted),
            "rollouts": number(arms[name].rollouts, 0),
        }
        for name in order
    ]


def settings(comparison: Comparison) -> Iterator[TextTable]:
    """The settings in which the first runs of the arms differ, if there are any."""
    configs = {arm: flatten(runs[0].config) for arm, runs in comparison.runs.items() if runs}
    names = [name for name in dict.fromkeys(name for one in configs.values() for name in one) if name not in UNSAID]
    differing = [name for name in names if len({str(config.get(name, NONE)) for config in configs.values()}) > 1]
    rows = tuple((name, *(str(config.get(name, NONE)) for config in configs.values())) for name in differing)
    if rows:
        yield TextTable("Settings that differ", ("setting", *configs), rows, words=True)


def pictures(comparison: Comparison, summary: Summary, folder: Path) -> list[dict[str, str]]:
    """Draw every picture that has data, save it as PNG and SVG, and return it as an inline SVG with its words."""
    require_no_link(folder)
    with writing(folder):
        folder.mkdir(exist_ok=True)
    drawn = []
    with rc_context(STYLE):
        for picture in PICTURES:
            figure = picture.draw(comparison, summary)
            if figure is None:
                continue
            vectors = svg(figure)
            write_text(folder / f"{picture.name}.svg", vectors)
            with replacing(folder / f"{picture.name}.png") as temporary:
                figure.savefig(temporary, dpi=PIXELS_AN_INCH, format="png")
            source = "data:image/svg+xml;base64," + base64.b64encode(vectors.encode()).decode()
            words = {"heading": picture.heading, "caption": CAPTIONS[picture.name]}
            drawn.append({**words, "source": source, "hover": hover(figure)})
    return drawn


def svg(figure: Figure) -> str:
    """The figure as SVG; equal figures give equal text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
