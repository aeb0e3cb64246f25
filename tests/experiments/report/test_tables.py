"""The format of a comparison's numbers."""

import io
import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from contests import comparison_of, contest, run_of
from rich.console import Console
from synthetic_runs import ARMS, STRATA, write_comparison

from halfway.experiments.output_flags import as_json
from halfway.experiments.report.analysis.arm_summary import Timing
from halfway.experiments.report.analysis.comparison_summary import summarize
from halfway.experiments.report.analysis.pooled import PooledRatio
from halfway.experiments.report.analysis.sweeps import Sweep, Trial
from halfway.experiments.report.conclusions import conclude
from halfway.experiments.report.figures.learning_curves import learning_curves
from halfway.experiments.report.records import Run, load_comparison_records
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.tables.all_tables import tables, tuning_table, write_tables
from halfway.experiments.report.tables.arm_tables import arm_table, plan_text, quick_table, timing_text
from halfway.experiments.report.tables.contrasts import contrast_table, equal_cost_table
from halfway.experiments.report.tables.costs import ratio_text, saving_tables
from halfway.experiments.report.text_tables import NONE, TextTable, interval, p_value, seeds_text

PLAN = "contrasts: {baseline: grpo}\ntargets: [0.35]\ncosts: {rho: [0.5]}\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of two arms with three seeds."""
    directory = tmp_path_factory.mktemp("tables")
    write_comparison(directory, {arm: ARMS[arm] for arm in ("grpo", "greso")}, steps=8, plan=PLAN)
    write_tables(directory, summarize(load_comparison_records(directory)))
    return directory


def test_every_table_is_in_every_form(written: Path) -> None:
    titles = [table.title for table in tables(summarize(load_comparison_records(written)))]
    page = (written / "summary.md").read_text()
    assert all(f"**{title}**" in page for title in titles)
    wanted = [
        "Contrasts at equal rollouts (headline)",
        "Final pass rate by stratum",
    ]
    assert set(wanted) < set(titles)
    equal = next(table for table in tables(summarize(load_comparison_records(written))) if "equal cost" in table.title)
    assert [re.sub(r"[\d,]+ ", "", name) for name in equal.columns] == [
        *("arm", "seeds", "rollouts", "steps", "generated tokens", "a cost of (rho 0.5)"),
    ]
    assert all(name in page for name in STRATA)


def test_nothing_in_a_table_of_a_summary_is_markup() -> None:
    bad = "<img src=x onerror=alert(1)> [a](http://x) ![a](http://x) | \x1b[2J"
    page = TextTable(bad, ("arm", bad), (("a", bad),), bad).markdown()
    assert not re.search(r"<img|(?<!\\)\]\(|\x1b", page) and page.count("&lt;img") == 4
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in page.split("\n\n")[1].splitlines()} == {3}


def test_the_file_has_every_seed(written: Path) -> None:
    content = json.loads((written / "summary.json").read_text())
    for arm in content["arms"]:
        assert arm["seeds"] == [0, 1, 2] and len(arm["after"]["values"]) == len(arm["rollouts"]["values"]) == 3
    headline = content["matched"][0]
    assert headline["headline"] and headline["axis"]["name"] == "rollouts"
    assert all(len(row["pass_at_1"]["values"]) == 3 for row in headline["rows"])
    (contrast,) = headline["contrasts"]
    ends = {row["arm"]: row["pass_at_1"]["value"] for row in headline["rows"]}
    assert contrast["difference"]["value"] == pytest.approx(ends[contrast["arm"]] - ends[contrast["reference"]])
    assert [each["axis"]["name"] for each in content["savings"]] == ["rollouts", "tokens", "cost_0.5"]
    assert {goal["score"] for goal in content["savings"][0]["goals"].values()} > {0.35}
    assert set(content["savings"][0]["rows"][1]["ratios"]) == {"end", "0.35"}
    assert content["design"]["named"] and content["design"]["targets"] == [0.35]


