"""Copies records to MLflow: by default to a local SQLite store, with parent and child runs that can be resumed."""

import logging
import os
import re
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from halfway.curriculum import refusal
from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.atomic import made_once, require_no_link, write_json
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import TrackingOptions
from halfway.experiments.tracking.recording import LAST_TRIES, About, Metric, Tracker, ask, read_note, warn

PARENT_TAG = "mlflow.parentRunId"
# MLflow's limits: parameters at once, and length of a value.
MAX_PARAMS, MAX_VALUE = 100, 6000
LOCAL = ("localhost", "127.0.0.1", "[::1]")
URI = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://([\w.~%!:-]+@)?(?P<host>[A-Za-z0-9_.-]*|\[[0-9a-f:]+\])(:[0-9]+)?(/[^\s\\@]*)?",
    re.ASCII,
)
"""A tracking URI whose host is unambiguous."""
SECONDS = 5  # to wait for another run's lock on the file
PASSIVE = re.compile(
    r"CREATE ((TABLE|(UNIQUE )?INDEX)\b|TRIGGER\b((?!\bSELECT\b).)*\bBEGIN\s+SELECT RAISE\(\w+, *'[^']*'\);\s*END\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""Definitions in SQLite that compute nothing: tables, indices, and a trigger that only raises an error, as MLflow's."""
QUOTED = re.compile(r"""('(?:[^']|'')*')|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]""")
CALL = re.compile(r"(?:\b(TABLE|ON|REFERENCES) )?([^\s(),]+)\s*\(", re.IGNORECASE)
"""The word before a parenthesis: a table's name after TABLE, ON or REFERENCES, or a function or keyword."""
KEYWORDS = {"CHECK", "KEY", "UNIQUE", "IN", "AND", "OR", "NOT", "AS", "DEFAULT", "VARCHAR", "CHAR", "NUMERIC", "RAISE"}
SLOW = re.compile(r"--|/\*|\|\||\b(LIKE|GLOB|MATCH|REGEXP)\b", re.IGNORECASE)


def store_uri(tracking: TrackingOptions, output: Path) -> str:
    """The tracking URI; a bare file name is an SQLite file in the folder `output`."""
    return tracking.uri if "://" in tracking.uri else f"sqlite:///{os.path.abspath(output / tracking.uri)}"


def require_known_store(tracking: TrackingOptions) -> str:
    """The host that gets the records; empty if they stay in the folder `output`.

    Raises:
        UserError: if the store is elsewhere and the user has not accepted that.
    """
    if not tracking.mlflow:
        return ""
    if "://" not in tracking.uri:
        inside = not Path(tracking.uri).is_absolute() and ".." not in Path(tracking.uri).parts
        if not inside:
            require_accepted("tracking:file", "tracking.uri", "writes a database outside of the folder `output`")
        return ""
    uri = URI.fullmatch(tracking.uri)
    if uri is None:
        raise refusal("tracking.uri", tracking.uri, "write scheme://host:port/path")
    place = uri["host"] or uri["scheme"]
    require_accepted(f"tracking:{place}", "tracking.uri", f"sends the configuration and all records to {place}")
    return "" if uri["host"] in ("", *LOCAL) else uri["host"]


def ui_command(tracking: TrackingOptions, output: Path) -> str:
    """The shell command that opens MLflow's user interface on the store."""
    uri = store_uri(tracking, output)
    path = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:///") and path.is_relative_to(Path.cwd()):
        uri = f"sqlite:///{path.relative_to(Path.cwd())}"
    return f"mlflow ui --backend-store-uri {shlex.quote(uri)}"


class Mlflow(Tracker):
    """One MLflow experiment.

    Attributes:
        host: host of a store on another machine; empty for this machine.
        folder: the only folder for files, where the store is a database in `output`: it may be a stranger's.
        parent: run of the comparison; empty if there is none, or the store did not answer.
    """

    name = "mlflow"

    def __init__(self, client: Any, experiment_id: str, host: str = "", folder: Path | None = None):
        self.client, self.experiment_id, self.host, self.folder = client, experiment_id, host, folder
        self.parent = ""

    @classmethod
    def open(cls, tracking: TrackingOptions, output: Path) -> "Mlflow | None":
        """Open the experiment in the store; both are created if new. None if the store does not open.

        Raises:
            UserError: see `require_known_store`.
        """
        host = require_known_store(tracking)
        uri = store_uri(tracking, output)
        if host:
            warn(cls.name, f"configuration and records of this run go to {host}")
        folder = None if "://" in tracking.uri else output.resolve() / "mlflow-artifacts"
        try:
            client = _client(uri)
            experiment = client.get_experiment_by_name(tracking.experiment)
            if experiment is None:
                artifacts = None if folder is None else folder.as_uri()
                identifier = client.create_experiment(tracking.experiment, artifact_location=artifacts)
            else:
                identifier = experiment.experiment_id
            return cls(client, identifier, host, folder)
        except Exception as error:  # MLflow, its database driver and the network may raise anything
            remedy = f"; if it is damaged, move {Path(uri.removeprefix('sqlite:///')).name} away" if folder else ""
            warn(cls.name, f"cannot open {uri}, so this run is not logged there ({one_line(error)}){remedy}")
            return None

    def store(self, about: About, arm: str, run_id: str) -> "MlflowRun | None":
        params = {name: str(value)[:MAX_VALUE] for name, value in about.values.items()}
        tags = {"halfway.seed": str(about.seed), "halfway.controllers": " ".join(about.controllers)}
        tags |= {"halfway.arm": arm} if arm else {}
        tags |= {PARENT_TAG: self.parent} if self.parent else {}
        found = self._begin(about.name, tags, params, run_id)
        return MlflowRun(self, found) if found else None

    def comparison(self, config: ComparisonConfig, folder: Path) -> None:
        unit, total = config.budget.unit, config.budget.total
        params = {"arms": ", ".join(config.arms), "seeds": str(list(config.seeds)), f"budget.{unit}": str(total)}
        known = read_note(self.note(folder)).get("run_id", "")
        self.parent = self._begin(config.name, {"halfway.comparison": config.name}, params, known)
        if self.parent:
            write_json(self.note(folder), {"run_id": self.parent})

    def attach(self, files: Sequence[Path]) -> None:
        if self.parent:
            ask(self.name, lambda: MlflowRun(self, self.parent).attach(files))

    def end(self, state: str, files: Sequence[Path] = ()) -> None:
        if self.parent:
            self.attach(files)
            ask(self.name, lambda: MlflowRun(self, self.parent).end(state, ()))

    def _begin(self, name: str, tags: Mapping[str, str], params: Mapping[str, str], run_id: str) -> str:
        if run_id and ask(self.name, lambda: self.client.update_run(run_id, status="RUNNING"), tries=1)[0]:
            return run_id
        ok, run = ask(self.name, lambda: self.client.create_run(self.experiment_id, run_name=name, tags=dict(tags)))
        if not ok or run is None:
            return ""
        identifier, items = str(run.info.run_id), list(params.items())
        for i in range(0, len(items), MAX_PARAMS):
            chunk = [_entities().Param(key, value) for key, value in items[i : i + MAX_PARAMS]]
            ask(self.name, lambda: self.client.log_batch(identifier, params=chunk), LAST_TRIES)  # noqa: B023
        return identifier


class MlflowRun:
    """One run of an MLflow experiment."""

    def __init__(self, tracker: Mlflow, run_id: str):
        self.tracker, self.run_id = tracker, run_id

    def send(self, metrics: Sequence[Metric]) -> None:
        batch = [_entities().Metric(legal(one.name), one.value, one.milliseconds, one.step) for one in metrics]
        self.tracker.client.log_batch(self.run_id, metrics=batch)

    def end(self, state: str, files: Sequence[Path]) -> None:
        ask(self.tracker.name, lambda: self.attach(files))
        status = {"finished": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED")
        self.tracker.client.set_terminated(self.run_id, status)

    def attach(self, files: Sequence[Path]) -> None:
        """Attach copies of the files that exist.

        The store names their target: a server on another machine must not name a folder of this machine, and a
        database in `output` nothing but its own folder.
        """
        client, host, folder = self.tracker.client, self.tracker.host, self.tracker.folder
        present = [path for path in files if path.exists()]
        if host or folder:
            target = urlsplit(str(client.get_run(self.run_id).info.artifact_uri))
            place, local = Path(unquote(target.path)), target.scheme in ("", "file")
            if host and local:
                raise ValueError(f"{host} stores files in a folder of this machine: {place}")
            if folder and not (local and not target.netloc and place.resolve().is_relative_to(folder)):
                raise ValueError(f"the database stores files outside of {folder}: {target.geturl()}")
            for path in present if folder else ():
                require_no_link(place / path.name)
        for path in present:
            client.log_artifact(self.run_id, str(path))


def legal(name: str) -> str:
    """Replace the characters that MLflow does not allow in a metric name."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


def _client(uri: str) -> Any:
    """Make a client of the store, with MLflow's own messages turned off."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    # A silent server would block a run; `ask` has its own retries.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from mlflow.tracking import MlflowClient

    if uri.startswith("sqlite:///"):
        path = Path(uri.removeprefix("sqlite:///"))
        require_no_link(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _require_passive(path)
        else:
            with made_once(path) as partial:  # a killed run leaves no half of a database, and two runs make one
                new = partial / path.name
                MlflowClient(f"sqlite:///{new}").search_experiments(max_results=1)
                try:
                    os.link(new, path)
                except FileExistsError:
                    pass
                except OSError:  # a file system without hard links
                    os.replace(new, path)
    return MlflowClient(uri)


def _require_passive(path: Path) -> None:
    """Refuse a database that does work of its own, which may never end."""
    if not path.is_file():
        raise ValueError("is not a regular file")
    with closing(sqlite3.connect(path, timeout=SECONDS)) as base:
        found = [sql for (sql,) in base.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    odd = next((sql for sql in found if _computes(sql) or not PASSIVE.match(sql)), None)
    if odd is not None:
        raise ValueError(f"has a view, a trigger or a computation of its own: {one_line(odd, 60)}")


def _computes(sql: str) -> bool:
    """True if a definition calls functions or matches patterns, as for its constraints: they may never end."""
    plain = QUOTED.sub(lambda found: "''" if found[1] else "q", sql)
    called = (word for table, word in CALL.findall(plain) if not table and word.upper() not in KEYWORDS)
    return SLOW.search(plain) is not None or next(called, None) is not None


def _entities() -> Any:
    from mlflow import entities

    return entities
