"""The report: written as one file that needs no network, from finished and unfinished runs."""

import base64
import hashlib
import json
import re

import msgspec
import numpy as np
import pytest
from contests import comparison_of, run_of
from synthetic_runs import (
    ARMS,
    STRATA,
    decision,
    evaluation_record,
    step_record,
    write_comparison,
    write_records,
    write_run,
)

from halfway.curriculum.decision_log import UNUSED
from halfway.experiments.report import report_page as page_writer
from halfway.experiments.report.analysis.comparison_summary import summarize
from halfway.experiments.report.figures.all_figures import PICTURES
from halfway.experiments.report.figures.colors import PALETTE, count_colors, shades
from halfway.experiments.report.figures.forest import contrast_forest, saving_forest
from halfway.experiments.report.figures.groups import pass_counts, zero_variance
from halfway.experiments.report.figures.learning_curves import CROWD, learning_curves, shown_first, strata_curves
from halfway.experiments.report.figures.series import smooth_ratio, sum_counts
from halfway.experiments.report.figures.spending import FATES, rollout_fates, timing
from halfway.experiments.report.figures.style import grid, legend_above
from halfway.experiments.report.figures.timeline import Event, both, lags, read_spans, timeline
from halfway.experiments.report.provenance import read_provenance, write_provenance
from halfway.experiments.report.records import load_comparison_records
from halfway.experiments.report.report_page import embed, save_charts, write_report

KINDS = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
EVENTS = [
    {"event": "draw", "t": 0.0, "tickets": [["0.0.0", "p0", "fresh"]], "version": 0},
    {"event": "done", "t": 4.0, "ticket": "0.0.0", "began": 0.0, "ended": 4.0, "lag": 0, "group": "x"},
    {"event": "commit", "t": 5.0, "step": 0},
    {"event": "weights", "t": 9.0, "updated": 7.0, "version": 1},
    {"event": "done", "t": 9.5, "ticket": "0.1.0", "began": 4.0, "ended": 6.0, "lag": 1, "group": "x"},
    {"event": "done", "t": 9.5, "ticket": "0.1.1", "began": 8.0, "ended": 9.0, "lag": 1, "group": "x"},
    {"event": "commit", "t": 10.0, "step": 1},
    {"event": "weights", "t": 12.0, "updated": 11.0, "version": 2},
    {"event": "commit", "t": 13.0, "step": 2},
]