def test_contrasts_are_shown_with_the_smallest_difference_of_so_many_seeds() -> None:
    rng = np.random.default_rng(0)
    summary = summarize(contest(rng, {"grpo": 0.3, "up": 1.5, "same": 0.3}, contrasts={"baseline": "grpo"}))
    table = contrast_table(summary)
    up, same = table.rows
    assert up[0] == "up vs grpo" and up[2:5] == ("<0.001", "<0.001", "clear") and same[4] == "no"
    assert float(up[5]) > 0 and up[6] == "8"
    assert "the 2 contrasts that the file names" in table.caption
    assert "the 64 held-out problems are resampled" in table.caption


def test_the_summary_names_missing_runs_curves_and_contrasts() -> None:
    """Of four arms one has no run, one no curve; and of the planned contrasts only one can be made."""
    curves = {"grpo": [0.1, 0.3], "up": [0.1, 0.4], "short": [0.1]}
    runs = [run_of(arm, seed, scores=scores) for arm, scores in curves.items() for seed in (0, 1)]
    steps = runs[0].steps
    runs = [replace(run, steps=steps) for run in runs]
    planned = {"arms": {arm: {} for arm in ("grpo", "up", "short", "later")}, "contrasts": {"baseline": "grpo"}}
    summary = summarize(comparison_of(runs, **planned))
    assert (summary.not_started, summary.without_curve) == (("later",), ["short"])
    short = next(row for row in arm_table(summary).rows if row[0] == "short")
    assert short[4] == NONE and {row[0]: row[1] for row in quick_table(summary).rows}["short"] == NONE
    caption = arm_table(summary).caption
    assert "No run of later has finished a step yet." in caption
    assert "No run of short has two evaluations" in caption
    assert "2 contrasts have no runs to compare yet, and count in the adjustment." in contrast_table(summary).caption
    whole = summarize(comparison_of(runs[:4], contrasts={"baseline": "grpo"}))
    assert "No run of" not in arm_table(whole).caption and "the one contrast that" in contrast_table(whole).caption
    headless = saving_tables(summarize(comparison_of(runs[2:], **planned)))[0]
    assert "No run of grpo has two evaluations yet" in headless.caption


def test_an_arm_that_failed_is_not_one_that_has_not_started(tmp_path: Path) -> None:
    write_comparison(tmp_path, {"grpo": ARMS["grpo"]}, steps=8)
    (tmp_path / "comparison.yaml").write_text("arms: {grpo: {}, lost: {}, later: {}}\n")
    (tmp_path / "lost/seed-0").mkdir(parents=True)
    (tmp_path / "lost/seed-0/status.json").write_text('{"state": "failed"}')
    summary = summarize(load_comparison_records(tmp_path))
    assert (summary.failed, summary.not_started) == (("lost",), ("later",))
    assert "Failed before the first step: lost" in arm_table(summary).caption


def test_mixed_groups_are_those_of_a_run_whatever_the_batch(written: Path) -> None:
    summary = summarize(load_comparison_records(written))
    for arm, row in zip(summary.arms, quick_table(summary).rows, strict=True):
        assert arm.trained_per_step is not None
        assert float(row[3]) == pytest.approx(arm.trained_per_step.value * arm.steps.value, abs=0.51)


def test_the_plan_is_said_in_words(written: Path) -> None:
    summary = summarize(load_comparison_records(written))
    assert plan_text(summary) == "judged at equal rollouts; contrasts named: 1; targets 0.35"
    unplanned = summarize(comparison_of([run_of("a", 0, scores=[0.1, 0.2])]))
    assert plan_text(unplanned) == "judged at equal rollouts; no contrasts named: all pairs count; no targets"


def test_one_seed_has_no_interval_anywhere() -> None:
    runs = [run_of("a", 0, [[0] * 50, [0] * 50]), run_of("b", 0, [[0] * 50, [7, 8] * 25])]
    comparison = comparison_of(runs)
    summary = summarize(comparison)
    cells = [cell for table in tables(summary) for row in table.rows for cell in row]
    assert not [text for text in (*cells, *conclude(summary)) if "[" in text]
    assert not re.search(r'"(low|high)": [^n]', as_json(summary))
    chart = learning_curves(comparison)
    assert chart is not None and not [row for row in chart.rows if "low" in row]
    assert summary.intervals == "none, since one seed shows no spread over seeds"


