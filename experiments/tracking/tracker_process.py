"""Keeps a tracker's package in its own process, so that no server can block, fill or end a run."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import RunConfig, TrackingOptions
from halfway.experiments.tracking import recording
from halfway.experiments.tracking.mlflow_store import Mlflow, require_known_store, ui_command
from halfway.experiments.tracking.recording import About, Metric, Tracker, warn
from halfway.experiments.tracking.stepped_stores import Trackio, Wandb, show_command, sync_command
from halfway.trainers.contracts import Recorder

PATIENCE, SHARE = 120.0, 0.05
"""Time limit on all answers together: these seconds, plus this share of the time since the tracker was opened."""
MEMORY = 2 << 30
LONGEST_ANSWER = 1 << 16
SECONDS_TO_LEAVE = 30
START = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import serve; serve()"
OPENERS: Mapping[str, Callable[[TrackingOptions, Path], Tracker | None]] = {
    "mlflow": Mlflow.open,
    "wandb": lambda tracking, output: Wandb(tracking.experiment, output),
    "trackio": lambda tracking, output: Trackio(tracking.experiment, output),
}


class TrackerProcess(Tracker):
    """A tracker in its own process. A process that answers too late is ended."""

    def __init__(self, name: str):
        self.name = name
        command = [sys.executable, "-c", START, json.dumps(sys.path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self.opened, self.waited, self.lost = time.monotonic(), 0.0, ""
        self.end_process = weakref.finalize(self, _end, self.process)

    @classmethod
    def open(cls, name: str, tracking: TrackingOptions, output: Path) -> "TrackerProcess | None":
        """Open the tracker; None if that fails.

        Raises:
            UserError: if its package is missing, or its store is elsewhere and the user has not accepted that.
        """
        tracker = cls(name)
        try:
            return tracker if tracker.ask("open", name, tracking, output) else None
        except (OSError, RuntimeError) as error:
            warn(name, f"cannot be opened, so this run is not logged there ({one_line(error)})")
            return None

    def store(self, about: About, arm: str, run_id: str) -> "TrackerProcessRun | None":
        found = self.ask("store", about, arm, run_id)
        return TrackerProcessRun(self, int(found[0]), str(found[1])) if found else None

    def comparison(self, config: ComparisonConfig, folder: Path) -> None:
        unit, total = config.budget.unit, config.budget.total
        comparison = {"name": config.name, "arms": [*config.arms], "seeds": [*config.seeds]}
        recording.ask(self.name, lambda: self.ask("comparison", comparison, unit, total, folder), tries=1)

    def attach(self, files: Sequence[Path]) -> None:
        recording.ask(self.name, lambda: self.ask("attach", [*files]), tries=1)

    def end(self, state: str, files: Sequence[Path] = ()) -> None:
        recording.ask(self.name, lambda: self.ask("end", state, [*files]), tries=1)

    def ask(self, question: str, *arguments: Any) -> Any:
        """Ask the process a question for `Served`; returns its answer.

        Raises:
            UserError: if the process refuses.
            RuntimeError, OSError: if the process fails, has ended, or is late and therefore ended.
        """
        if self.lost:
            raise RuntimeError(self.lost)
        assert self.process.stdin and self.process.stdout
        began = time.monotonic()
        deadline = began + PATIENCE + SHARE * (began - self.opened) - self.waited
        self.process.stdin.write(msgspec.json.encode([question, *arguments], enc_hook=str) + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            ready = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(self.process.stdout.fileno(), LONGEST_ANSWER) if ready else b""
            line += piece
            if not piece or len(line) > LONGEST_ANSWER:
                self.process.kill()
                self.end_process()
                self.lost = "its process has ended" if ready else f"no answer in {time.monotonic() - began:.0f} s"
                raise RuntimeError(self.lost)
        self.waited += time.monotonic() - began
        found = json.loads(line)
        if "refused" in found:
            raise UserError(found["refused"])
        if "failed" in found:
            raise RuntimeError(found["failed"])
        return found["answer"]


class TrackerProcessRun:
    """One run of a tracker in its own process."""

    def __init__(self, tracker: TrackerProcess, number: int, run_id: str):
        self.tracker, self.number, self.run_id = tracker, number, run_id

    def send(self, metrics: Sequence[Metric]) -> None:
        self.tracker.ask("send", self.number, [*metrics])

    def end(self, state: str, files: Sequence[Path]) -> None:
        self.tracker.ask("end_run", self.number, state, [*files])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let a process exit, then end the rest of its group."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_TO_LEAVE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Served:
    """The tracker in this process, with methods on JSON values."""

    def open(self, name: str, tracking: Any, output: str) -> bool:
        found = OPENERS[name](msgspec.convert(tracking, TrackingOptions), Path(output))
        if found:
            self.tracker, self.stores = found, list[recording.Store]()
        return found is not None

    def store(self, about: Any, arm: str, run_id: str) -> tuple[int, str] | None:
        store = self.tracker.store(msgspec.convert(about, About), arm, run_id)
        self.stores += [store] if store else []
        return (len(self.stores) - 1, store.run_id) if store else None

    def comparison(self, comparison: dict[str, Any], unit: str, total: float, folder: str) -> None:
        config: Any = SimpleNamespace(**comparison, budget=SimpleNamespace(unit=unit, total=total))
        self.tracker.comparison(config, Path(folder))

    def attach(self, files: Sequence[str]) -> None:
        self.tracker.attach([*map(Path, files)])

    def end(self, state: str, files: Sequence[str]) -> None:
        self.tracker.end(state, [*map(Path, files)])

    def send(self, number: int, metrics: Any) -> None:
        self.stores[number].send(msgspec.convert(metrics, list[Metric]))

    def end_run(self, number: int, state: str, files: Sequence[str]) -> None:
        self.stores[number].end(state, [*map(Path, files)])


def serve() -> None:
    """Answer the questions of the parent process. The output of packages is discarded."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    recording.terminal = os.fdopen(os.dup(2), "w", buffering=1)
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    warnings.filterwarnings("default", category=UserWarning, module="trackio")  # its only sign of lost records
    warnings.showwarning = lambda message, *_: recording.warn("trackio", one_line(message))
    served, answer = Served(), dict[str, Any]()
    for line in questions:
        try:
            question, *arguments = json.loads(line)
            answer = {"answer": getattr(served, question)(*arguments)}
        except UserError as error:
            answer = {"refused": str(error)}
        except Exception as error:  # a package may raise anything
            answer = {"failed": one_line(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
    signal.alarm(SECONDS_TO_LEAVE)  # packages may wait at the end, too


class Late:
    """Recorders that are opened once the first step is done; evaluations before that wait for them."""

    def __init__(self, make: Callable[[], Sequence[Recorder]]):
        self._make, self._waiting = make, list[Mapping[str, Any]]()

    @cached_property
    def _made(self) -> Sequence[Recorder]:
        made = self._make()
        for record in self._waiting:
            for recorder in made:
                recorder.evaluation(record)
        return made

    def step(self, record: Mapping[str, Any]) -> None:
        for recorder in self._made:
            recorder.step(record)

    def evaluation(self, record: Mapping[str, Any]) -> None:
        if "_made" not in vars(self):
            self._waiting.append(record)
            return
        for recorder in self._made:
            recorder.evaluation(record)

    def close(self, state: str) -> None:
        for recorder in self._made:
            recorder.close(state)


class LateMlflow(Tracker):
    """MLflow's file, opened after the first step of a run: importing MLflow takes a third of a run's start."""

    name = "mlflow"

    def __init__(self, tracking: TrackingOptions, output: Path):
        """Raises UserError: see `require_known_store`."""
        require_known_store(tracking)
        self.tracking, self.output = tracking, output
        self._comparison: tuple[ComparisonConfig, Path] | None = None

    @cached_property
    def _opened(self) -> list[Tracker]:
        found = Mlflow.open(self.tracking, self.output)
        if found and self._comparison:
            found.comparison(*self._comparison)
        return [found] if found else []

    def run(self, config: RunConfig, folder: Path, arm: str = "") -> Recorder:
        return Late(lambda: [tracker.run(config, folder, arm) for tracker in self._opened])

    def comparison(self, config: ComparisonConfig, folder: Path) -> None:
        self._comparison = config, folder

    def attach(self, files: Sequence[Path]) -> None:
        for tracker in self._opened:
            tracker.attach(files)

    def end(self, state: str, files: Sequence[Path] = ()) -> None:
        for tracker in self._opened:
            tracker.end(state, files)


def open_trackers(tracking: TrackingOptions, output: Path) -> list[Tracker]:
    """Open a run's trackers; a tracker that does not open is left out.

    Raises:
        UserError: if a tracker's package is missing, or MLflow's store is elsewhere and the user has not accepted that.
    """
    asked = {"mlflow": tracking.mlflow, "wandb": tracking.wandb, "trackio": tracking.trackio}
    found: list[Tracker | None] = []
    for name in (name for name, wanted in asked.items() if wanted):
        here = name == "mlflow" and "://" not in tracking.uri  # a file, without a server
        found.append(LateMlflow(tracking, output) if here else TrackerProcess.open(name, tracking, output))
    return [tracker for tracker in found if tracker is not None]


def commands(tracking: TrackingOptions, output: Path) -> Iterator[tuple[str, str]]:
    """The name of each tracker of a run, and the shell command that shows or sends its records."""
    if tracking.mlflow:
        yield "MLflow", ui_command(tracking, output)
    if tracking.wandb and (command := sync_command(output)):
        yield "W&B", command
    if tracking.trackio:
        yield "Trackio", show_command(tracking, output)
