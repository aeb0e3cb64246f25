"""Trackers in their own process: whatever a package or its server does, a run continues within a bounded time."""

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from messages import says
from tracked_runs import RAW, record

from halfway.curriculum import UserError
from halfway.curriculum.support.acceptance import VARIABLE
from halfway.experiments.config.comparison import Arm, ComparisonConfig
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.tracking import recording, tracker_process
from halfway.experiments.tracking.recording import Tracker
from halfway.experiments.tracking.tracker_process import open_trackers
from halfway.trainers.loop.loop_options import Budget

PACKAGE = """
import os, sys, time
class Run:
    id = "abc"
    def log(self, values, step): act("log")
    def finish(self, exit_code=0): act("finish")
Settings = dict
def init(**options):
    act("init")
    return Run()
def act(when):
    print("noise"); print("noise", file=sys.stderr); os.write(2, b"noise")
    if os.environ["WHEN"] == when:
        {act}
"""
WAYS = {
    "hangs": "time.sleep(1000)",
    "hangs, with children that hold its pipes": "os.fork(); time.sleep(1000)",
    "ends": "os._exit(0)",
    "is killed": "os.kill(os.getpid(), 9)",
    "raises": "raise ValueError('\\x1b[2J\\nno')",
    "takes all memory": "print(len(bytearray(1 << 40)))",
    "exits": "sys.exit()",
}


def tracked(config: RunConfig, folder: Path, patience: float | None = None) -> tuple[float, int]:
    """The seconds for the copy of a run of three steps, and the number of metrics that it lacks.

    Args:
        patience: seconds for all answers once the tracker is open.
    """
    began = time.monotonic()
    unsent = 0
    for opened in open_trackers(config.tracking, folder):
        began = time.monotonic() if patience else began
        allow(opened, patience)
        copy = opened.run(config, folder)
        for step in range(3):
            copy.step(record(step))
        copy.close("finished")
        unsent += len(copy.unsent)
    return time.monotonic() - began, unsent


def allow(opened: Tracker, patience: float | None) -> None:
    assert isinstance(opened, tracker_process.TrackerProcess)
    if patience:
        vars(tracker_process)["PATIENCE"] = opened.waited + patience


def config_of(tracker: str, **changes: Any) -> RunConfig:
    return parse_run_config({**RAW, "tracking": {"mlflow": False, tracker: True, **changes}})


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SECONDS_BETWEEN_BATCHES", 0.0)
    monkeypatch.setattr(tracker_process, "SHARE", 0.0)
    monkeypatch.setattr(tracker_process, "PATIENCE", tracker_process.PATIENCE)


@pytest.mark.parametrize(("way", "when"), [*((way, "log") for way in WAYS), ("hangs", "init"), ("hangs", "finish")])
def test_a_package_that_misbehaves_costs_no_run(
    way: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb.py").write_text(PACKAGE.replace("{act}", WAYS[way]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WHEN", when)
    seconds, unsent = tracked(config_of("wandb"), tmp_path, patience=3)
    assert seconds < 20 and (unsent > 0) == (when == "log")
    told = capfd.readouterr()
    assert told.out == "" and all(line.startswith("wandb: ") for line in told.err.splitlines())
    assert 1 <= len(told.err.splitlines()) <= 3 and re.sub("\n", "", told.err).isprintable()


