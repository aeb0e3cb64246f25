"""Some of the kills of `kill_runs`, with another seed: each run ends as if nothing had happened to it."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kill_runs import table
from kills import ends, faults
from kills.launches import Launch
from kills.setups import RECIPES, SETUPS
from paths import IMPORTABLE, REPOSITORY

SCRIPT = REPOSITORY / "tests" / "support" / "kill_runs.py"


def kill_runs(record: Path, *words: str, program: tuple[str, ...] = (str(SCRIPT),)) -> tuple[int, list[dict[str, Any]]]:
    """Exit status, and what is in the record."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE, "TMPDIR": str(record.parent)}
    command = [sys.executable, *program, *words, "--spawned", "0", "--record", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=REPOSITORY)
    assert record.exists(), done.stderr[-3000:]
    return done.returncode, [json.loads(line) for line in record.read_text().splitlines()]


def test_runs_that_are_killed_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    # This seed draws five kills at operations on files, which hit whatever the clock does.
    status, outcomes = kill_runs(tmp_path / "record.jsonl", "--runs", "4", "--seed", "76")
    assert status == 0, [one for one in outcomes if one["outcome"] != "same"]
    assert {one["setup"] for one in outcomes} == set(SETUPS)
    assert sum(bool(fault["hit"]) for one in outcomes for fault in one["faults"]) >= 4
    again, same = kill_runs(tmp_path / "record.jsonl", "--runs", "4", "--seed", "76")
    assert again == 0 and same == outcomes, "what is in the record is not tried again"


def test_a_log_that_is_not_cut_is_found(tmp_path: Path) -> None:
    program = (
        "from halfway.trainers.loop.records import RunLog\nRunLog.truncate = lambda *_: None\n"
        "from kills import faults, trials\n"  # at an operation on files, which no busy machine moves
        "trials.draw = lambda chance, victims: faults.Fault('file', 0.2 + 0.6 * chance.random())\n"
        "import kill_runs\nkill_runs.main()"
    )
    words = ("--runs", "2", "--only", "waiting", "--seed", "3")
    status, outcomes = kill_runs(tmp_path / "record.jsonl", *words, program=("-c", program))
    assert status == 1
    assert {one["outcome"] for one in outcomes} & {"different", "traceback"}


def run_folder(folder: Path) -> Path:
    """A run's folder with one checkpoint, a log that is longer, and a file without its name."""
    checkpoint = folder / "checkpoints" / "step-00000002"
    checkpoint.mkdir(parents=True)
    waiting: list[Any] = []
    (checkpoint / "loop.json").write_text(json.dumps({"log_sizes": {"decisions": 10}, "waiting": waiting}))
    (checkpoint / "manifest.txt").write_text("")
    (checkpoint / "weights").write_bytes(bytes(10))
    (folder / "decisions.jsonl").write_bytes(b"0123456789and more")
    (folder / ".status.json.tmp").write_bytes(b"half")
    return folder


def test_only_what_has_no_name_and_ends_of_logs_are_torn(tmp_path: Path) -> None:
    torn = set()
    for seed in range(40):
        run = run_folder(tmp_path / str(seed))
        whole = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        number = faults.tear(run, random.Random(seed))
        changed = {path for path, content in whole.items() if path.read_bytes() != content}
        assert len(changed) <= number <= 2
        assert (run / "decisions.jsonl").read_bytes()[:10] == b"0123456789"
        torn |= {path.name for path in changed}
    assert torn == {"decisions.jsonl", ".status.json.tmp"}


def test_parts_of_a_run_that_differ_are_named(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    wanted = ends.final_state(run)
    assert ends.different(run, wanted) == ""
    (run / "decisions.jsonl").write_bytes(b"others")
    (run / "checkpoints" / "step-00000002" / "weights").write_bytes(b"others")
    assert ends.different(run, wanted) == "decisions, weights"


@pytest.mark.parametrize(
    ("drawn", "done", "wrong"),
    [
        ("ab", "ab", ""),
        ("aab", "ab", "drawn twice"),
        ("ab", "abb", "observed twice"),
        ("ab", "a", "lost"),
        ("a", "ac", "observed and never drawn"),
    ],
)
def test_missing_tickets_of_an_event_log_are_named(tmp_path: Path, drawn: str, done: str, wrong: str) -> None:
    run = run_folder(tmp_path)
    events: list[dict[str, Any]] = [{"event": "draw", "tickets": [[ticket, "", "fresh"] for ticket in drawn]}]
    events += [{"event": "done", "ticket": ticket} for ticket in done]
    events += [{"event": "commit", "step": 0}]
    (run / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    (run / "steps.jsonl").write_text('{"step": 0}\n')
    found = ends.unsound(run, 1)
    assert found.split(", ")[0] == wrong


def test_a_process_whose_parent_has_ended_is_found_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kills.launches.LEAVE_SECONDS", 0.2)
    words = ["sh", "-c", "sleep 600 & echo $!"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        left = int(parent.stdout.readline())
    launch = Launch.__new__(Launch)
    launch.pids, launch.codes, launch.seen = [parent.pid], {}, {}
    assert launch.orphans() == {left: "sleep 600 "}


def test_a_process_that_is_left_behind_is_found_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kills.launches.LEAVE_SECONDS", 0.2)
    with subprocess.Popen(["sleep", "600"]) as left:
        launch = Launch.__new__(Launch)
        launch.pids, launch.codes, launch.seen = [os.getpid()], {}, {}
        deadline = time.monotonic() + 10
        while left.pid not in launch.victims()["sampler"]:
            assert time.monotonic() < deadline
        launch.seen = {left.pid: launch.seen[left.pid]}
        assert launch.orphans() == {left.pid: "sleep 600 "}
        assert left.wait(10) == -9


def test_the_table_counts_what_hit() -> None:
    hit = {"kind": "process", "hit": "judge", "torn": 0}
    torn = {"kind": "file", "hit": "learner", "torn": 2}
    late = {"kind": "process", "hit": "", "torn": 0}
    [recipe, *_] = RECIPES
    outcomes = [{"setup": "waiting", "recipe": recipe, "outcome": "same", "faults": [hit, torn, late]}]
    lines = table(outcomes).splitlines()
    assert lines[2] == "| waiting | 1 | 0 | 0 | 1 | 0 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 2 | 2 | 1 |"
    assert lines[-1] == lines[2].replace("waiting", "all")


def test_the_page_has_the_table_of_the_record() -> None:
    results = REPOSITORY / "experiments" / "results"
    outcomes = [json.loads(line) for line in (results / "kills.jsonl").read_text().splitlines()]
    assert table(outcomes) in (results / "kills.md").read_text()
    assert {one["outcome"] for one in outcomes} == {"same"}
