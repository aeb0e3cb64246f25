"""Writes the HTML report of a comparison or a single run as one file that needs no network."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import WriteError, read_whole, require_no_link, write_text, writing
from halfway.curriculum.support.user_cache import user_cache
from halfway.experiments.config.design import flatten
from halfway.experiments.report.analysis.comparison_summary import Summary, summarize
from halfway.experiments.report.conclusions import conclude
from halfway.experiments.report.figures.all_figures import PICTURES
from halfway.experiments.report.figures.charts import Chart
from halfway.experiments.report.figures.colors import arm_colors
from halfway.experiments.report.figures.learning_curves import measures, shown_first
from halfway.experiments.report.html import render
from halfway.experiments.report.problems import problem_rows, problem_views, without_texts
from halfway.experiments.report.provenance import read_provenance, versions
from halfway.experiments.report.records import Comparison, Run, load_comparison_records
from halfway.experiments.report.tables.all_tables import tables, write_tables
from halfway.experiments.report.tables.arm_tables import budget_text, plan_text
from halfway.experiments.report.text_tables import NONE, TextTable, interval, number, percent

RELOAD = 15
UNSAID = ("name", "seed", "output")


def write_report(directory: Path) -> Path:
    """Write report.html, summary.json and summary.md into a run or comparison directory. Returns the path of the page.

    Raises:
        UserError: if the directory has no run, a record cannot be read, or a file cannot be written.
    """
    comparison = load_comparison_records(directory)
    return write_page(comparison, summarize(comparison))


def write_live_report(directory: Path, say: Callable[[str], None]) -> None:
    """Write the report again every `RELOAD` seconds, until all runs have ended or the user interrupts.

    A browser reloads the page as often, and keeps the chosen arms and x axis.

    Args:
        say: prints the address of the page for the user.

    Raises:
        UserError, WriteError: like `write_report`.
    """
    announced = False
    while not (comparison := load_comparison_records(directory)).ended:
        began = time.monotonic()
        path = write_page(comparison, summarize(comparison), RELOAD)
        if not announced:
            say(f"open {path.resolve().as_uri()}; it follows the runs until they end, or until Ctrl-C")
        announced = True
        time.sleep(max(RELOAD, 4 * (time.monotonic() - began)))


def write_page(comparison: Comparison, summary: Summary, reload: int = 0) -> Path:
    """Write the files of `write_report` from loaded records. Returns the path of the page.

    Args:
        reload: seconds after which a browser reloads the page; 0 = never.

    Raises:
        WriteError: if a file cannot be written.
    """
    directory = comparison.directory
    write_tables(directory, summary)
    path = directory / "report.html"
    write_text(path, page_text(comparison, summary, reload))
    return path


def page_text(comparison: Comparison, summary: Summary, reload: int = 0) -> str:
    """Build the page as HTML."""
    started = comparison.started()
    drawn = charts(started, summary)
    views = problem_views(started)
    return render(
        "report.html.j2",
        library=library(),
        reload=reload,
        title=str(comparison.config.get("name") or comparison.directory.resolve().name),
        verdict=conclude(summary),
        facts=facts(comparison, summary),
        cards=cards(summary, arm_colors(comparison)),
        tables=[*tables(summary), *settings(comparison)],
        pictures=[each for each in PICTURES if each.name in drawn],
        data=embed(page_data(started, summary, drawn)),
        chains=chains(comparison),
        arms=list(started.runs),
        rows=problem_rows(started, [view["name"] for view in views]),
        problems=views,
        without_texts=without_texts(started),
    )


@cache
def library() -> str:
    """Load the JavaScript for charts: Vega, Vega-Lite and their interpreter of expressions.

    Bundling it takes two seconds, so it is kept in the user's cache.
    """
    folder = user_cache("scripts")
    path = folder / f"vega-{version('vl-convert-python')}.js" if folder else None
    if path and path.exists():
        with suppress(UserError, UnicodeDecodeError):
            digest, _, kept = read_whole(path, "remove it").decode().partition("\n")
            if digest == _digest(kept):
                return kept
    found = bundle()
    if path:
        with suppress(WriteError):
            write_text(path, f"{_digest(found)}\n{found}")
    return found


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=20).hexdigest()


def bundle() -> str:
    """Bundle the JavaScript for charts, in ASCII."""
    import vl_convert

    found = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in found)


def charts(comparison: Comparison, summary: Summary) -> dict[str, Chart]:
    """Every chart that has data, by name."""
    found = {picture.name: picture.draw(comparison, summary) for picture in PICTURES}
    return {name: drawn for name, drawn in found.items() if drawn is not None}


def save_charts(comparison: Comparison, summary: Summary) -> Path:
    """Write every chart that has data as figures/*.svg, *.png and *.pdf. Returns the folder.

    Raises:
        WriteError: if a file cannot be written.
    """
    folder = comparison.directory / "figures"
    require_no_link(folder)
    with writing(folder):
        folder.mkdir(exist_ok=True)
    for name, drawn in charts(comparison.started(), summary).items():
        for kind in ("svg", "png", "pdf"):
            drawn.save(folder / f"{name}.{kind}")
    return folder


def page_data(comparison: Comparison, summary: Summary, drawn: Mapping[str, Chart]) -> dict[str, Any]:
    """The data of the page's script: arms, measures of cost, costs of arms by step, and the charts."""
    axes = measures(summary.design)
    return {
        "arms": arm_colors(comparison),
        "first": shown_first(comparison, summary.design.baseline),
        "measures": {axis.name: axis.label for axis in axes},
        "spent": {
            arm: {axis.name: _mean_spent([[axis.of(step) for step in run.steps] for run in runs]) for axis in axes}
            for arm, runs in comparison.runs.items()
        },
        "charts": {name: _by_column(each) for name, each in drawn.items()},
    }


def _mean_spent(spent: list[list[float]]) -> list[float]:
    """Means over the seeds that reached each step, from 0 before the first step."""
    longest = max(map(len, spent))
    means = [np.mean([one[step] for one in spent if step < len(one)]) for step in range(longest)]
    return [0.0, *(float(f"{mean:.6g}") for mean in means)]


def _by_column(drawn: Chart) -> dict[str, Any]:
    """A chart's specification, with the names of its rows' fields written once."""
    columns = list(dict.fromkeys(name for row in drawn.rows for name in row))
    rows = [[row.get(name) for name in columns] for row in drawn.rows]
    return {**drawn.spec, "data": {"columns": columns, "rows": rows}}


def embed(data: Any) -> str:
    """JSON without characters that have a meaning in HTML or control a terminal."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return "".join(letter if letter not in "<>&\x7f" else f"\\u{ord(letter):04x}" for letter in text)


def facts(comparison: Comparison, summary: Summary) -> dict[str, str]:
    """The facts at the top of the page, by label: arms, seeds, runs, budget, plan, command, machine and versions."""
    provenance = read_provenance(comparison.directory)
    used = provenance.get("versions")
    seeds = sorted({run.seed for run in comparison.all_runs})
    unfinished = sum(not run.finished for run in comparison.all_runs)
    runs = f"{len(comparison.all_runs)}"
    if unfinished:
        runs += f", {unfinished} of them unfinished: the results are preliminary"
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
            "extra_information": arms[name].extra_information,
            "gain": interval(arms[name].gain, signed=True),
            "wasted": percent(arms[name].wasted),
            "rollouts": number(arms[name].rollouts, 0),
        }
        for name in order
    ]


def settings(comparison: Comparison) -> Iterator[TextTable]:
    """A table of the settings in which the first runs of the arms differ, apart from their chains, if any."""
    configs = {arm: flatten(runs[0].config) for arm, runs in comparison.runs.items() if runs}
    names = [name for name in dict.fromkeys(name for one in configs.values() for name in one) if name not in UNSAID]
    differing = [
        name
        for name in names
        if not name.startswith("controllers") and len({str(config.get(name, NONE)) for config in configs.values()}) > 1
    ]
    rows = tuple((name, *(str(config.get(name, NONE)) for config in configs.values())) for name in differing)
    if rows:
        yield TextTable("Settings that differ", ("setting", *configs), rows, words=True)


def chains(comparison: Comparison) -> dict[str, str]:
    """Each arm's entry in the comparison's file, as YAML; of a single run, its chain."""
    import yaml

    arms = comparison.config.get("arms") or {}
    said = {arm: arms.get(arm) or _chain(runs[0]) for arm, runs in comparison.runs.items()}
    return {arm: yaml.safe_dump(one, sort_keys=False, allow_unicode=True) for arm, one in said.items() if one}


def _chain(run: Run) -> dict[str, Any]:
    return {"controllers": run.config["controllers"]} if "controllers" in run.config else {}
