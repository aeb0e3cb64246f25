"""Comparisons: every arm with every seed, and the time of judging, from the environment's calls to a cost."""

import io
import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY
from programs import Program
from rich.console import Console

from halfway.curriculum import UserError
from halfway.curriculum.tasks.lab import sums
from halfway.experiments.comparing import runner
from halfway.experiments.comparing.compare import jobs_of, planned_arms, prepare_comparison, run_comparison
from halfway.experiments.comparing.jobs import Failure
from halfway.experiments.config.comparison import ComparisonConfig, with_arms
from halfway.experiments.config.design import Arm, contrast_pairs
from halfway.experiments.config.loading import load_comparison_config, to_plain
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.report.analysis.comparison_summary import Summary, summarize
from halfway.experiments.report.records import load_comparison_records
from halfway.experiments.report.tables.all_tables import tables
from halfway.experiments.running.build import build_run
from halfway.experiments.running.runs import RecordForwarder, claim, last_spent, prepare, read_state
from halfway.trainers.loop.loop_options import Budget

BASE = {"controllers": ["uniform"], "problems": {"source": "running_sums", "train": 8}, "tracking": {"mlflow": False}}

# Stands in for training: two steps of ten rollouts, after what an earlier process has done; a folder with a file
# "crash" fails after the first of them.
FAKE = """
import json, sys
from pathlib import Path
from halfway.curriculum.support.atomic import write_json
folder = Path(sys.argv[1])
log = folder / "steps.jsonl"
begin = len(log.read_text().splitlines()) if log.exists() else 0
write_json(folder / "status.json", {"state": "running"})
(folder / "evaluations.jsonl").write_text(json.dumps({"step": 0, "pass_at_1": 0.5, "stderr": 0.1}) + "\\n")
with open(folder / "starts.txt", "a") as file: file.write(f"{begin}\\n")
for i in range(begin, 2):
    record = {"step": i, "rollouts": 10 * i + 10, "starved": False, "groups": {"rolled_out": 2}, "timing": {}}
    with log.open("a") as file: file.write(json.dumps(record) + "\\n")
    if (folder / "crash").exists():
        print("working")
        sys.exit("the learner: NaN")
write_json(folder / "status.json", {"state": "finished"})
"""


@pytest.fixture
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ComparisonConfig:
    monkeypatch.setattr(runner, "start", lambda config, folder, parallel: Program(FAKE, folder))
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.02)
    base = {**BASE, "output": str(tmp_path)}
    return ComparisonConfig("duel", base, (0,), Budget(rollouts=20), {"a": Arm(), "b": Arm({"learner": {"lr": 0.5}})})


def go(config: ComparisonConfig, parallel: int = 1) -> list[Failure]:
    return run_comparison(config, config.folder, parallel, Console(quiet=True))


def starts(config: ComparisonConfig) -> dict[str, list[str]]:
    """For every run, the step that each of its processes began with."""
    return {
        f"{arm}-{run.seed}": (config.folder / arm / f"seed-{run.seed}" / "starts.txt").read_text().split()
        for arm, run in config.runs()
    }


def test_every_arm_trains_once_and_seeds_can_be_added(comparison: ComparisonConfig) -> None:
    config = prepare_comparison(comparison, comparison.folder)
    assert go(config) == []
    assert go(prepare_comparison(config, config.folder)) == []
    assert starts(config) == {"a-0": ["0"], "b-0": ["0"]}

    more = prepare_comparison(replace(comparison, seeds=(3,)), comparison.folder)
    assert more.seeds == (0, 3)
    assert go(more, parallel=2) == []
    assert starts(more) == {"a-0": ["0"], "b-0": ["0"], "a-3": ["0"], "b-3": ["0"]}
    assert prepare_comparison(comparison, comparison.folder).seeds == (0, 3)


def test_arms_can_be_added_and_not_changed(comparison: ComparisonConfig) -> None:
    prepare_comparison(comparison, comparison.folder)
    third = replace(comparison, arms={"c": Arm({"learner": {"lr": 1e-3}})})
    more = prepare_comparison(third, comparison.folder)
    assert list(more.arms) == ["a", "b", "c"]
    assert list(prepare_comparison(comparison, comparison.folder).arms) == ["a", "b", "c"]
    other = replace(comparison, arms={"c": Arm({"learner": {"lr": 2e-3}})})
    with pytest.raises(UserError, match=says("arms.c.learner.lr", "0.001", "0.002")):
        prepare_comparison(other, comparison.folder)