def test_an_event_log_has_the_times_of_sampler_and_learner():
    told = read_spans(msgspec.convert(event, Event) for event in EVENTS)
    assert (told.sampling, told.updates) == ([(0, 6), (8, 9)], [(5, 7), (10, 11)])
    assert (told.weights, told.lags) == ([(7, 9), (11, 12)], [[0], [1, 1]])  # the third step has not ended
    assert both(told.sampling, told.updates) == 1


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of two arms with two seeds."""
    directory = tmp_path_factory.mktemp("comparison")
    write_comparison(directory, {arm: ARMS[arm] for arm in ("greso", "prefix_sampling")}, seeds=(0, 1), steps=6)
    write_provenance(directory, ["halfway", "compare", "<lab>.yaml"])
    (directory / "greso" / "seed-0" / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in EVENTS))
    return write_report(directory)


def test_report_needs_no_network(page):
    html = page.read_text()
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not re.findall(r"<(?:script|link|img|iframe|source)\b", markup)
    assert "@import" not in markup and "url(" not in markup and len(html) < 3e6
    assert "Content-Security-Policy\" content=\"default-src 'none';" in html
    [script] = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in html


def test_the_script_of_charts_is_bundled_once(tmp_path, monkeypatch):
    bundled: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(page_writer, "bundle", lambda: bundled.append("vega") or "vega")
    for _ in range(2):
        assert page_writer.library.__wrapped__() == "vega"
    assert len(bundled) == 1
    [kept] = (tmp_path / "halfway" / "scripts").iterdir()
    for content in (b"", kept.read_bytes()[:-1], b"\xff"):  # a damaged one is none
        kept.write_bytes(content)
        bundled.clear()
        assert page_writer.library.__wrapped__() == "vega" and bundled
    kept.parent.chmod(0o777)  # anybody may write there
    bundled.clear()
    assert page_writer.library.__wrapped__() == "vega" and bundled


def test_the_page_has_every_chart_and_they_are_saved_on_demand(page):
    drawn = re.findall(r'data-chart="(\w+)"', page.read_text())
    assert set(drawn) == {picture.name for picture in PICTURES}
    assert not (page.parent / "figures").exists()
    comparison = load_comparison_records(page.parent)
    folder = save_charts(comparison, summarize(comparison))
    assert {path.name for path in folder.iterdir()} == {f"{name}.{kind}" for name in drawn for kind in KINDS}
    for name in drawn:
        assert all((folder / f"{name}.{kind}").read_bytes().startswith(start) for kind, start in KINDS.items())
    assert "prefix_sampling" in (folder / "learning_curves.svg").read_text()


def test_no_character_of_the_data_means_anything_in_html():
    said = embed({"</pre><script>": "&lt;\x7f\x9b\ud800"})
    assert not set(said) & set("<>&\x7f\x9b\ud800") and json.loads(said) == {"</pre><script>": "&lt;\x7f\x9b\ud800"}


def test_report_says_what_was_compared(page):
    html = page.read_text()
    assert "halfway compare &lt;lab&gt;.yaml" in html
    assert "1,536 rollouts per run" in html
    assert "prefix_sampling, 7 of 8" in html
    assert "unfinished" not in html


def test_report_of_equal_runs_is_equal(page):
    before = page.read_bytes()
    write_report(page.parent)
    assert page.read_bytes() == before


def test_unfinished_runs_are_reported_as_such(tmp_path):
    write_run(tmp_path / "grpo" / "seed-0", ARMS["grpo"], 0, steps=4, state="running")
    started = write_records(tmp_path / "greso" / "seed-0", [decision()], [], [evaluation_record()], state="running")
    (started / "decisions.jsonl").write_text('{"step": 0, "prob')
    html = write_report(tmp_path).read_text()
    assert "2, 2 of them unfinished" in html
    assert "1 cut-off last line of" in html and "1 run has not finished" in html


def test_a_live_report_follows_its_runs_to_their_end(tmp_path, monkeypatch):
    """The page reloads itself while a planned run is missing, and no longer when all have ended."""
    write_comparison(tmp_path, {arm: ARMS[arm] for arm in ("greso", "prefix_sampling")}, seeds=(0, 1), steps=3)
    status = tmp_path / "greso" / "seed-1" / "status.json"
    status.write_text('{"state": "running"}')
    pages, told = [], []

    def wait(seconds):
        assert seconds >= page_writer.RELOAD
        pages.append((tmp_path / "report.html").read_text())
        if len(pages) == 2:
            status.write_text('{"state": "failed"}')

    monkeypatch.setattr(page_writer.time, "sleep", wait)
    page_writer.write_live_report(tmp_path, told.append)
    assert len(pages) == 2 and all('http-equiv="refresh" content="15"' in page for page in pages)
    assert len(told) == 1 and told[0].startswith(f"open file://{tmp_path}/report.html;")
    assert 'http-equiv="refresh"' not in write_report(tmp_path).read_text()


@pytest.mark.parametrize("steps", ["", "{"])
def test_a_run_without_a_whole_step_has_a_report(steps, tmp_path):
    (write_run(tmp_path / "run", ARMS["grpo"], 0, 3) / "steps.jsonl").write_text(steps)
    assert "No run has been evaluated twice yet" in write_report(tmp_path / "run").read_text()


def test_single_run_without_prefixes_or_evaluations(tmp_path):
    write_records(tmp_path, [decision()], [step_record()], [])
    html = write_report(tmp_path).read_text()
    drawn = set(re.findall(r'data-chart="(\w+)"', html))
    assert drawn == {"rollout_fates", "pass_counts", "zero_variance", "training", "timing"}
    assert "What the prefixes do" not in html


def test_generated_groups_have_panels_of_their_own(tmp_path):
    groups = [
        decision(k=3),
        decision(k=8, origin="generated"),
        decision(1, k=0, origin="generated"),
        decision(k=0, n=0),
    ]
    write_records(tmp_path, groups, [step_record(), step_record(1)], [])
    comparison = load_comparison_records(tmp_path)
    (run,) = comparison.all_runs
    assert sum_counts([run, run], "generated").tolist() == [[0] * 8 + [2], [2] + [0] * 8]
    assert sum_counts([run], "fresh").sum() == 1 and sum_counts([run], "prefix") is None
    titles = [draw(comparison).panels for draw in (pass_counts, zero_variance)]
    assert titles == [[f"{run.arm}: fresh", f"{run.arm}: generated"], ["fresh groups", "generated groups"]]


def test_smoothing_divides_sums_and_marks_empty_steps():
    assert smooth_ratio(np.array([1.0, 0, 2]), np.array([2.0, 0, 2])) == pytest.approx([0.5, 0.75, 1.0])
    assert np.isnan(smooth_ratio(np.zeros(3), np.zeros(3))).all()


@pytest.mark.parametrize("size", [2, 3, 4, 8, 16])
def test_each_count_has_a_colour_and_the_ends_are_grey(size):
    colors = count_colors(size)
    assert len(colors) == size + 1
    assert (colors[0], colors[-1]) == ("#52606d", "#cbd2d9")


def test_provenance_is_read_back(tmp_path):
    assert read_provenance(tmp_path) == {}
    write_provenance(tmp_path, ["halfway", "run", "a.yaml"])
    record = read_provenance(tmp_path)
    assert record["command"] == "halfway run a.yaml"
    assert "numpy" in record["versions"] and "earlier" not in record


def test_provenance_names_every_command_of_a_result_that_grew(tmp_path):
    for arm in ("a", "b", "a", "c", "c"):
        write_provenance(tmp_path, ["halfway", "compare", "x.yaml", "--arms", arm])
    record = read_provenance(tmp_path)
    assert record["command"].endswith("--arms c")
    assert [command[-1] for command in record["earlier"]] == ["b", "a"]


def test_contrasts_and_ratios_are_drawn_for_every_condition(page):
    comparison = load_comparison_records(page.parent)
    summary = summarize(comparison)
    contrasts, costs = contrast_forest(comparison, summary), saving_forest(comparison, summary)
    titles = ["equal rollouts *", "equal steps", "equal tokens", "equal cost, rho 0.25", "equal cost, rho 1"]
    assert contrasts.panels == titles and {row["name"] for row in contrasts.rows} == {"prefix_sampling vs greso"}
    axes = ["rollouts", "generated tokens", "cost, rho 0.25", "cost, rho 1"]
    assert costs.panels == [f"to greso at its end: {axis}" for axis in axes]


def test_a_clear_contrast_is_filled():
    heights = {"a": (0.3, 0.31, 0.32), "b": (0.6, 0.615, 0.62), "c": (0.3, 0.4, 0.2)}
    runs = [run_of(arm, seed, scores=[0.1, own[seed]]) for arm, own in heights.items() for seed in range(3)]
    comparison = comparison_of(runs, contrasts={"baseline": "a"})
    found = contrast_forest(comparison, summarize(comparison))
    rows = [row for row in found.rows if row["panel"] == found.panels[0]]
    assert [row["clear"] for row in rows] == [True, False]
    drawn = found._repr_svg_()
    assert drawn.count(f'fill="{PALETTE[1]}"') == len(found.panels) and f'fill="{PALETTE[2]}"' not in drawn


def test_of_a_crowd_of_arms_the_ends_and_the_baseline_are_shown_first():
    arms = {f"arm {i:02}": 0.3 + 0.01 * i for i in range(CROWD + 4)}
    runs = [run_of(arm, seed, scores=[0.1, end]) for arm, end in arms.items() for seed in range(4)]
    comparison = comparison_of(runs, contrasts={"baseline": "arm 10"})
    named = [*(f"arm {i:02}" for i in (23, 22, 21, 20, 19, 3, 2, 1, 0)), "arm 10"]
    assert shown_first(comparison, "arm 10") == named
    assert {row["arm"] for row in learning_curves(comparison).rows} == set(arms)


def test_two_or_three_seeds_are_drawn_as_runs() -> None:
    runs = [run_of(arm, seed, scores=[0.1, 0.3 + seed / 10]) for arm in "ab" for seed in range(2)]
    runs.append(run_of("late", 0, [[0, 8], [8, 8]]))
    rows = learning_curves(comparison_of(runs)).rows
    drawn = {(row["arm"], row["run"]) for row in rows}
    wanted = {(arm, run) for arm in "ab" for run in ("mean", "seed 0", "seed 1")}
    assert drawn == wanted | {("late", "mean")} and not any("low" in row for row in rows), "and no band"


def test_saved_curves_name_the_measure_that_they_show(page):
    drawn = learning_curves(load_comparison_records(page.parent))
    titles = {layer["encoding"]["x"]["title"] for layer in drawn.spec["spec"]["layer"] if "x" in layer["encoding"]}
    assert titles == {"rollouts"} and all(row["x"] == row["rollouts"] for row in drawn.rows)


def test_ramps_run_from_end_to_end():
    assert shades(("#000000", "#ff8000"), 3) == ["#000000", "#804000", "#ff8000"]
    assert shades(("#000000", "#ff8000"), 1) == ["#804000"] and shades(("#000000", "#ff8000"), 0) == []


def test_the_timeline_shows_work_and_lags(page):
    comparison = load_comparison_records(page.parent)
    work = [(row["work"], row["start"], row["until"]) for row in timeline(comparison).rows]
    assert work[:2] == [("sampling", 0, 1), ("sampling", 3, 4)] and ("update", 0, 2) in work
    assert [row["y"] for row in lags(comparison).rows] == [0, 0, 1, 1]


def test_a_legend_of_many_long_names_fits_the_page():
    figure, axes = grid(1, 1, height=3)
    for i in range(11):
        axes[0][0].plot([0, 1], [i, i], label=f"a_chain_of_several_controllers_{i}")
    legend_above(figure, axes[0][0])
    [legend] = figure.legends
    assert legend.get_window_extent().width < figure.bbox.width and len(legend.get_texts()) == 11


def test_strata_have_a_panel_for_each_arm(page):
    drawn = strata_curves(load_comparison_records(page.parent))
    assert drawn.panels == ["greso", "prefix_sampling"]
    assert list(dict.fromkeys(row["stratum"] for row in drawn.rows)) == list(STRATA)
    first = {row["stratum"]: row["y"] for row in reversed(drawn.rows) if row["arm"] == "greso"}
    assert first[next(iter(STRATA))] > 0.5 > first[list(STRATA)[3]]


def luminance(color):
    """WCAG's relative luminance."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_a_share_can_be_read_on_its_bar(page):
    comparison = load_comparison_records(page.parent)
    for drawn in (rollout_fates(comparison), timing(comparison)):
        bar, text = (layer["encoding"]["color"] for layer in drawn.spec["spec"]["layer"])
        for part, color in zip(bar["scale"]["domain"], bar["scale"]["range"], strict=True):
            ink = "#ffffff" if repr(part) in text["condition"]["test"] else text["value"]
            assert contrast(ink, color) >= 4.5, part


def test_every_outcome_of_a_rollout_has_a_share():
    assert {*UNUSED, "trained", "carried", "waiting", "lost"} == {fate.replace("-", "_") for fate in FATES}


def test_lines_of_strata_can_be_seen_by_day_and_night(page):
    drawn = strata_curves(load_comparison_records(page.parent))
    colors = drawn.spec["spec"]["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert min(contrast(color, ground) for color in colors for ground in ("#ffffff", "#1c232b")) > 1.6
