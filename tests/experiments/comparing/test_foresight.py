"""The forecast of a comparison, before and soon after its start: runs, visits per problem, time."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from halfway.controllers.chains import members
from halfway.experiments.comparing.jobs import Job
from halfway.experiments.comparing.runner import Forecast
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import load_comparison_config
from halfway.experiments.running.validation import describe_visits
from halfway.trainers.loop.loop_options import Budget

COMPARISON = """
base: {problems: {source: running_sums, train: 512}, controllers: [uniform], rollouts: {num_rollouts: 8}}
seeds: [0, 1]
budget: {rollouts: 1280}
arms:
  grpo: {}
  greso: {controllers: [uniform, greso]}
"""


@pytest.fixture
def config(tmp_path: Path) -> ComparisonConfig:
    path = tmp_path / "duel.yaml"
    path.write_text(COMPARISON)
    return load_comparison_config(path)


def test_the_number_of_runs_is_said(config: ComparisonConfig) -> None:
    assert config.size == "2 arms x 2 seeds = 4 runs"


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        (512, ["160 groups of 512 problems", "none comes back", "; greso skips only"]),
        (64, ["160 groups of 64 problems", "2.5 visits each"]),
    ],
)
def test_the_visits_at_this_budget_are_said(config: ComparisonConfig, problems: int, said: list[str]) -> None:
    [line] = describe_visits({arm: config.run(arm, 0) for arm in config.arms}, problems)
    assert all(words in line for words in said) and ("greso" in line) == (problems == 512)


@pytest.mark.parametrize("budget", [{"rollouts": 1}, {"rollouts": 257}, {"steps": 2}])
def test_a_step_is_counted_whole(config: ComparisonConfig, budget: dict[str, int]) -> None:
    """The last step of a budget is made whole: 32 groups each."""
    run = replace(config.run("grpo", 0), budget=Budget(**budget))
    groups = 32 if budget.get("rollouts") == 1 else 64
    assert [*describe_visits({"grpo": run}, 512)] == [f"{groups} groups of 512 problems: none comes back"]


def test_a_member_is_known_by_another_label_too(config: ComparisonConfig) -> None:
    labelled = replace(config.run("grpo", 0), controllers=members(["uniform", {"mine": {"use": "greso"}}]))
    [line] = describe_visits({"mine": labelled}, 512)
    assert "; greso skips only problems seen before" in line


def test_the_time_is_estimated_once_after_the_first_step(config: ComparisonConfig) -> None:
    jobs = [Job.of(config, run, Path()) for _, run in config.runs()]
    out = StringIO()
    forecast = Forecast(jobs, 2, Console(file=out, width=100))
    points = jobs[0].config.evaluation.points
    for seconds in (3.0, 300.0):  # 128 of 1,280 rollouts: 30 s a run and 90 s of evaluations; two rounds of two runs
        forecast.step({"step": 0, "rollouts": 128, "seconds": seconds, "timing": {"evaluate": 90 / (1 + points)}})
    assert out.getvalue() == "by the first step, 4 runs take about 4 min\n"
