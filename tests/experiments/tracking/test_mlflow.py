"""The MLflow copy of the records: parent and child runs, resumed runs, and a store that does not answer."""

import os
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import says
from strangers.mutations import SPECIAL
from tracked_runs import RAW, record

from halfway.curriculum import UserError
from halfway.curriculum.support.acceptance import VARIABLE
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import Arm
from halfway.experiments.config.loading import save
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.tracking import mlflow_store, recording
from halfway.experiments.tracking.mlflow_store import Mlflow, MlflowRun, ui_command
from halfway.experiments.tracking.recording import Copy, step_metrics
from halfway.experiments.tracking.tracker_process import open_trackers
from halfway.trainers.loop.loop_options import Budget

LOOP = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) AS n FROM r"


@pytest.mark.parametrize(
    "odd",
    [
        f"ALTER TABLE experiments RENAME TO e; CREATE VIEW experiments AS SELECT e.* FROM e, ({LOOP})",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN INSERT INTO tags SELECT name, name, name FROM runs; END",
        "CREATE TRIGGER t AFTER INSERT ON runs WHEN (SELECT count(*) FROM runs) BEGIN SELECT RAISE(ABORT, 'x'); END",
        "CREATE VIRTUAL TABLE t USING fts5(x)",
        "CREATE TABLE t (x CHECK (length(printf('%.*c', 100000000, 'x')) > 0))",
        'CREATE TABLE t (x CHECK (1 + "printf" (x)))',
        "CREATE TABLE t (x, y AS (hex(x)))",
        "CREATE TABLE t (x CHECK (x LIKE '%a%a%a%a%a'))",
        "CREATE INDEX t ON runs (name) WHERE abs(name)",
        "CREATE TRIGGER t AFTER INSERT ON runs WHEN hex(NEW.name) BEGIN SELECT RAISE(ABORT, 'x'); END",
    ],
)
def test_a_database_that_would_work_by_itself_is_not_opened(
    odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as base:
        base.executescript(
            "CREATE TABLE experiments (name); CREATE TABLE runs (name); CREATE TABLE tags (a, b, c);" + odd
        )
    assert Mlflow.open(parse_run_config(RAW).tracking, tmp_path) is None
    assert "so this run is not logged there" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("special", SPECIAL)
def test_a_file_that_is_not_a_database_is_refused_in_one_line(
    special: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SPECIAL[special](tmp_path / "mlflow.db")
    assert Mlflow.open(parse_run_config(RAW).tracking, tmp_path) is None
    assert "so this run is not logged there" in capsys.readouterr().err


def test_a_new_database_is_seen_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed before leaves none, and one that is second takes the first one's."""
    link, file = os.link, tmp_path / "mlflow.db"

    def seen(new: Path, path: Path) -> None:
        assert path == file and not path.exists()
        with closing(sqlite3.connect(new)) as base:
            assert base.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
        link(new, path)
        raise FileExistsError(path)

    monkeypatch.setattr(os, "link", seen)
    opened = Mlflow.open(parse_run_config(RAW).tracking, tmp_path)
    assert opened and [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert Mlflow.open(parse_run_config(RAW).tracking, tmp_path).experiment_id == opened.experiment_id


def test_a_file_system_needs_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    assert Mlflow.open(parse_run_config(RAW).tracking, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_metrics_of_a_record_are_its_numbers() -> None:
    assert step_metrics(record(3)) == {
        "spent/rollouts": 128.0,
        "starved": 0.0,
        "groups/rolled_out": 4.0,
        "groups/trained": 2.0,
        "timing/rollout": 0.5,
        "learner/loss": 0.25,
        "controllers/greso/p easy %": 0.5,
        "reward/mean": 0.625,
        "zero_variance/all_fail": 0.25,
        "zero_variance/all_pass": 0.5,
    }
    assert mlflow_store.legal("greso/p easy %") == "greso/p easy _"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def tracker(output: Path) -> Iterator[Mlflow]:
    opened = Mlflow.open(parse_run_config(RAW).tracking, output)
    assert opened is not None
    yield opened


def test_children_of_a_comparison_and_a_resumed_child(tracker: Mlflow, output: Path) -> None:
    config, folder = parse_run_config(RAW), output / "both" / "a" / "seed-0"
    save(config, folder / "config.yaml")
    comparison = ComparisonConfig("both", {}, (0,), Budget(steps=9), {"a": Arm()})
    tracker.comparison(comparison, output / "both")
    parent = tracker.parent
    tracker.comparison(comparison, output / "both")
    assert parent and tracker.parent == parent

    first = tracker.run(config, folder, "a")
    for step in range(3):
        first.step(record(step))
    first.evaluation({"step": 0, "pass_at_1": 0.5, "stderr": 0.1, "pass_counts": [1]})
    first.close("failed")
    assert not tracker.has_all(folder)

    second = tracker.run(config, folder, "a")
    assert first.store and second.store and second.store.run_id == first.store.run_id
    for step in range(1, 5):  # steps 1 and 2 come again, from the checkpoint on
        second.step(record(step))
    second.close("finished")
    assert tracker.has_all(folder)

    stored = tracker.client.get_run(first.store.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.tags[mlflow_store.PARENT_TAG] == parent
    assert stored.data.params["budget.steps"] == "9"
    history = tracker.client.get_metric_history(first.store.run_id, "spent/rollouts")
    assert [(metric.step, metric.value) for metric in history] == [(i, 32.0 * (i + 1)) for i in range(5)]
    assert stored.data.metrics["evaluation/pass_at_1"] == 0.5
    assert [file.path for file in tracker.client.list_artifacts(first.store.run_id)] == ["config.yaml"]
    assert len(tracker.client.search_runs([tracker.experiment_id])) == 2


def test_a_run_whose_store_is_gone_begins_a_new_one(tracker: Mlflow, output: Path) -> None:
    folder = output / "moved"
    save(parse_run_config(RAW), folder / "config.yaml")
    tracker.note(folder).write_text('{"run_id": "0123456789abcdef", "step": 7}')
    recorder = tracker.run(parse_run_config(RAW), folder)
    assert recorder.store and recorder.store.run_id != "0123456789abcdef"
    recorder.step(record(0))
    assert recorder.unsent


class Locked:
    """A store that refuses `refusals` batches before it takes one."""

    def __init__(self, refusals: int):
        self.refusals = refusals
        self.taken: list[Any] = []

    def log_batch(self, run_id: str, metrics: list[Any]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("database is locked")
        self.taken += metrics

    def set_terminated(self, run_id: str, status: str) -> None:
        self.status = status


def locked_recorder(refusals: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Locked, Copy]:
    monkeypatch.setattr(recording.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(recording, "SECONDS_BETWEEN_BATCHES", 0.0)
    store = Locked(refusals)
    return store, Copy("mlflow", MlflowRun(Mlflow(store, "0"), "run"), folder, {})


def test_a_batch_that_a_locked_store_refused_is_sent_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, recorder = locked_recorder(1, tmp_path, monkeypatch)
    recorder.step(record(0))
    assert store.taken == [] and recorder.refused == 1
    recorder.step(record(1))
    assert {metric.step for metric in store.taken} == {0, 1} and recorder.unsent == []
    recorder.close("finished")
    assert capsys.readouterr().err == ""


def test_metrics_that_a_store_never_takes_are_counted_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, recorder = locked_recorder(10**6, tmp_path, monkeypatch)
    recorder.step(record(0))
    recorder.close("finished")
    told = capsys.readouterr().err.splitlines()
    assert store.taken == [] and f"{len(step_metrics(record(0)))} metrics of {tmp_path} were not stored" in told[-1]


def test_tracking_can_be_off_and_an_unusable_store_does_not_stop_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off: RunConfig = parse_run_config({**RAW, "tracking": {"mlflow": False}})
    assert open_trackers(off.tracking, tmp_path) == [] and capsys.readouterr().err == ""
    (tmp_path / "file").write_text("")
    broken = parse_run_config({**RAW, "tracking": {"uri": "file/mlflow.db"}})
    assert Mlflow.open(broken.tracking, tmp_path) is None
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_for_the_user_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = parse_run_config(RAW).tracking
    assert ui_command(options, Path("runs")) == "mlflow ui --backend-store-uri sqlite:///runs/mlflow.db"
    assert ui_command(options, Path("/elsewhere")) == "mlflow ui --backend-store-uri sqlite:////elsewhere/mlflow.db"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("http://collector.example:5000", "collector.example"),
        ("https://user:secret@collector.example/a", "collector.example"),
        ("databricks://profile", "profile"),
        ("file:///etc", "file"),
        ("sqlite:////etc/x.db", "sqlite"),
        ("mysql+pymysql://db/x", "db"),
        ("http://localhost:5000", "localhost"),
        ("/etc/x.db", "file"),
        ("a/../../x.db", "file"),
    ],
)
def test_a_store_elsewhere_needs_the_users_word(uri: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    options = parse_run_config({**RAW, "tracking": {"uri": uri}}).tracking
    with pytest.raises(UserError, match=says("tracking.uri", f"{VARIABLE}=tracking:{place}")) as caught:
        Mlflow.open(options, Path("runs"))
    assert "secret" not in str(caught.value)
    monkeypatch.setenv(VARIABLE, f"tracking:{place}")
    assert mlflow_store.require_known_store(options) in ("", place)


@pytest.mark.parametrize(
    "uri", ["http://evil\\@good", "http://good#@evil", "http://good?@evil", "http://a b", "http://good/@evil", "://x"]
)
def test_an_address_with_two_readings_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tracking:good,tracking:evil,tracking:a,tracking:x")
    with pytest.raises(UserError, match=says("scheme://host:port/path")):
        mlflow_store.require_known_store(parse_run_config({**RAW, "tracking": {"uri": uri}}).tracking)


def test_an_impossible_note_about_the_copy_is_ignored(tracker: Mlflow, tmp_path: Path) -> None:
    tracker.note(tmp_path).write_text('{"run_id": [1], "complete": "yes", "step": "x", "evaluation": {}}')
    assert not tracker.has_all(tmp_path)
    save(parse_run_config(RAW), tmp_path / "config.yaml")
    assert tracker.run(parse_run_config(RAW), tmp_path).seen == {"step": -1, "evaluation": -1}


class Hostile(BaseHTTPRequestHandler):
    """A tracking server that answers something else."""

    answers: Iterator[bytes]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(next(self.answers))

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None: ...


ODD = [
    b"",
    b"{",
    b"[" * 100_000,
    b"[]",
    b'"x"',
    b'{"experiment": []}',
    b'{"run": {"info": 7}}',
    b"\x1b[2J\xff",
    b"null",
]


def test_a_hostile_server_stops_no_run_and_controls_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recording.time, "sleep", lambda seconds: None)
    monkeypatch.setenv(VARIABLE, "tracking:127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_port}"
    config = parse_run_config({**RAW, "tracking": {"uri": uri}})
    try:
        for odd in ODD:
            Hostile.answers = repeat(odd)
            opened = Mlflow.open(config.tracking, tmp_path)
            opened = opened or Mlflow(mlflow_store._client(uri), "0", "elsewhere")
            recorder = opened.run(config, tmp_path)
            recorder.step(record(0))
            recorder.close("finished")
    finally:
        server.shutdown()
        server.server_close()
    assert "\x1b" not in capsys.readouterr().err


class Elsewhere(Locked):
    """A store on another machine that says where files go."""

    def __init__(self, target: str):
        super().__init__(0)
        self.target = target
        self.files: list[str] = []

    def get_run(self, run_id: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=self.target))

    def log_artifact(self, run_id: str, path: str) -> None:
        self.files.append(path)


@pytest.mark.parametrize("target", ["/root/.ssh", "file:///root/.ssh", "./x", "FILE:/x", "mlflow-artifacts:/1/2"])
def test_a_server_elsewhere_has_no_file_written_on_this_machine(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording.time, "sleep", lambda seconds: None)
    (tmp_path / "config.yaml").write_text("x")
    for host, sent in (("elsewhere", target.startswith("mlflow")), ("", True)):
        store = Elsewhere(target)
        tracker = Mlflow(store, "0", host)
        tracker.parent = "run"
        tracker.attach([tmp_path / "config.yaml"])
        assert bool(store.files) == sent


@pytest.mark.parametrize(
    "target", ["{there}", "file://{there}", "http://127.0.0.1:9/x", "file://{there}/../%2e%2e/there"]
)
def test_a_strangers_database_sends_no_file_elsewhere(target: str, tmp_path: Path) -> None:
    options, there, output = parse_run_config(RAW).tracking, tmp_path / "there", tmp_path / "runs"
    there.mkdir()
    assert Mlflow.open(options, output) is not None
    with closing(sqlite3.connect(output / "mlflow.db")) as base, base:
        base.execute("UPDATE experiments SET artifact_location = ?", (target.format(there=there),))
    tracker = Mlflow.open(options, output)
    assert tracker is not None
    save(parse_run_config(RAW), tmp_path / "config.yaml")
    run = MlflowRun(tracker, tracker._begin("x", {}, {}, ""))
    with pytest.raises(ValueError, match="stores files outside"):
        run.attach([tmp_path / "config.yaml"])
    assert list(there.iterdir()) == []


def test_no_file_is_copied_through_a_link(tracker: Mlflow, tmp_path: Path) -> None:
    save(parse_run_config(RAW), tmp_path / "config.yaml")
    run = MlflowRun(tracker, tracker._begin("x", {}, {}, ""))
    place = Path(tracker.client.get_run(run.run_id).info.artifact_uri.removeprefix("file://"))
    place.mkdir(parents=True, exist_ok=True)
    (tmp_path / "precious").write_text("precious")
    (place / "config.yaml").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="is a link"):
        run.attach([tmp_path / "config.yaml"])
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_database_behind_a_link_is_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(tmp_path / "precious")) as base, base:
        base.execute("CREATE TABLE t (x)")
    (tmp_path / "mlflow.db").symlink_to(tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    assert Mlflow.open(parse_run_config(RAW).tracking, tmp_path) is None
    assert "is a link" in capsys.readouterr().err and (tmp_path / "precious").read_bytes() == before


def test_the_command_for_the_user_interface_is_one_word_for_the_shell() -> None:
    options = parse_run_config({**RAW, "tracking": {"uri": "a; id"}}).tracking
    assert shlex.split(ui_command(options, Path("/runs")))[3:] == ["sqlite:////runs/a; id"]