def test_one_seed_is_marked() -> None:
    runs = [run_of(arm, 0, scores=[0.1, 0.3]) for arm in ("a", "b")]
    summary = summarize(comparison_of(runs))
    (row,) = contrast_table(summary).rows
    assert row[1:7] == ("+0.000", "-", "-", "-", "-", "1 only")
    assert "nothing is clear" in contrast_table(summary).caption
    assert "passes by problem were not recorded" in contrast_table(summary).caption
    assert all(row[1] == "1 only" for row in equal_cost_table(summary).rows)
    assert (seeds_text(1), seeds_text(8)) == ("1 only", "8")


def rising_to(**ends: tuple[float, ...]) -> list[Run]:
    """Runs that rise in straight lines from 0 over 200 rollouts."""
    return [run_of(arm, seed, scores=[0, end / 2, end]) for arm, own in ends.items() for seed, end in enumerate(own)]


def test_savings_say_what_the_baseline_spends_and_what_the_others_need() -> None:
    runs = rising_to(grpo=(0.4,) * 4, fast=(0.8,) * 4, slow=(0.1,) * 4)
    rollouts, tokens, *_ = saving_tables(summarize(comparison_of(runs, targets=[0.2, 0.9])))
    assert rollouts.title == "Savings in rollouts, by mean curves"
    assert rollouts.columns == (
        "arm",
        "seeds",
        "area",
        "minus grpo",
        "to grpo's end, 0.400",
        "to 0.2",
        "to 0.9",
        "P(best)",
    )
    assert rollouts.rows[0] == ("grpo", "4", "0.200", "-", "200", "100", "not reached", "0.00")
    half = "x0.50 [0.50, 0.50]"
    assert rollouts.rows[1] == ("fast", "4", "0.400", "+0.200 [+0.200, +0.200]*", half, half, "-", "1.00")
    assert rollouts.rows[2][4:] == ("not reached (100 %)", "not reached (100 %)", "-", "0.00")
    assert "grpo never reaches 0.9" in rollouts.caption and "rho is what the hours of published" in rollouts.caption
    assert "Area: " not in tokens.caption


def test_two_or_three_seeds_are_shown_as_runs_without_intervals_and_chances() -> None:
    runs = rising_to(grpo=(0.4, 0.5), fast=(0.8, 0.7))
    summary = summarize(comparison_of(runs))
    assert summary.intervals.startswith("none, since 2 seeds are few")
    shown = {table.title: {row[0]: row for row in table.rows} for table in tables(summary)}
    assert "0.750 (0.800, 0.700)" in shown["Arms"]["fast"]
    assert shown["Contrasts at equal rollouts (headline)"]["fast vs grpo"][1] == "+0.300"
    savings = next(rows for title, rows in shown.items() if title.startswith("Savings"))
    assert savings["fast"][3:] == ("+0.150", "x0.60", "-")
    everything = [cell for rows in shown.values() for row in rows.values() for cell in row]
    assert not any("[" in cell for cell in everything)
    assert not re.search(r'"(low|high|best|never)": ?[^n ]', as_json(summary))
    assert re.search(r'"values": ?\[\s*0\.8,\s*0\.7', as_json(summary))


def test_savings_with_judging_need_its_seconds() -> None:
    runs = rising_to(a=(0.6, 0.8), b=(0.2, 0.9))
    asked = saving_tables(summarize(comparison_of(runs, costs={"judge_second": 50})))
    assert "not all of these runs recorded its seconds" in asked[0].caption
    assert not any("judged" in table.title for table in asked)
    timed = [replace(run, evaluations=[replace(e, judge_seconds=e.seconds) for e in run.evaluations]) for run in runs]
    timed = [replace(run, steps=[replace(s, judge_seconds=s.seconds) for s in run.steps]) for run in timed]
    asked = saving_tables(summarize(comparison_of(timed, costs={"rho": [1], "judge_second": 50})))
    assert asked[-1].title == "Savings in cost, rho 1, judged, by mean curves"
    assert "Judged: + 50 x the seconds" in asked[0].caption


