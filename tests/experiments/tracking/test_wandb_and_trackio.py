"""Weights & Biases and Trackio: without a network, several runs at once, continued runs, and what fails."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from messages import says
from tracked_runs import RAW, record

from halfway.curriculum import UserError
from halfway.curriculum.support import extras
from halfway.experiments.config.run import parse_run_config
from halfway.experiments.tracking.recording import step_metrics
from halfway.experiments.tracking.stepped_stores import Trackio, Wandb
from halfway.experiments.tracking.tracker_process import commands, open_trackers

TWO_RUNS = """
import sys
from pathlib import Path
from tracked_runs import copy_two_runs

copy_two_runs(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, and an environment that names no place for copies; Trackio reads its own when it is imported."""
    for name in ("WANDB_MODE", "TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path


def in_a_process(tracker: str, output: Path, first: int, last: int) -> str:
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{TWO_RUNS}"
    words = [sys.executable, "-c", code, tracker, str(output), str(first), str(last)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "what is shown is Halfway's own"
    return done.stderr


def test_trackio_keeps_both_runs_here_and_continues_them(offline: Path) -> None:
    pytest.importorskip("trackio")
    for steps in ((0, 3), (1, 5)):  # steps 1 and 2 come again, from a checkpoint
        in_a_process("trackio", offline, *steps)
    assert not (offline / "home" / "trackio").exists()
    with sqlite3.connect(offline / "trackio" / "halfway.db") as database:
        rows = database.execute("SELECT run_name, step, CAST(metrics AS TEXT) FROM metrics").fetchall()
    for name in ("both/a", "both/b"):
        logged = [(step, text) for run, step, text in rows if run == name and "reward/mean" in text]
        assert sorted(step for step, _ in logged) == [0, 1, 2, 3, 4]
        assert all(metric in logged[0][1] for metric in step_metrics(record(0)))
        assert sum("evaluation/pass_at_1" in text for run, _, text in rows if run == name) == 2


def test_wandb_keeps_both_runs_here_and_continues_them(offline: Path) -> None:
    pytest.importorskip("wandb")
    for steps in ((0, 3), (1, 5)):
        in_a_process("wandb", offline, *steps)
    files = sorted(offline.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 4 and len({file.stem for file in files}) == 2, "a continued run keeps its name"
    for file, steps in zip(files, (3, 3, 2, 2), strict=True):
        content = file.read_bytes()
        for name in step_metrics(record(0)):  # each is in a line of history, and then in the summary
            assert content.count(name.encode() + b"\x82") == 2 * steps
        assert content.count(b"evaluation/pass_at_1\x82") == 2


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_missing_package_is_named_with_its_extra(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", missing)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    with pytest.raises(UserError, match=says(f"tracking.{tracker}", tracker, f"halfway[{tracker}]")):
        {"wandb": Wandb, "trackio": Trackio}[tracker]("halfway", tmp_path)


def test_commands_that_show_the_copies(offline: Path) -> None:
    options = parse_run_config({**RAW, "tracking": {"mlflow": False, "wandb": True, "trackio": True}}).tracking
    assert dict(commands(options, Path("my runs"))) == {
        "W&B": "wandb sync 'my runs/wandb'/offline-run-*",
        "Trackio": "TRACKIO_DIR='my runs/trackio' trackio show --project halfway",
    }


def test_a_tracker_that_raises_stops_no_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb")
    options = parse_run_config({**RAW, "tracking": {"mlflow": False, "wandb": True, "experiment": "a/b?c"}})
    [opened] = open_trackers(options.tracking, tmp_path)
    copy = opened.run(options, tmp_path)
    copy.step(record(0))
    copy.close("finished")
    assert copy.store is None
    assert capfd.readouterr().err.startswith(f"wandb: the run in {tmp_path} is not logged there (")