def test_a_comparison_may_begin_with_some_of_its_arms(comparison: ComparisonConfig) -> None:
    some = prepare_comparison(with_arms(comparison, ["b"]), comparison.folder)
    assert list(some.arms) == ["b"] and go(some) == []
    whole = prepare_comparison(comparison, comparison.folder)
    assert set(whole.arms) == {"a", "b"} and go(whole) == []
    assert starts(whole) == {"b-0": ["0"], "a-0": ["0"]}
    with pytest.raises(UserError, match=says("--arms", "'c'", "duel", "a, b")):
        with_arms(comparison, ["b", "c"])


def test_a_comparison_may_continue_with_some_of_its_arms(comparison: ComparisonConfig) -> None:
    whole = prepare_comparison(comparison, comparison.folder)
    prepare_comparison(with_arms(comparison, ["b"]), comparison.folder)
    assert run_comparison(whole, whole.folder, 1, Console(quiet=True), (), ["b"]) == []
    assert [arm for arm in whole.arms if (whole.folder / arm / "seed-0" / "starts.txt").exists()] == ["b"]


def test_contrasts_of_arms_that_come_later_wait_for_them(comparison: ComparisonConfig) -> None:
    planned = replace(comparison, arms={**comparison.arms, "c": Arm()}, contrasts=[["b", "a"], ["c", "a"]])
    for names, pairs in ((["a"], []), (["a", "b"], [("b", "a")]), (["a", "b", "c"], [("b", "a"), ("c", "a")])):
        some = prepare_comparison(with_arms(planned, names), comparison.folder)
        assert contrast_pairs(some.contrasts, some.arms) == pairs


@pytest.mark.parametrize("contrasts", [[["b", "a"], ["c", "b"], ["c", "a"]], {"baseline": "a"}])
def test_arms_that_come_one_by_one_leave_the_plan_of_the_file(comparison: ComparisonConfig, contrasts: object) -> None:
    planned = replace(comparison, arms={**comparison.arms, "c": Arm()}, contrasts=contrasts)
    for arm in ("a", "b", "c"):
        some = prepare_comparison(with_arms(planned, planned_arms(planned, [arm])), planned.folder)
    assert {*contrast_pairs(some.contrasts, some.arms)} == {*contrast_pairs(contrasts, planned.arms)}
    assert prepare_comparison(planned, planned.folder) == some


def test_an_arm_may_be_named_by_a_number() -> None:
    assert contrast_pairs([["a", 1]], ["a", "1"]) == [("a", "1")]
    assert contrast_pairs({"baseline": 1}, ["a", "1"]) == [("a", "1")]
    with pytest.raises(UserError, match=says("contrasts", "two different")):
        contrast_pairs([["1", 1]], ["a", "1"])


def test_a_comparison_with_other_settings_is_not_mixed_in(comparison: ComparisonConfig) -> None:
    prepare_comparison(comparison, comparison.folder)
    other = ComparisonConfig("duel", comparison.base, (0,), Budget(rollouts=30), comparison.arms)
    with pytest.raises(UserError, match=says("budget.rollouts", "20", "30", "name=")):
        prepare_comparison(other, other.folder)


def test_a_crash_is_reported_the_others_continue_and_a_second_call_resumes(comparison: ComparisonConfig) -> None:
    folder = comparison.folder / "a" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "crash").touch()
    config = prepare_comparison(comparison, comparison.folder)
    [failure] = go(config)
    assert str(failure) == f"a seed 0 failed: the learner: NaN (see {folder / 'log.txt'})"
    assert "working" in (folder / "log.txt").read_text()
    assert read_state(config.folder / "b" / "seed-0") == "finished"

    (folder / "crash").unlink()
    assert go(config) == []
    assert starts(config) == {"a-0": ["0", "1"], "b-0": ["0"]}


def test_a_terminal_shows_what_runs_and_keeps_what_has_ended(comparison: ComparisonConfig) -> None:
    (comparison.folder / "a" / "seed-0").mkdir(parents=True)
    (comparison.folder / "a" / "seed-0" / "crash").touch()
    config, shown = prepare_comparison(comparison, comparison.folder), io.StringIO()
    run_comparison(config, config.folder, 2, Console(file=shown, force_terminal=True, width=100))
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip() for line in shown.getvalue().splitlines()]
    assert "b seed 0 finished" in lines
    assert any(line.startswith("a seed 0 failed: the learner: NaN") for line in lines)
    # The bars of the two runs are gone, and a crash after half of a run leaves that half on the bar of all.
    *_, last, standing = [line for line in lines if line]
    assert last.startswith("2 runs") and " 75 %" in last
    assert standing == "1 of 2 runs done, best arm so far: b, pass@1 0.500 (seeds: 1)"


