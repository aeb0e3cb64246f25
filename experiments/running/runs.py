"""Run directories: contents, locking, and reading while another process writes.

A run directory holds config.yaml (complete), decisions.jsonl, steps.jsonl, evaluations.jsonl, samples.jsonl (texts, see
`halfway.trainers.loop.samples`), checkpoints/, status.json ({"state": "starting", "running", "finished", "stopped"
or "failed"})
and a note for each tracker, such as mlflow.json. A comparison's directory holds comparison.yaml and one run directory
per arm and seed, `<arm>/seed-<seed>`, each with its log.txt.
"""

import fcntl
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import (
    DAMAGED,
    open_own,
    read_json,
    read_json_lines,
    reading,
    require_regular_files,
    write_json,
)
from halfway.experiments.config.loading import as_yaml, differences, load_run_config, save
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.progress_bars import spent
from halfway.experiments.running.stop_signals import Interrupted, heed_signals
from halfway.trainers.contracts import Recorder
from halfway.trainers.engines import ENGINES
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import Budget
from halfway.trainers.rollouts.file_store import PAYLOADS

CONFIG, COMPARISON, STATUS, LOG = "config.yaml", "comparison.yaml", "status.json", "log.txt"

RECORDS = (
    *(STATUS, "provenance.json", "decisions.jsonl", "steps.jsonl", "evaluations.jsonl", "samples.jsonl"),
    *("summary.json", "summary.md", "report.html"),
)
"""Names of files that are overwritten in a directory of a run or a comparison."""

# Dotted fields that say where a run computes. They change no result: in a new allocation with other hosts the run
# continues from its last checkpoint. Each engine lists its own options of this kind.
PLACEMENT = re.compile(
    r"(?:.*\.)?(?:cluster\.port|rollouts\.(?:workers|payloads|engine\.(?P<engine>[^.]+)\.(?P<option>[^.]+)))"
)


def read_state(folder: Path) -> str:
    """The state of a run; "new" if none is recorded. A killed run keeps the state "running"."""
    return str(read_json(folder / STATUS).get("state", "new"))


def prepare(config: RunConfig, folder: Path) -> None:
    """Create the directory of a run, or accept an existing one and update its placement (see `PLACEMENT`).

    A run that failed before its first record takes any settings.

    Raises:
        UserError: if the directory holds a run with other settings, a run that is training with another placement, or
            unrelated files.
    """
    path = folder / CONFIG
    if is_prepared(config, folder):
        return
    if not path.exists():
        require_unused(folder)
        save(config, path)
    elif changes := differences(load_run_config(path), config):
        if has_begun(folder):
            refuse_other_settings(changes, folder)
        with claim(folder):
            save(config, path)


def has_begun(folder: Path) -> bool:
    """True if a run has left records or a checkpoint, so that its settings must not change."""
    logs = [folder / name for name in ("decisions.jsonl", "steps.jsonl", "evaluations.jsonl")]
    return (folder / "checkpoints").exists() or any(log.exists() and log.stat().st_size for log in logs)


def require_unused(folder: Path) -> None:
    """Raise UserError if a directory without a run holds files that a run would overwrite."""
    held = [name for name in (*RECORDS, PAYLOADS) if os.path.lexists(folder / name)]
    if held:
        raise UserError(f"name: {folder} is not a run, but a run would replace its {held[0]}; give another name=...")


def is_prepared(config: RunConfig, folder: Path) -> bool:
    """True if a directory has exactly this configuration; fast, since it neither parses nor checks it."""
    require_regular_files(folder)
    path = folder / CONFIG
    return path.exists() and path.read_text() == as_yaml(config)


def refuse_other_settings(changes: Sequence[tuple[str, Any, Any]], folder: Path) -> None:
    """Raise UserError with the first difference other than placement, if there is one."""
    changes = [change for change in changes if not is_placement(change[0])]
    if changes:
        name, there, here = changes[0]
        more = f" (further differences: {len(changes) - 1})" if len(changes) > 1 else ""
        raise UserError(
            f"{name}: {folder} was started with {there!r}, not {here!r}{more}; "
            f"continue it unchanged with `halfway resume {shlex.quote(str(folder))}`, or give another name=..."
        )


