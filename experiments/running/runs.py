"""Run directories: what is in them, who may write to them, and reading one while another process fills it.

A run directory holds config.yaml (complete), decisions.jsonl, steps.jsonl, evaluations.jsonl, checkpoints/, status.json
({"state": "starting", "running", "finished" or "failed"}) and, with tracking, mlflow.json. A comparison's directory
holds comparison.yaml and one run directory per arm and seed, `<arm>/seed-<seed>`, each with its log.txt.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import write_json
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.loading import as_yaml, differences, load_run_config, save
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.progress_bars import spent
from halfway.trainers.contracts import Recorder
from halfway.trainers.engines import ENGINES
from halfway.trainers.loop.options import Budget

CONFIG, COMPARISON, STATUS, LOG = "config.yaml", "comparison.yaml", "status.json", "log.txt"

# A dotted field that may say where a run computes, which changes no result: another allocation has other hosts, and
# goes on at the last checkpoint. Of an engine's options the engine says which are of that kind.
PLACEMENT = re.compile(r"(?:.*\.)?(?:cluster\.port|rollouts\.engine\.(?P<engine>[^.]+)\.(?P<option>[^.]+))")


def read_state(folder: Path) -> str:
    """The state of a run, "new" if it has none yet. A killed run still says "running"."""
    path = folder / STATUS
    return str(json.loads(path.read_text())["state"]) if path.exists() else "new"


def prepare(config: RunConfig, folder: Path) -> None:
    """Give a run its directory, or find that it has one already, which then gets the new places (see `PLACEMENT`).

    Raises:
        UserError: if the directory holds a run with other settings, or one that another process trains in other places.
    """
    path = folder / CONFIG
    if is_prepared(config, folder):
        return
    if not path.exists():
        save(config, path)
    elif changes := differences(load_run_config(path), config):
        refuse_other_settings(changes, folder)
        with claimed(folder):
            save(config, path)


def is_prepared(config: RunConfig, folder: Path) -> bool:
    """Whether a directory has exactly this configuration, without the time that reading and checking it takes."""
    path = folder / CONFIG
    return path.exists() and path.read_text() == as_yaml(config)


def refuse_other_settings(changes: Sequence[tuple[str, Any, Any]], folder: Path) -> None:
    """Raise UserError with the first difference that is more than a place, if there is one."""
    changes = [change for change in changes if not is_placement(change[0])]
    if changes:
        name, there, here = changes[0]
        more = f" (further differences: {len(changes) - 1})" if len(changes) > 1 else ""
        raise UserError(
            f"{name}: {folder} was started with {there!r}, not {here!r}{more}; "
            f"continue it as it is with `halfway resume {folder}`, or give another name=..."
        )


def is_placement(name: str) -> bool:
    """Whether a dotted field, of a run or of what a comparison's arms share or change, only says where it computes."""
    found = PLACEMENT.fullmatch(name)
    if found is None or found["engine"] is None:
        return found is not None
    return found["engine"] in ENGINES.names() and found["option"] in ENGINES.get(found["engine"]).placement


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Be the only process that trains in this directory. Raises UserError if another one does."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process is training in it; wait for it or stop it") from None
        yield


def is_worker() -> bool:
    """Whether a launcher such as torchrun started this process to work for another one."""
    return int(os.environ.get("RANK", "0")) > 0


def run_worker(config: RunConfig) -> None:
    """Work for the process that trains this run, until it is done."""
    from halfway.experiments.running.build import build_worker_group

    build_worker_group(config).serve()


def train(config: RunConfig, folder: Path, recorders: Sequence[Recorder]) -> None:
    """Train the run in its directory to the end of its budget, from its newest checkpoint if there is one."""
    from halfway.experiments.running.build import build_run

    with claimed(folder):
        training = build_run(config, folder)
        training.recorders = recorders
        training.train()


def last_spent(folder: Path, budget: Budget) -> float:
    """How much of its budget a run has spent, by its last complete record."""
    path = folder / "steps.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return spent(json.loads(lines[-1]), budget) if lines else 0.0


@dataclass
class RecordForwarder:
    """Hands the records that another process writes on to recorders, as they come.

    A resumed run first cuts off what it wrote after its checkpoint, so its files are read only once it says that it
    is running; `begin` makes sure that it has not said so earlier.
    """

    folder: Path
    recorders: Sequence[Recorder]
    read: dict[str, int] = field(default_factory=lambda: {"evaluations.jsonl": 0, "steps.jsonl": 0})

    def begin(self) -> None:
        """Mark the run as starting. Call it before its process starts."""
        write_json(self.folder / STATUS, {"state": "starting"})

    def poll(self) -> None:
        """Hand on what was written since the last call."""
        if read_state(self.folder) in ("new", "starting"):
            return
        for name in self.read:
            for record in self._new_records(name):
                for recorder in self.recorders:
                    recorder.evaluation(record) if name == "evaluations.jsonl" else recorder.step(record)

    def _new_records(self, name: str) -> list[Any]:
        path = self.folder / name
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self.read[name])
            complete = file.read().rpartition(b"\n")[0]
        if not complete:
            return []
        self.read[name] += len(complete) + 1
        return [json.loads(line) for line in complete.split(b"\n")]
