"""What judging took: from the environment's calls through the records of real runs to a cost in the report."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

from halfway.curriculum.tasks.lab import sums
from halfway.experiments.comparing.compare import jobs_of, prepare_comparison
from halfway.experiments.config.loading import load_comparison_config
from halfway.experiments.report.records import load_comparison_records
from halfway.experiments.report.summary import Summary, summarize
from halfway.experiments.report.tables.all_tables import tables
from halfway.experiments.running.build import build_run

NAP, PRICE, PROBLEMS = 0.002, 50.0, 4
CONTEST = """
base:
  base: {recipe}
  problems: {{train: 8}}
  fill: {{groups: 3}}
  rollouts: {{num_rollouts: 4, max_response_tokens: 48}}
  evaluation: {{points: 2, samples: 1, problems: {problems}}}
  tracking: {{mlflow: false}}
  output: {output}
budget: {{steps: 2}}
seeds: [0]
arms: {{grpo: {{}}, twice: {{learner: {{num_epochs: 2}}}}}}
contrasts: {{baseline: grpo}}
costs: {{rho: [1], judge_second: {price}}}
"""


def trained(folder: Path, recipe: str) -> Path:
    """The directory of a comparison whose runs were trained in this process."""
    text = CONTEST.format(recipe=REPOSITORY / recipe, output=folder, price=PRICE, problems=PROBLEMS)
    (folder / "contest.yaml").write_text(text)
    config = load_comparison_config(folder / "contest.yaml")
    config = prepare_comparison(config, config.folder)
    for job in jobs_of(config, config.folder, {}):
        build_run(job.config, job.folder).train()
    return config.folder


def records(folder: Path, arm: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / arm / "seed-0" / f"{name}.jsonl").read_text().splitlines()]


def summary_of(folder: Path) -> Summary:
    return summarize(load_comparison_records(folder))


def assert_priced(folder: Path) -> None:
    """The report has what the records say, whole sequences, epochs and seconds included."""
    ends = {}
    for arm in ("grpo", "twice"):
        steps, evaluations = (records(folder, arm, name) for name in ("steps", "evaluations"))
        seconds = [step["judge_seconds"] for step in steps]
        assert 0 < seconds[0] < seconds[1] == evaluations[-1]["judge_seconds"]
        assert [one["judge_seconds"] for one in evaluations] == [0, *seconds]
        last = evaluations[-1]
        ends[arm] = last["tokens"] + last["trained_tokens"] + PRICE * last["judge_seconds"]
    summary = summary_of(folder)
    assert [axis.name for axis in summary.design.costs] == ["cost_1", "cost_1_judged"]
    (judged,) = (matched for matched in summary.matched if matched.axis.name == "cost_1_judged")
    assert judged.amount == pytest.approx(min(ends.values()))
    columns = {column for table in tables(summary) for column in table.columns}
    assert f"a cost of {min(ends.values()):,.0f} (rho 1, judged)" in columns


def test_a_verifier_s_seconds_reach_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, mark = [0], sums.mark

    def slow(prompt: str, response: str) -> bool:
        judged[0] += 1
        time.sleep(NAP)
        return mark(prompt, response)

    monkeypatch.setattr(sums, "mark", slow)
    folder = trained(tmp_path, "experiments/recipes/lab/sums.yaml")
    assert_priced(folder)
    spent = sum(records(folder, arm, "steps")[-1]["judge_seconds"] for arm in ("grpo", "twice"))
    evaluated = 2 * 3 * PROBLEMS  # at most: a response that was cut is not judged
    assert judged[0] > evaluated and spent >= NAP * (judged[0] - evaluated)

    # A run of an earlier version beside it: then judging has no price for any.
    for name in ("steps", "evaluations"):
        kept = [{k: v for k, v in one.items() if k != "judge_seconds"} for one in records(folder, "twice", name)]
        (folder / "twice" / "seed-0" / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    summary = summary_of(folder)
    assert [axis.name for axis in summary.design.costs] == ["cost_1"]
    assert any("not all of these runs recorded its seconds" in table.caption for table in tables(summary))
