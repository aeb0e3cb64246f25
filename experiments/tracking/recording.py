"""Copies a run's records to trackers: the common part of all trackers.

The record files of a run are authoritative, so no failure here stops a training run. Metrics are sent in batches. A
batch that a tracker does not accept (another process has its lock, the disk is full) is sent again with the next one,
and several times at the end of the run. Metrics that are still not stored then are counted and reported in one line.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

from halfway.curriculum.support.atomic import read_json, write_json
from halfway.curriculum.support.extras import clean, one_line
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import flatten
from halfway.experiments.config.loading import to_plain
from halfway.experiments.config.run import RunConfig
from halfway.trainers.contracts import Recorder

Answer = TypeVar("Answer")
BATCH = 1000
SECONDS_BETWEEN_BATCHES = 10.0
LAST_TRIES = 4
NOT_METRICS = ("step", "problems", "samples")
TOTALS = ("rollouts", "tokens", "trained_tokens", "seconds", "judge_seconds", "tool_seconds", "measured")


terminal: TextIO | None = None
"""The stream for messages to the user; None = stderr."""


@dataclass(frozen=True)
class About:
    """The facts about a run for trackers, among others its configuration by dotted field."""

    name: str
    seed: int
    controllers: tuple[str, ...]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, config: RunConfig) -> "About":
        return cls(config.name, config.seed, tuple(config.chain.members), flatten(to_plain(config)))


class Metric(NamedTuple):
    """One number of a run; `milliseconds` since 1970."""

    name: str
    value: float
    step: int
    milliseconds: int


class Store(Protocol):
    """One run in a tracker. Either method may raise anything."""

    run_id: str

    def send(self, metrics: Sequence[Metric]) -> None: ...

    def end(self, state: str, files: Sequence[Path]) -> None:
        """Attach the files, if the tracker keeps any, and mark the run as finished, stopped or failed."""
        ...


class Tracker:
    """A tracker, open for the runs of one folder. It leaves out features of a comparison that it does not support.

    Attributes:
        name: name of the tracker, and of its note in a run's folder.
        group: name of the runs' comparison.
    """

    name: str
    group = ""

    def store(self, about: About, arm: str, run_id: str) -> Store | None:
        """Begin a run, or continue `run_id` if it still exists; None if the tracker does not answer."""
        raise NotImplementedError

    def run(self, config: RunConfig, folder: Path, arm: str = "") -> Recorder:
        """Make the recorder of one run. It continues an earlier process's run for this folder."""
        saved = read_note(self.note(folder))
        known = saved.get("run_id", "")
        try:
            store = self.store(About.of(config), arm, known)
        except Exception as error:  # as in `ask`
            warn(self.name, f"the run in {folder} is not logged there ({one_line(error)})")
            store = None
        return Copy(self.name, store, folder, saved if store and store.run_id == known else {})

    def has_all(self, folder: Path) -> bool:
        """True if the run in this folder was copied to the end."""
        return bool(read_note(self.note(folder)).get("complete"))

    def note(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"

    def comparison(self, config: ComparisonConfig, folder: Path) -> None:
        """Begin or continue the comparison of the following runs."""
        self.group = config.name

    def attach(self, files: Sequence[Path]) -> None:
        """Attach copies of the files that exist to the comparison."""

    def end(self, state: str, files: Sequence[Path] = ()) -> None:
        """Attach files to the comparison and mark it as finished, stopped or failed."""


class Copy:
    """Copies records to one run of a tracker in batches every few seconds, each at most once over all processes.

    Attributes:
        unsent: metrics that the tracker has not accepted yet.
        refused: number of batches that it did not accept at the first try.
    """

    def __init__(self, tracker: str, store: Store | None, folder: Path, saved: Mapping[str, Any]):
        self.tracker, self.store, self.folder = tracker, store, folder
        self.seen = {kind: int(saved.get(kind, -1)) for kind in ("step", "evaluation")}
        self.unsent: list[Metric] = []
        self.refused = 0
        self.last_batch = time.monotonic()
        self._remember()

    def step(self, record: Mapping[str, Any]) -> None:
        self._add("step", record, step_metrics(record))

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self._add("evaluation", record, evaluation_metrics(record))

    def close(self, state: str) -> None:
        """Send the remaining metrics, attach configuration and decision log, and end the run."""
        if self.store is None:
            return
        self.flush(tries=LAST_TRIES)
        if self.unsent:
            warn(self.tracker, f"{len(self.unsent)} metrics of {self.folder} were not stored; its steps.jsonl has all")
        store, files = self.store, [self.folder / "config.yaml", self.folder / "decisions.jsonl"]
        ask(self.tracker, lambda: store.end(state, [file for file in files if file.exists()]))
        self._remember(complete=state == "finished" and not self.unsent)

    def flush(self, tries: int = 1) -> None:
        """Send the unsent metrics; a batch that the tracker does not accept stays unsent."""
        self.last_batch = time.monotonic()
        while self.store is not None and self.unsent:
            store, batch = self.store, self.unsent[:BATCH]
            if not ask(self.tracker, lambda: store.send(batch), tries)[0]:  # noqa: B023, it is asked at once
                self.refused += 1
                return
            del self.unsent[: len(batch)]
        self._remember()

    def _add(self, kind: str, record: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        step = int(record["step"])
        if self.store is None or step <= self.seen[kind]:  # a resumed run repeats the steps after its checkpoint
            return
        self.seen[kind] = step
        now = int(time.time() * 1000)
        self.unsent += [Metric(name, value, step, now) for name, value in metrics.items()]
        if time.monotonic() - self.last_batch >= SECONDS_BETWEEN_BATCHES:
            self.flush()

    def _remember(self, complete: bool = False) -> None:
        if self.store is not None:
            note = {"run_id": self.store.run_id, "complete": complete, **self.seen}
            write_json(self.folder / f"{self.tracker}.json", note)


def step_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """A step record's numbers under the names in docs/metrics.md, such as "reward/mean"."""
    metrics: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            metrics |= {f"{key}/{name}": float(v) for name, v in value.items() if isinstance(v, int | float)}
        elif isinstance(value, int | float) and key not in NOT_METRICS:
            metrics[f"spent/{key}" if key in TOTALS else key] = float(value)
    return metrics


def evaluation_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The held-out scores of an evaluation's record."""
    return {f"evaluation/{name}": float(record[name]) for name in ("pass_at_1", "stderr") if name in record}


def ask(tracker: str, question: Callable[[], Answer], tries: int = LAST_TRIES) -> tuple[bool, Answer | None]:
    """Ask up to `tries` times (pauses of 0.1, 0.2, 0.4, ... s); returns whether there was an answer, and the answer."""
    for i in range(tries):
        try:
            return True, question()
        except Exception as error:  # packages, drivers and networks may raise anything, but no run may stop
            if i + 1 == tries > 1:
                warn(tracker, f"the store did not answer {tries} times ({one_line(error)})")
        if i + 1 < tries:
            time.sleep(0.1 * 2**i)
    return False, None


def read_note(path: Path) -> dict[str, Any]:
    """Read an earlier process's note about the copy of a folder, without invalid entries."""
    saved, kinds = read_json(path), {"run_id": str, "complete": bool, "step": int, "evaluation": int}
    return {name: saved[name] for name, kind in kinds.items() if isinstance(saved.get(name), kind)}


def warn(tracker: str, message: str) -> None:
    """Print one line for the user."""
    print(f"{tracker}: {clean(message)}", file=terminal or sys.stderr)