def is_placement(name: str) -> bool:
    """True if a dotted field, of a run or of the base or arms of a comparison, is placement only."""
    place = PLACEMENT.fullmatch(name)
    if place is None or place["engine"] is None:
        return place is not None
    return place["engine"] in ENGINES.names() and place["option"] in ENGINES.get(place["engine"]).placement


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Lock this directory for training. Raises UserError if another process holds the lock."""
    with open_own(folder / ".lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process is training in it; wait for it or stop it") from None
        yield


def is_worker() -> bool:
    """True if a launcher such as torchrun started this process to assist another one."""
    return int(os.environ.get("RANK", "0")) > 0


def run_worker(config: RunConfig) -> int:
    """Assist the process that trains this run until the run ends. Returns the exit code, as a shell reports it."""
    from halfway.experiments.running.build import build_worker_group

    # Python's handlers cannot interrupt processes that wait for one another here, so a signal ends this one at once.
    group = build_worker_group(config)
    with heed_signals(supervised=True, leaves=False) as ending:  # the first process says when to end
        group.serve()
    return 128 + ending.number if ending() else 0


def train(
    config: RunConfig,
    folder: Path,
    recorders: Sequence[Recorder],
    start: int | None = None,
    supervised: bool = False,
) -> None:
    """Train the run in its directory to the end of its budget, from its newest checkpoint if there is one.

    Args:
        start: the step of an earlier checkpoint to go back to, 0 = the start.
        supervised: true = another process ends this one, see `halfway.experiments.running.stop_signals.Ending`.

    Raises:
        Interrupted: if a signal has ended the run, after a checkpoint if there was time for one.
    """
    from halfway.experiments.running.build import build_run

    with claim(folder):
        if start is not None:
            Checkpoints(folder / "checkpoints", config.checkpoint).go_back(start)
        training = build_run(config, folder)
        training.recorders = recorders
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1  # whose launcher passes signals on
        with heed_signals(supervised or several, leaves=not several) as ending:
            training.stop = ending
            try:
                training.train()
            except Exception as error:
                if ending():  # parts of the run have heard the signal too
                    raise Interrupted(ending.number) from error
                raise
        if ending() and training.unfinished:
            raise Interrupted(ending.number)


def last_spent(folder: Path, budget: Budget) -> float:
    """The spent budget of a run, by its last complete record.

    Lines that a crash left after that record are ignored; a resumed run removes them.
    """
    path = folder / "steps.jsonl"
    lines = read_json_lines(path, "put the whole file back").split(b"\n")[:-1] if path.exists() else []
    for line in reversed(lines):
        with suppress(*DAMAGED):
            return spent(json.loads(line), budget)
    return 0.0


@dataclass
class RecordForwarder:
    """Forwards the records that another process writes to recorders, as they appear.

    A resumed run first removes the records after its checkpoint, so its files are read only when its status is
    "running"; `begin` makes sure that this status is not left over from an earlier process. If a run is resumed while
    it is read, as when a job is requeued, no record is forwarded twice.

    Attributes:
        read: number of forwarded records of each file.
        sizes: length of each file at the last read.
    """

    folder: Path
    recorders: Sequence[Recorder]
    read: dict[str, int] = field(default_factory=lambda: {"evaluations.jsonl": 0, "steps.jsonl": 0})
    sizes: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Mark the run as starting. Call it before its process starts."""
        write_json(self.folder / STATUS, {"state": "starting"})

    def poll(self) -> None:
        """Forward the records written since the last call."""
        if read_state(self.folder) in ("new", "starting"):
            return
        for name in self.read:
            for record in self._new_records(name):
                for recorder in self.recorders:
                    recorder.evaluation(record) if name == "evaluations.jsonl" else recorder.step(record)

    def _new_records(self, name: str) -> list[Any]:
        path = self.folder / name
        if not path.exists() or path.stat().st_size == self.sizes.get(name):
            return []
        content = read_json_lines(path, "remove it")
        self.sizes[name] = len(content)
        new = content.split(b"\n")[self.read[name] : -1]
        self.read[name] += len(new)
        with reading(path, "fix or remove the line"):
            return [json.loads(line) for line in new]
