"""Trains many runs, several at a time, and handles their processes, records and failures."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.comparing.jobs import Board, Failure, Job, board_of
from halfway.experiments.comparing.processes import Process, Start, end, start
from halfway.experiments.running.progress_bars import spent
from halfway.experiments.running.runs import LOG, STATUS, RecordForwarder, read_state, train
from halfway.experiments.tracking.recording import Tracker
from halfway.trainers.contracts import Recorder

POLL_SECONDS = 0.1


@dataclass
class Running:
    """An active run: its process, and the forwarder of its records."""

    job: Job
    process: Process
    forwarder: RecordForwarder


class Forecast:
    """A recorder that prints, after the first step of the first run, the estimated time of all runs.

    Args:
        jobs: the unfinished runs.
        parallel: number of runs at the same time.
    """

    def __init__(self, jobs: Sequence[Job], parallel: int, console: Console):
        self.jobs, self.parallel, self.console, self.said = jobs, parallel, console, False

    def step(self, record: Mapping[str, Any]) -> None:
        if self.said or not self.jobs:
            return
        self.said = True
        config, timing = self.jobs[0].config, record.get("timing", {})
        steps = config.budget.total / max(spent(record, config.budget), 1e-9)
        seconds = steps * record.get("seconds", 0.0) + (1 + config.evaluation.points) * timing.get("evaluate", 0.0)
        minutes = seconds * len(self.jobs) / min(self.parallel, len(self.jobs)) / 60
        short, long = f"{60 * minutes:.0f} s", f"{minutes / 60:.1f} h"
        number = short if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else long
        self.console.print(f"by the first step, {len(self.jobs)} runs take about {number}", highlight=False)

    def evaluation(self, record: Mapping[str, Any]) -> None: ...

    def close(self, state: str) -> None: ...


class Runner:
    """Trains jobs side by side.

    Args:
        parallel: number of runs at the same time.
        trackers: trackers that get copies of the records.
        begin: starts a run, for example as a scheduler's job; None = as a process of this machine.
    """

    def __init__(
        self,
        parallel: int,
        console: Console,
        trackers: Sequence[Tracker] = (),
        begin: Start | None = None,
    ):
        self.parallel, self.console, self.trackers = parallel, console, trackers
        self.begin = begin or start
        self.forecast = Forecast((), parallel, console)

    def train(self, jobs: Sequence[Job]) -> list[Failure]:
        """Train every unfinished job; returns the failed jobs. Other jobs are not affected.

        An interrupt stops the runs too. Each continues from its newest checkpoint when it is trained again.
        """
        for job in jobs:
            self._copy_if_finished(job)
        waiting = deque(job for job in jobs if not job.finished)
        self.forecast = Forecast([*waiting], self.parallel, self.console)
        running: list[Running] = []
        failures: list[Failure] = []
        with board_of(jobs, self.console) as board:
            try:
                while waiting or running:
                    while waiting and len(running) < self.parallel:
                        running.append(self._start(waiting.popleft(), board))
                    time.sleep(POLL_SECONDS)
                    for one in list(running):
                        one.forwarder.poll()
                        status = one.process.exitcode
                        if status is not None:
                            running.remove(one)
                            failures += self._finish(one, status)
                            board.take_away(one.job)
                    board.refresh()
            finally:
                stop(running)
        return failures

    def _start(self, job: Job, board: Board) -> Running:
        forwarder = RecordForwarder(job.folder, [*board.recorders(job), *self._tracked(job), self.forecast])
        forwarder.begin()
        return Running(job, self.begin(job.config, job.folder, self.parallel), forwarder)

    def _finish(self, one: Running, status: int) -> list[Failure]:
        one.forwarder.poll()
        stopped = read_state(one.job.folder) == "stopped"
        state = "finished" if status == 0 and one.job.finished else "stopped" if stopped else "failed"
        for recorder in one.forwarder.recorders:
            recorder.close(state)
        if state == "finished":
            self.console.print(f"{one.job.name} finished")
            return []
        if read_state(one.job.folder) == "starting":
            write_json(one.job.folder / STATUS, {"state": state})
        failure = Failure(one.job, last_words(one.job, status), stopped)
        self.console.print(str(failure), style="yellow" if stopped else "red", soft_wrap=True, markup=False)
        return [failure]

    def _tracked(self, job: Job) -> list[Recorder]:
        return [tracker.run(job.config, job.folder, job.arm) for tracker in self.trackers]

    def _copy_if_finished(self, job: Job) -> None:
        """Complete the copies of a finished run if its comparison was stopped before reading all records."""
        lacking = [tracker for tracker in self.trackers if job.finished and not tracker.has_all(job.folder)]
        if not lacking:
            return
        recorders = [tracker.run(job.config, job.folder, job.arm) for tracker in lacking]
        RecordForwarder(job.folder, recorders).poll()
        for recorder in recorders:
            recorder.close("finished")


class InThisProcess(Runner):
    """Trains jobs one after the other in this process, for `halfway.compare`; raises the first failure."""

    def train(self, jobs: Sequence[Job]) -> list[Failure]:
        for job in jobs:
            if job.config.rollouts.engine.part.changes_process:
                name = job.config.rollouts.engine.name
                raise UserError(f"rollouts.engine: {name!r} needs a process for each run; use the command `compare`")
            self._copy_if_finished(job)
        with board_of(jobs, self.console) as board:
            for job in jobs:
                if not job.finished:
                    train(job.config, job.folder, [*board.recorders(job), *self._tracked(job)])
                    board.take_away(job)
        return []


def last_words(job: Job, status: int) -> str:
    """The last line of a failed run's log, or how its process ended."""
    if status < 0:
        return f"killed by signal {-status}"
    log = job.folder / LOG
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {status}")


def stop(running: Sequence[Running]) -> None:
    """End all active runs at the same time."""
    end([one.process for one in running])
    for one in running:
        for recorder in one.forwarder.recorders:
            recorder.close("stopped")
