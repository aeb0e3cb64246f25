"""Copies records to MLflow: by default to a local SQLite store, with parent and child runs that can be resumed.

The record files of a run are authoritative; MLflow holds a copy for its user interface. So nothing that goes wrong
here stops a training run. Metrics are sent in batches. If the store does not accept a batch (another process holds
its lock, the disk is full), the batch is kept and sent again with the next one, and several times at the end of the
run. Whatever is still not stored then is counted and reported in one line.
"""

import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.atomic import read_json, write_json
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import clean, one_line
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import flat, to_plain
from halfway.experiments.config.run import RunConfig, TrackingOptions

Answer = TypeVar("Answer")

ID_FILE = "mlflow.json"
PARENT_TAG = "mlflow.parentRunId"
# MLflow refuses larger batches and longer parameter values.
MAX_METRICS, MAX_PARAMS, MAX_VALUE = 1000, 100, 6000
SECONDS_BETWEEN_BATCHES = 10.0
LOCAL = ("localhost", "127.0.0.1", "[::1]")
URI = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://([\w.~%!:-]+@)?(?P<host>[A-Za-z0-9_.-]*|\[[0-9a-f:]+\])(:[0-9]+)?(/[^\s\\@]*)?",
    re.ASCII,
)
"""A tracking URI in which nobody can mistake the host."""

LAST_TRIES = 4


def store_uri(tracking: TrackingOptions, output: Path) -> str:
    """The tracking URI; a bare file name is an SQLite file in the folder `output`."""
    return tracking.uri if "://" in tracking.uri else f"sqlite:///{(output / tracking.uri).resolve()}"