def test_nothing_is_left_of_a_process_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text(PACKAGE.replace("{act}", WAYS["hangs, with children that hold its pipes"]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WHEN", "log")
    config = config_of("wandb")
    [opened] = open_trackers(config.tracking, tmp_path)
    assert isinstance(opened, tracker_process.TrackerProcess)
    copy = opened.run(config, tmp_path)
    allow(opened, 1)
    copy.step(record(0))
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # its children are reaped by another process
            os.killpg(opened.process.pid, 0)
            time.sleep(0.05)


def test_answers_that_are_always_nearly_late_hold_up_a_run_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text(PACKAGE.replace("{act}", "time.sleep(0.5)"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WHEN", "log")
    config = config_of("wandb")
    [opened] = open_trackers(config.tracking, tmp_path)
    copy = opened.run(config, tmp_path)
    allow(opened, 3)
    began = time.monotonic()
    for step in range(20):
        copy.step(record(step))
    assert time.monotonic() - began < 8 and copy.unsent


def test_a_refusal_by_a_tracker_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UserError, match=says("tracking.uri", "collector.example", "needs your consent")):
        open_trackers(config_of("mlflow", uri="http://collector.example").tracking, tmp_path)


@pytest.fixture
def dripping() -> Iterator[tuple[str, threading.Event]]:
    """The address of a server whose answer never ends, and never pauses for long; and whether it was asked."""
    asked = threading.Event()

    def answer(one: socket.socket) -> None:
        asked.set()
        with suppress(OSError), one:
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                one.sendall(b" ")
                time.sleep(0.2)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked


@pytest.mark.parametrize("tracker", ["mlflow", "trackio", "wandb"])
def test_an_answer_without_end_costs_no_run(
    tracker: str,
    dripping: tuple[str, threading.Event],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The true clients, which wait for such an answer as long as it lasts."""
    pytest.importorskip(tracker)
    address, asked = dripping
    for name, value in {
        **{VARIABLE: "tracking:127.0.0.1", "HOME": str(tmp_path), "TRACKIO_SERVER_URL": address},
        **{"TRACKIO_WRITE_TOKEN": "x", "WANDB_MODE": "online", "WANDB_BASE_URL": address, "WANDB_API_KEY": "x" * 40},
    }.items():
        monkeypatch.setenv(name, value)
    options = {"uri": address} if tracker == "mlflow" else {}
    for patience in (4.0, 8.0, 16.0, 32.0, 64.0):  # on a busy machine a client takes long to be imported
        monkeypatch.setattr(tracker_process, "PATIENCE", patience)
        seconds, _ = tracked(config_of(tracker, **options), tmp_path / f"{patience}")
        told = capfd.readouterr().err.splitlines()
        assert seconds < patience + 15
        assert 1 <= len(told) <= 3 and all(line.startswith(f"{tracker}: ") for line in told)
        assert re.search("no answer in|not logged there", told[-1])
        if asked.is_set():
            return
    pytest.fail("the client has not asked the server")


def test_a_database_of_trackio_that_is_damaged_costs_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trackio")
    for name in ("TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "trackio").mkdir()
    (tmp_path / "trackio" / "halfway.db").write_bytes(b"no database" * 1000)
    tracked(config_of("trackio"), tmp_path)
    told = capfd.readouterr().err.splitlines()
    assert 1 <= len(told) <= 5 and all(line.startswith("trackio: ") and line.isprintable() for line in told)


class Noted:
    """A recorder that notes what it is told."""

    def __init__(self, told: list[Any]):
        self.told = told
        told.append("made")

    def step(self, record: Any) -> None:
        self.told.append(("step", record["step"]))

    def evaluation(self, record: Any) -> None:
        self.told.append(("evaluation", record["step"]))

    def close(self, state: str) -> None:
        self.told.append(state)


def test_a_late_recorder_is_made_after_the_first_step_and_told_all() -> None:
    told: list[Any] = []
    late = tracker_process.Late(lambda: [Noted(told)])
    late.evaluation({"step": 0})
    assert told == []
    late.step({"step": 0})
    late.evaluation({"step": 1})
    late.step({"step": 1})
    late.close("finished")
    assert told == ["made", ("evaluation", 0), ("step", 0), ("evaluation", 1), ("step", 1), "finished"]
    told.clear()
    late = tracker_process.Late(lambda: [Noted(told)])
    late.evaluation({"step": 0})
    late.close("failed")
    assert told == ["made", ("evaluation", 0), "failed"]


def test_recorders_that_do_not_open_are_tried_once() -> None:
    tries: list[int] = []
    late = tracker_process.Late(lambda: tries.append(1) or [])
    for step in range(3):
        late.step({"step": step})
    assert tries == [1]


def test_mlflows_file_opens_late_and_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Opened(Tracker):
        def comparison(self, config: Any, folder: Path) -> None:
            told.append(("comparison", folder.name))

        def run(self, config: RunConfig, folder: Path, arm: str = "") -> Any:
            return Noted(told)

        def end(self, state: str, files: Any = ()) -> None:
            told.append(("end", state))

    monkeypatch.setattr(tracker_process.Mlflow, "open", lambda *_: Opened())
    config = parse_run_config(RAW)
    [tracker] = open_trackers(config.tracking, tmp_path)
    tracker.comparison(ComparisonConfig("both", {}, (0,), Budget(steps=9), {"a": Arm()}), tmp_path / "both")
    recorder = tracker.run(config, tmp_path / "both" / "a", "a")
    assert told == [] and tracker.name == "mlflow" and not tracker.has_all(tmp_path)
    recorder.step({"step": 0})
    tracker.end("finished")
    assert told == [("comparison", "both"), "made", ("step", 0), ("end", "finished")]
    elsewhere = parse_run_config(RAW | {"tracking": {"uri": "../runs.db"}})
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UserError, match="outside of the folder"):
        open_trackers(elsewhere.tracking, tmp_path)
