"""The board of runs: training pass rate and trend, the leader, and one line per minute."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from halfway.experiments.comparing import jobs
from halfway.experiments.running.progress_bars import Bar, RunsDisplay, training_pass_rate, trend
from halfway.trainers.loop.loop_options import Budget

STEP = {"step": 0, "rollouts": 32, "tokens": 800, "seconds": 2.0, "groups": {"rolled_out": 4, "zero_variance": 1}}
HEADS = "run budget elapsed left state pass rate zero var. tokens/s pass@1"


def test_the_training_pass_rate_is_that_of_all_groups() -> None:
    record = {"fresh_counts": [1, 0, 0, 0, 1], "prefix_counts": [0, 0, 2, 0, 0], "generated_counts": []}
    assert training_pass_rate(record) == pytest.approx((0 + 1 + 0.5 + 0.5) / 4)
    assert training_pass_rate({}) is None and training_pass_rate({"fresh_counts": [0, 0]}) is None


def test_a_trend_is_an_arrow_between_halves() -> None:
    assert [trend(each) for each in ([], [0.5], [0.1, 0.2], [0.2, 0.1], [0.2, 0.21])] == ["", "", " ↑", " ↓", " →"]


def test_a_bar_has_heads_and_says_how_the_run_is_doing() -> None:
    out = io.StringIO()
    with RunsDisplay(Console(file=out, force_terminal=True, width=140)) as display:
        bar = Bar(display, "grpo seed 0", Budget(rollouts=64), 0)
        bar.begin()
        bar.step({**STEP, "fresh_counts": [1, 0, 0, 0, 3]})
        bar.step({**STEP, "step": 1, "rollouts": 48, "tokens": 1600, "seconds": 4.0, "fresh_counts": [2, 0, 0, 0, 2]})
        bar.evaluation({"pass_at_1": 0.25})
        display.footer = "1 of 2 runs done"
        display.refresh()
        wanted = "grpo seed 0 75 %, step 2, pass rate 0.50 ↓, 25 % zero variance, 400 tokens/s, pass@1 0.250"
        assert bar.line() == wanted
    shown = out.getvalue()
    for text in (
        "run",
        "budget",
        "pass rate",
        "zero var.",
        "tokens/s",
        "pass@1",
        "grpo seed 0",
        "400",
        "1 of 2 runs done",
    ):
        assert text in shown


@pytest.mark.parametrize("width, heads", [(30, "run budget pass@1"), (45, "run budget left pass@1"), (140, HEADS)])
def test_a_narrow_terminal_shows_fewer_columns_and_cuts_none(width: int, heads: str) -> None:
    with RunsDisplay(Console(file=io.StringIO(), force_terminal=True, width=width)) as display:
        bar = Bar(display, "prefix_sampling seed 0", Budget(rollouts=64), 0)
        bar.step({**STEP, "fresh_counts": [1, 0, 0, 0, 3]})
        out = io.StringIO()
        Console(file=out, width=width).print(display.get_renderable())
    shown = out.getvalue()
    assert shown.splitlines()[0].split() == heads.split() and "\u2026" not in shown


def test_without_a_terminal_there_is_a_line_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("halfway.experiments.comparing.jobs.time.monotonic", lambda: now[0])
    out = io.StringIO()
    board = jobs.Board([], Console(file=out, width=40), None)
    board.bars["grpo seed 0"] = Bar(None, "grpo seed 0", Budget(rollouts=64), 0)
    board.scores = {"grpo": {0: 0.2, 1: 0.4}, "pros": {0: 0.35}}
    for now[0] in (30.0, 59.0, 61.0, 62.0):
        board.refresh()
    [line] = out.getvalue().splitlines()
    assert line.startswith("1 min, ") and "best arm so far: pros, pass@1 0.350 (seeds: 1)" in line
    assert line.endswith("grpo seed 0 0 %, ")


def test_without_a_terminal_a_run_says_where_its_log_is(tmp_path: Path) -> None:
    out, config = io.StringIO(), SimpleNamespace(budget=Budget(rollouts=64))
    job: Any = SimpleNamespace(name="grpo seed 0", folder=tmp_path, config=config, finished=False)
    jobs.Board([job], Console(file=out, width=40), None).recorders(job)
    assert out.getvalue() == f"grpo seed 0 starts (log: {tmp_path / 'log.txt'})\n"
