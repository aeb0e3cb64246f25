"""Comparisons: arms x seeds, each run in a process of its own, resumable run by run."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import differences, load_comparison_config, save
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.progress_bars import Bar, progress_display
from halfway.experiments.running.runs import (
    COMPARISON,
    LOG,
    RecordForwarder,
    last_spent,
    prepare,
    read_state,
    refuse_other_settings,
)
from halfway.experiments.running.tracking import PARENT_TAG, Tracker
from halfway.trainers.contracts import Recorder

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 20


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    arm: str
    seed: int
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def finished(self) -> bool:
        return read_state(self.folder) == "finished"


@dataclass(frozen=True)
class Failure:
    """A run whose process ended without finishing it: its last words, and where to read the others."""

    job: Job
    reason: str

    def __str__(self) -> str:
        return f"{self.job.name} failed: {self.reason} (see {self.job.folder / LOG})"


@dataclass
class Running:
    """A run in progress: its process, and what forwards its records."""

    job: Job
    process: "subprocess.Popen[bytes]"
    forwarder: RecordForwarder


def prepare_comparison(config: ComparisonConfig, folder: Path) -> ComparisonConfig:
    """Give a comparison its directory; if it has one already, add the new seeds and the new arms to it.

    Raises:
        UserError: if the directory holds a comparison with other settings.
    """
    path = folder / COMPARISON
    if path.exists():
        earlier = load_comparison_config(path)
        added = [seed for seed in config.seeds if seed not in earlier.seeds]
        seeds = (*earlier.seeds, *added)
        known = replace(earlier, seeds=seeds, arms={**config.arms, **earlier.arms})
        config = replace(config, seeds=seeds, arms={**earlier.arms, **config.arms})
        refuse_other_settings(differences(known, config), folder)
    save(config, path)
    return config


def jobs_of(config: ComparisonConfig, folder: Path) -> list[Job]:
    """Every run of a comparison, with its directory made."""
    jobs = [Job(arm, seed, run, folder / arm / f"seed-{seed}") for arm, seed, run in config.runs()]
    for job in jobs:
        prepare(job.config, job.folder)
    return jobs


def run_comparison(
    config: ComparisonConfig, folder: Path, parallel: int, console: Console, tracker: Tracker | None
) -> list[Failure]:
    """Train every run that is not finished, `parallel` at a time; the failures come back, the other runs go on.

    Interrupting it stops the runs too. Each continues from its newest checkpoint when the comparison is run again.
    """
    jobs = jobs_of(config, folder)
    parent = tracker.comparison(config, folder) if tracker else ""
    state = "stopped"
    try:
        with ExitStack() as stack:
            display = stack.enter_context(progress_display(console)) if console.is_terminal else None
            failures = _train_all(jobs, parallel, Board(jobs, display), console, tracker, parent)
        state = "failed" if failures else "finished"
    finally:
        if tracker:
            tracker.end(parent, state, (folder / COMPARISON,))
    return failures


def _train_all(
    jobs: Sequence[Job], parallel: int, board: "Board", console: Console, tracker: Tracker | None, parent: str
) -> list[Failure]:
    waiting = deque(job for job in jobs if not job.finished)
    running: list[Running] = []
    failures: list[Failure] = []
    try:
        for job in jobs:
            if tracker and job.finished and not tracker.has_all(job.folder):
                _copy_finished(job, _tracked(job, tracker, parent))
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.popleft()
                running.append(_start(job, [*board.recorders(job), *_tracked(job, tracker, parent)], parallel))
            time.sleep(POLL_SECONDS)
            for one in list(running):
                one.forwarder.poll()
                if one.process.poll() is not None:
                    running.remove(one)
                    failures += _finish(one, console)
            board.refresh()
    finally:
        _stop(running)
    return failures


class Board:
    """One progress bar a run, and one for all of them; nothing where there is no terminal."""

    def __init__(self, jobs: Sequence[Job], display: Progress | None):
        self.display = display
        self.bars: dict[str, Bar] = {}
        if display is None:
            return
        for job in jobs:
            budget = job.config.budget
            done = budget.total if job.finished else min(budget.total, last_spent(job.folder, budget))
            self.bars[job.name] = Bar.add(display, job.name, budget, done, "finished" if job.finished else "waiting")
        total, at_start = sum(bar.budget.total for bar in self.bars.values()), self._completed()
        self.all = display.add_task("all runs", total=total, at_start=at_start, note="")

    def recorders(self, job: Job) -> list[Recorder]:
        """The bar of a run, set going."""
        if self.display is None:
            return []
        self.bars[job.name].begin()
        return [self.bars[job.name]]

    def refresh(self) -> None:
        """Move the bar of all runs."""
        if self.display is not None:
            self.display.update(self.all, completed=self._completed())

    def _completed(self) -> float:
        return sum(bar.completed for bar in self.bars.values())


def _tracked(job: Job, tracker: Tracker | None, parent: str) -> list[Recorder]:
    """The run's MLflow recorder, if there is a tracker."""
    parent_tag = {PARENT_TAG: parent} if parent else {}
    return [tracker.run(job.config, job.folder, {**parent_tag, "halfway.arm": job.arm})] if tracker else []


def _copy_finished(job: Job, recorders: Sequence[Recorder]) -> None:
    """Complete the copy of a run whose comparison was stopped before it had read everything."""
    RecordForwarder(job.folder, recorders).poll()
    for recorder in recorders:
        recorder.close("finished")


def _start(job: Job, recorders: list[Recorder], parallel: int) -> Running:
    forwarder = RecordForwarder(job.folder, recorders)
    forwarder.begin()
    with (job.folder / LOG).open("ab") as log:
        environment = _environment(job, parallel)
        process = subprocess.Popen(run_command(job), stdout=log, stderr=subprocess.STDOUT, env=environment)
    return Running(job, process, forwarder)


def run_command(job: Job) -> list[str]:
    """The command that trains one run in a process of its own."""
    return [sys.executable, "-P", "-m", "halfway.experiments.cli", "run-arm", str(job.folder)]


def _environment(job: Job, parallel: int) -> Mapping[str, str]:
    """The child's environment: a fair share of the cores if runs are parallel."""
    threads = job.config.threads or max(1, (os.cpu_count() or 1) // parallel)
    limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} if parallel > 1 else {}
    return {**os.environ, "PYTHONUNBUFFERED": "1", **limits}


def _finish(one: Running, console: Console) -> list[Failure]:
    one.forwarder.poll()
    state = "finished" if one.process.returncode == 0 and one.job.finished else "failed"
    for recorder in one.forwarder.recorders:
        recorder.close(state)
    if state == "finished":
        if not console.is_terminal:
            console.print(f"{one.job.name} finished")
        return []
    failure = Failure(one.job, _last_words(one))
    console.print(f"[red]{failure}[/red]", soft_wrap=True)
    return [failure]


def _last_words(one: Running) -> str:
    """The last line of a failed run's log, or how its process ended."""
    code = one.process.returncode
    if code < 0:
        return f"killed by signal {-code}"
    lines = (one.job.folder / LOG).read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")


def _stop(running: Sequence[Running]) -> None:
    """End the processes that this comparison started and that still run."""
    for one in running:
        one.process.terminate()
    for one in running:
        try:
            one.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
        for recorder in one.forwarder.recorders:
            recorder.close("stopped")