def test_a_killed_run_is_reported_by_its_signal(comparison: ComparisonConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(runner, "start", lambda config, folder, parallel: Program(suicide, folder))
    failures = go(prepare_comparison(comparison, comparison.folder))
    assert [failure.reason for failure in failures] == ["killed by signal 9"] * 2


def test_an_interrupted_comparison_takes_its_runs_with_it(
    comparison: ComparisonConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Program] = []

    def interrupted(config: RunConfig, folder: Path, parallel: int) -> Program:
        if begun:
            raise KeyboardInterrupt
        begun.append(Program("import time; time.sleep(60)", folder))
        return begun[0]

    monkeypatch.setattr(runner, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(prepare_comparison(comparison, comparison.folder), parallel=2)
    assert begun[0].exitcode == -signal.SIGTERM


class Heard:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.evaluations: list[int] = []

    def step(self, record: dict[str, int]) -> None:
        self.steps.append(record["step"])

    def evaluation(self, record: dict[str, int]) -> None:
        self.evaluations.append(record["step"])

    def close(self, state: str) -> None:
        raise AssertionError("a forwarder does not close its recorders")


def test_a_forwarder_waits_for_the_run_and_hands_on_complete_lines_once(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 7}\n')  # from an earlier process, about to be cut off
    (tmp_path / "status.json").write_text('{"state": "running"}')
    heard = Heard()
    forwarder = RecordForwarder(tmp_path, [heard])  # type: ignore[list-item]
    forwarder.begin()
    forwarder.poll()
    assert heard.steps == []
    (tmp_path / "steps.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"st')
    (tmp_path / "evaluations.jsonl").write_text('{"step": 0}\n')
    (tmp_path / "status.json").write_text('{"state": "running"}')
    forwarder.poll()
    forwarder.poll()
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('ep": 2}\n')
    forwarder.poll()
    assert (heard.steps, heard.evaluations) == ([0, 1, 2], [0])


def test_a_forwarder_continues_where_it_was_in_a_requeued_run(tmp_path: Path) -> None:
    """The run returns to its checkpoint; its records have other times, and so other lengths."""
    (tmp_path / "status.json").write_text('{"state": "running"}')
    heard = Heard()
    forwarder = RecordForwarder(tmp_path, [heard])  # type: ignore[list-item]
    (tmp_path / "steps.jsonl").write_text('{"step": 0}\n{"step": 1, "seconds": 1.25}\n')
    forwarder.poll()
    (tmp_path / "steps.jsonl").write_text('{"step": 0}\n')
    forwarder.poll()
    (tmp_path / "steps.jsonl").write_text('{"step": 0}\n{"step": 1, "seconds": 1}\n{"step": 2}\n')
    forwarder.poll()
    assert heard.steps == [0, 1, 2]


def test_the_spent_budget_is_read_from_the_last_complete_record(tmp_path: Path) -> None:
    assert last_spent(tmp_path, Budget(rollouts=9)) == 0
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "rollouts": 4}\n{"step": 1, "rollouts": 8}\n{"step"')
    assert last_spent(tmp_path, Budget(rollouts=9)) == 8
    assert last_spent(tmp_path, Budget(steps=9)) == 2


@pytest.mark.parametrize("left", [b"\xce\x00\n{\n", b"\0" * 40, b"[]\n3\n"])
def test_a_run_resumes_beside_the_leftovers_of_a_crash(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "steps.jsonl").write_bytes(b'{"step": 0, "rollouts": 4}\n' + left)
    assert last_spent(tmp_path, Budget(rollouts=9)) == 4


def test_one_process_at_a_time_trains_in_a_directory(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(UserError, match="another process"), claim(tmp_path):
        pass
    with claim(tmp_path):
        pass


def test_a_run_directory_keeps_its_settings(tmp_path: Path) -> None:
    raw = {**BASE, "name": "x", "budget": {"steps": 1}}
    prepare(parse_run_config({**raw, "seed": 5}), tmp_path)
    prepare(parse_run_config(raw), tmp_path)  # nothing is recorded yet
    (tmp_path / "decisions.jsonl").write_text("{}\n")
    prepare(parse_run_config(raw), tmp_path)
    with pytest.raises(UserError, match=says("seed", 0, 5, "halfway resume")):
        prepare(parse_run_config({**raw, "seed": 5}), tmp_path)
    assert json.dumps(to_plain(parse_run_config(raw)))


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


def test_a_comparison_may_begin_without_its_baseline(comparison: ComparisonConfig) -> None:
    planned = replace(comparison, contrasts={"baseline": "a"})
    assert prepare_comparison(with_arms(planned, ["b"]), comparison.folder).contrasts is None
    assert prepare_comparison(planned, comparison.folder).contrasts == {"baseline": "a"}


def test_a_run_that_ends_before_its_first_record_has_failed(
    comparison: ComparisonConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "start", lambda config, folder, parallel: Program("raise SystemExit('lost')", folder))
    assert len(go(comparison)) == 2
    assert read_state(comparison.folder / "a" / "seed-0") == "failed"
