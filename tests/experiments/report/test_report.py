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

from halfway.experiments.report.analysis.summary import summarize
from halfway.experiments.report.figures.all_figures import PICTURES
from halfway.experiments.report.figures.forest import contrast_forest, saving_forest
from halfway.experiments.report.figures.groups import pass_counts, zero_variance
from halfway.experiments.report.figures.learning_curves import CROWD, learning_curves, strata_curves
from halfway.experiments.report.figures.series import smoothed_ratio, summed_counts
from halfway.experiments.report.figures.style import PALETTE, count_colors, grid, legend_above, step_axis
from halfway.experiments.report.figures.timeline import Event, both, worked
from halfway.experiments.report.page import write_report
from halfway.experiments.report.provenance import read_provenance, write_provenance
from halfway.experiments.report.records import load_comparison_records

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


def test_an_event_log_tells_who_worked_when():
    told = worked(msgspec.convert(event, Event) for event in EVENTS)
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
    return write_report(directory).path


def test_report_needs_no_network(page):
    html = page.read_text()
    loaded = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"([^\"]*)\"", html)
    assert len(loaded) == len(PICTURES)
    assert all(address.startswith("data:image/svg+xml;base64,") for address in loaded)
    assert "@import" not in html and "url(" not in html
    assert "Content-Security-Policy\" content=\"default-src 'none';" in html
    [script] = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in html


def test_every_picture_is_saved_beside_the_report(page):
    names = {picture.name for picture in PICTURES}
    folder = page.parent / "figures"
    assert {path.name for path in folder.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert all((folder / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in names)
    assert all("<svg" in (folder / f"{name}.svg").read_text() for name in names)


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
    html = write_report(tmp_path).path.read_text()
    assert "2, 2 of them unfinished" in html
    assert "1 cut-off last line of" in html and "1 run has not finished" in html


def test_single_run_without_prefixes_or_evaluations(tmp_path):
    write_records(tmp_path, [decision()], [step_record()], [])
    html = write_report(tmp_path).path.read_text()
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"rollout_fates", "pass_counts", "zero_variance", "learner_metrics", "timing"}
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
    assert summed_counts([run, run], "generated").tolist() == [[0] * 8 + [2], [2] + [0] * 8]
    assert summed_counts([run], "fresh").sum() == 1 and summed_counts([run], "prefix") is None
    titles = [[ax.get_title() for ax in draw(comparison).axes] for draw in (pass_counts, zero_variance)]
    assert titles == [[f"{run.arm}: fresh", f"{run.arm}: generated"], ["fresh groups", "generated groups"]]


def test_smoothing_divides_sums_and_marks_empty_steps():
    assert smoothed_ratio(np.array([1.0, 0, 2]), np.array([2.0, 0, 2])) == pytest.approx([0.5, 0.75, 1.0])
    assert np.isnan(smoothed_ratio(np.zeros(3), np.zeros(3))).all()


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
    assert [ax.get_title() for ax in contrasts.axes] == titles
    assert [label.get_text() for label in contrasts.axes[0].get_yticklabels()] == ["prefix_sampling vs greso"]
    assert [ax.get_title() for ax in costs.axes] == ["rollouts", "generated tokens", "cost, rho 0.25", "cost, rho 1"]
    assert costs.axes[0].get_ylabel() == "to greso's end"


def test_a_clear_contrast_is_filled():
    heights = {"a": (0.3, 0.31, 0.32), "b": (0.6, 0.615, 0.62), "c": (0.3, 0.4, 0.2)}
    runs = [run_of(arm, seed, scores=[0.1, own[seed]]) for arm, own in heights.items() for seed in range(3)]
    comparison = comparison_of(runs, contrasts={"baseline": "a"})
    ax = contrast_forest(comparison, summarize(comparison)).axes[0]
    inside = [line.get_markerfacecolor() for line in ax.lines if line.get_marker() == "o"]
    assert inside == [PALETTE[1], "white"]


def test_of_a_crowd_of_arms_the_ends_and_the_baseline_are_named():
    arms = {f"arm {i:02}": 0.3 + 0.01 * i for i in range(CROWD + 4)}
    runs = [run_of(arm, seed, scores=[0.1, end]) for arm, end in arms.items() for seed in range(4)]
    comparison = comparison_of(runs, contrasts={"baseline": "arm 10"})
    ax = learning_curves(comparison).axes[0]
    assert len(ax.lines) == len(arms) and len(ax.collections) == 1, "one band, the baseline's"
    named = [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]
    assert named == [*(f"arm {i:02}" for i in (23, 22, 21, 20, 19, 3, 2, 1, 0)), "arm 10"]


def test_two_or_three_seeds_are_drawn_as_runs() -> None:
    runs = [run_of(arm, seed, scores=[0.1, 0.3 + seed / 10]) for arm in "ab" for seed in range(2)]
    runs.append(run_of("late", 0, [[0, 8], [8, 8]]))
    ax = learning_curves(comparison_of(runs)).axes[0]
    assert len(ax.lines) == 3 + 4 and not ax.collections, "a line for each arm and each run, and no band"


def test_a_legend_of_many_long_names_fits_the_page():
    figure, axes = grid(1, 1, height=3)
    for i in range(11):
        axes[0][0].plot([0, 1], [i, i], label=f"a_chain_of_several_controllers_{i}")
    legend_above(figure, axes[0][0])
    [legend] = figure.legends
    assert legend.get_window_extent().width < figure.bbox.width and len(legend.get_texts()) == 11


def test_a_run_of_two_steps_has_whole_steps_on_its_axis():
    _, axes = grid(1, 1, height=3)
    axes[0][0].plot([0, 1], [0.1, 0.2])
    step_axis(axes[0][0])
    assert [tick for tick in axes[0][0].get_xticks() if 0 <= tick <= 1] == [0, 1]


def test_strata_have_a_panel_for_each_arm(page):
    panels = strata_curves(load_comparison_records(page.parent)).axes
    assert [ax.get_title() for ax in panels] == ["greso", "prefix_sampling"]
    assert [line.get_label() for line in panels[0].lines] == list(STRATA)
    assert panels[0].lines[0].get_ydata()[0] > 0.5 > panels[0].lines[3].get_ydata()[0]