def require_known_store(tracking: TrackingOptions) -> str:
    """The host to which records go; empty if they stay in the folder `output`.

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
        raise UserError(f"tracking.uri: {tracking.uri!r} is not acceptable; write scheme://host:port/path")
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


class Tracker:
    """One MLflow experiment. Every call to the store goes through `ask`, which never raises.

    Attributes:
        host: where a store on another machine is; empty for one on this machine.
    """

    def __init__(self, client: Any, experiment_id: str, host: str = ""):
        self.client = client
        self.experiment_id = experiment_id
        self.host = host

    @classmethod
    def open(cls, tracking: TrackingOptions, output: Path) -> "Tracker | None":
        """The experiment in the store, both created if new; None if tracking is off or the store does not open.

        Raises:
            UserError: see `require_known_store`.
        """
        host = require_known_store(tracking)
        if not tracking.mlflow:
            return None
        uri = store_uri(tracking, output)
        if host:
            warn(f"configuration and records of this run go to {host}")
        try:
            client = _client(uri)
            experiment = client.get_experiment_by_name(tracking.experiment)
            if experiment is None:
                artifacts = None if "://" in tracking.uri else (output / "mlflow-artifacts").resolve().as_uri()
                identifier = client.create_experiment(tracking.experiment, artifact_location=artifacts)
            else:
                identifier = experiment.experiment_id
            return cls(client, identifier, host)
        except Exception as error:  # whatever MLflow, its database driver or the network raises
            warn(f"{uri} does not open, so this run is not tracked there ({one_line(error)})")
            return None

    def run(self, config: RunConfig, folder: Path, tags: Mapping[str, str] | None = None) -> "MlflowRecorder":
        """The recorder of one run. It continues the MLflow run that an earlier process began for this folder."""
        saved = _read(folder)
        params = {name: str(value)[:MAX_VALUE] for name, value in flat(to_plain(config)).items()}
        chain = " ".join(config.chain.members)
        tags = {"halfway.seed": str(config.seed), "halfway.controllers": chain, **(tags or {})}
        run_id = self._begin(config.name, tags, params, saved.get("run_id"))
        return MlflowRecorder(self, run_id, folder, saved if saved.get("run_id") == run_id else {})

    def comparison(self, config: ComparisonConfig, folder: Path) -> str:
        """The id of a comparison's parent run, begun or continued; empty if the store does not answer."""
        unit, total = config.budget.unit, config.budget.total
        params = {"arms": ", ".join(config.arms), "seeds": str(list(config.seeds)), f"budget.{unit}": str(total)}
        known = _read(folder).get("run_id")
        run_id = self._begin(config.name, {"halfway.comparison": config.name}, params, known)
        if run_id:
            write_json(folder / ID_FILE, {"run_id": run_id})
        return run_id

    def comparison_id(self, folder: Path) -> str:
        """The id of the parent run begun for this folder; empty if there is none."""
        return str(_read(folder).get("run_id", ""))

    def has_all(self, folder: Path) -> bool:
        """Whether the run in this folder was copied to the end."""
        return bool(_read(folder).get("complete"))

    def end(self, run_id: str, state: str, artifacts: Sequence[Path] = ()) -> None:
        """Attach files to a run and mark it as finished, stopped or failed."""
        if not run_id:
            return
        self.attach(run_id, artifacts)
        status = {"finished": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED")
        self.ask(lambda: self.client.set_terminated(run_id, status))

    def attach(self, run_id: str, paths: Sequence[Path]) -> None:
        """Attach copies of the files that exist to the run, if there is one.

        A server on another machine says where they go, and may not say that it is a folder of this one.
        """

        def send() -> None:
            target = str(self.client.get_run(run_id).info.artifact_uri) if self.host else "here:"
            if urlsplit(target).scheme in ("", "file"):
                raise ValueError(f"{self.host} names a folder of this machine for files: {target}")
            for path in filter(Path.exists, paths):
                self.client.log_artifact(run_id, str(path))

        if run_id:
            self.ask(send)

    def log(self, run_id: str, tries: int = LAST_TRIES, **batch: list[Any]) -> bool:
        """Send a batch (`metrics=...` or `params=...`); returns whether the store accepted it."""
        return self.ask(lambda: self.client.log_batch(run_id, **batch), tries)[0]

    def ask(self, question: Callable[[], Answer], tries: int = LAST_TRIES) -> tuple[bool, Answer | None]:
        """Whether the store answered within `tries` attempts (pauses of 0.1, 0.2, 0.4, ... seconds), and its answer."""
        for i in range(tries):
            try:
                return True, question()
            except Exception as error:  # as in `open`: no failure of the store may stop a training run
                if i + 1 == tries > 1:
                    warn(f"the store did not answer {tries} times ({one_line(error)})")
            if i + 1 < tries:
                time.sleep(0.1 * 2**i)
        return False, None

    def _begin(self, name: str, tags: Mapping[str, str], params: Mapping[str, str], run_id: str | None) -> str:
        if run_id and self.ask(lambda: self.client.update_run(run_id, status="RUNNING"), tries=1)[0]:
            return run_id
        ok, run = self.ask(lambda: self.client.create_run(self.experiment_id, run_name=name, tags=dict(tags)))
        if not ok or run is None:
            return ""
        identifier = str(run.info.run_id)
        for chunk in _chunks(list(params.items()), MAX_PARAMS):
            self.log(identifier, params=[_entities().Param(key, value) for key, value in chunk])
        return identifier


class MlflowRecorder:
    """Copies records to one MLflow run in batches every few seconds, each record at most once over all processes.

    Attributes:
        unsent: metrics that the store has not accepted yet.
        refused: number of batches that it did not accept at once.
    """

    def __init__(self, tracker: Tracker, run_id: str, folder: Path, saved: Mapping[str, Any]):
        self.tracker = tracker
        self.run_id = run_id
        self.folder = folder
        self.seen = {kind: int(saved.get(kind, -1)) for kind in ("step", "evaluation")}
        self.unsent: list[Any] = []
        self.refused = 0
        self.last_batch = time.monotonic()
        self._remember()

    def step(self, record: Mapping[str, Any]) -> None:
        self._add("step", record, step_metrics(record))

    def evaluation(self, record: Mapping[str, Any]) -> None:
        numbers = {k: v for k, v in record.items() if isinstance(v, int | float) and k != "step"}
        self._add("evaluation", record, {f"evaluation/{k}": float(v) for k, v in numbers.items()})

    def close(self, state: str) -> None:
        """Send what is left, attach configuration and decision log, and end the run."""
        self.flush(tries=LAST_TRIES)
        if self.unsent:
            warn(f"{len(self.unsent)} metrics of {self.folder} were not stored; its steps.jsonl has them all")
        self.tracker.end(self.run_id, state, (self.folder / "config.yaml", self.folder / "decisions.jsonl"))
        self._remember(complete=state == "finished" and not self.unsent)

    def flush(self, tries: int = 1) -> None:
        """Send the unsent metrics; whatever the store does not accept stays unsent."""
        self.last_batch = time.monotonic()
        while self.run_id and self.unsent:
            batch = self.unsent[:MAX_METRICS]
            if not self.tracker.log(self.run_id, tries, metrics=batch):
                self.refused += 1
                return
            del self.unsent[: len(batch)]
        self._remember()

    def _add(self, kind: str, record: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        step = int(record["step"])
        if not self.run_id or step <= self.seen[kind]:  # a resumed run repeats what came after its checkpoint
            return
        self.seen[kind] = step
        now = int(time.time() * 1000)
        self.unsent += [_entities().Metric(legal(name), value, now, step) for name, value in metrics.items()]
        if time.monotonic() - self.last_batch >= SECONDS_BETWEEN_BATCHES:
            self.flush()

    def _remember(self, complete: bool = False) -> None:
        if self.run_id:
            write_json(self.folder / ID_FILE, {"run_id": self.run_id, "complete": complete, **self.seen})


def step_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """A step record's numbers, with nested names such as "learner/loss", and figures from the pass-count histograms."""
    metrics: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            metrics |= {f"{key}/{name}": float(v) for name, v in value.items() if isinstance(v, int | float)}
        elif isinstance(value, int | float) and key != "step":
            metrics[key] = float(value)
    for key in ("fresh_counts", "prefix_counts", "generated_counts"):
        metrics |= _histogram_metrics(key.removesuffix("_counts"), record.get(key) or [])
    return metrics


def _histogram_metrics(kind: str, counts: list[int]) -> dict[str, float]:
    groups, size = sum(counts), len(counts) - 1
    if groups == 0 or size < 1:
        return {}
    passed = sum(k * count for k, count in enumerate(counts))
    return {
        f"{kind}/pass_rate": passed / (groups * size),
        f"{kind}/degenerate": (counts[0] + counts[-1]) / groups,
    }


def legal(name: str) -> str:
    """A metric name that MLflow accepts."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]


def warn(message: str) -> None:
    """Print one line to stderr."""
    print(f"mlflow: {clean(message)}", file=sys.stderr)


def _client(uri: str) -> Any:
    """A client of the store, with MLflow's own messages turned off."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    # A server that is silent holds up a run; `ask` tries again by itself.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from mlflow.tracking import MlflowClient

    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(uri)


def _entities() -> Any:
    from mlflow import entities

    return entities


def _read(folder: Path) -> dict[str, Any]:
    """What an earlier process stored about this folder's MLflow run, without what it cannot have stored."""
    saved, kinds = read_json(folder / ID_FILE), {"run_id": str, "complete": bool, "step": int, "evaluation": int}
    return {name: saved[name] for name, kind in kinds.items() if isinstance(saved.get(name), kind)}


def _chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]