def test_a_single_arm_has_no_savings_and_one_seed_no_intervals() -> None:
    assert saving_tables(summarize(comparison_of(rising_to(a=(0.6, 0.8))))) == []
    table = saving_tables(summarize(comparison_of(rising_to(a=(0.4,), b=(0.8,)))))[0]
    assert table.rows[1] == ("b", "1 only", "0.400", "+0.200", "x0.50", "-")
    assert "One seed shows no spread over seeds" in table.caption


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "-"),
        (PooledRatio(None), "not reached"),
        (PooledRatio(None, 0.9, None, 0.73, 0.2, 0.4), "not reached (73 %)"),
        (PooledRatio(0.0, 0.0, 0.2, 0.0, 0.001, 0.001), "from the start*"),
        (PooledRatio(0.561), "x0.56"),
        (PooledRatio(0.5, 0.25, 1.0, 0.001, 0.04, 0.04), "x0.50 [0.25, 1.00]*"),
        (PooledRatio(0.9, 0.7, None, 0.08, 0.2, 0.4), "x0.90 [0.70, never] (8 %)"),
    ],
)
def test_a_ratio_says_its_interval_whether_it_is_clear_and_how_often_it_never_arrives(
    ratio: PooledRatio | None, text: str
) -> None:
    assert ratio_text(ratio) == text


def test_seconds_are_warned_of_where_updates_take_longer_than_rollouts() -> None:
    assert "reverse" not in timing_text(Timing(0.8, 0.2, 0.5))
    text = timing_text(Timing(0.3, 0.6, 2.04))
    assert "reverse" in text and "a trained token costs as much as 2 generated" in text and "78 % to 91 %" in text
    assert timing_text(None) == ""


def test_a_choice_at_the_edge_is_warned_of() -> None:
    settings = [Trial("1", {"lr": 1}, {"100": 0.2}, 0.2), Trial("2", {"lr": 2}, {"100": 0.3}, 0.3)]
    table = tuning_table({"a": Sweep(settings, "2", ["lr"])})
    assert table.rows == (("a, lr=1", "0.200", ""), ("a, lr=2", "0.300", "chosen, at the edge"))
    assert table.caption.startswith("Warning: a (lr) chose an end of the grid")
    inside = tuning_table({"a": Sweep(settings, "2")})
    assert "Warning" not in inside.caption and inside.rows[1][2] == "chosen"
    assert tuning_table({"a": Sweep(settings, "2", ["lr"], 2)}).rows[1][2] == "chosen, first of equals, at the edge"


def test_finals_have_a_column_if_there_were_any() -> None:
    first = Trial("1", {"lr": 3e-4}, {"100": 0.4}, 0.4)
    second = Trial("2", {"lr": 6e-4}, {"100": 0.3}, 0.3, {"101": 0.5}, 0.5)
    table = tuning_table({"a": Sweep([first, second], "2")})
    assert table.columns[2] == "whole budget, by seed" and "over the whole budget" in table.caption
    assert [row[1:] for row in table.rows] == [("0.400", "-", ""), ("0.300", "0.500", "chosen")]
    assert len(tuning_table({"a": Sweep([first], "1")}).columns) == 3
    by_seed = replace(second, final_areas={"100": 0.6, "101": 0.3})
    assert tuning_table({"a": Sweep([by_seed], "2")}).rows[0][2].endswith("(100: 0.600; 101: 0.300)")


def test_numbers_have_as_many_digits_as_they_need() -> None:
    assert interval(Estimate(1234.567, 1000, 2000), 1) == "1,234.6 [1,000.0, 2,000.0]"
    assert interval(Estimate(0.5, None, 0.7)) == "0.500"
    assert [p_value(p) for p in (None, 0.0001, 0.04567, 1.0)] == ["-", "<0.001", "0.046", "1.000"]


@pytest.mark.parametrize("width", [80, 44, 24])
def test_no_word_is_cut_in_a_terminal_however_narrow(written: Path, width: int) -> None:
    printed = Console(file=io.StringIO(), width=width)
    for table in tables(summarize(load_comparison_records(written))):
        words = {word for cell in (*table.columns[1:], *chain(*table.rows)) for word in cell.split()}
        printed.print(table)
        text = printed.file.getvalue()
        shown = {*text.split(), *text.replace(": ", " ").replace(":\n", " ").split()}
        assert words <= shown | {word for word in words if len(word) > width}
        assert all(len(line) <= width for line in printed.file.getvalue().splitlines())
