"""The processes that train a comparison's runs: a warm worker for most runs, a separate process for some."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from halfway.experiments.config.paths import find
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.runs import LOG

PATIENCE_SECONDS = 20
COMMAND = (sys.executable, "-P", "-m", "halfway.experiments.cli")

Environment = Mapping[str, str]


class RunProcess(Protocol):
    """A process that trains one run."""

    def poll(self) -> int | None:
        """The exit status of the run, negative if a signal ended it; None while it is running."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def wait(self) -> None:
        """Wait for a process that was asked to end, and kill it if it does not."""
        ...


class OwnProcess:
    """A separate Python process for one run."""

    def __init__(self, folder: Path, environment: Environment):
        command = run_command(folder)
        with (folder / LOG).open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def poll(self) -> int | None:
        return self.process.poll()

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self) -> None:
        wait_or_kill(self.process)


class WarmWorker:
    """A process that has imported what training needs and trains one run at a time (see `warm_worker`).

    It leads a process group, so that it and the run in progress end together, and an interrupt from the terminal
    reaches only the process of the comparison.
    """

    def __init__(self, environment: Environment, log: Path):
        """
        Args:
            log: file for its errors outside runs; each run has its own log.
        """
        self.environment = environment
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "work"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                process_group=0,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout
        os.set_blocking(self._answers.fileno(), False)

    def train(self, config: RunConfig, folder: Path) -> None:
        """Begin a run. If the worker is dead, `poll` reports it."""
        request = {"folder": str(folder), "model": str(find(config.model.path))}
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")

    def poll(self) -> int | None:
        answer = None if self._answers.closed else self._answers.read()
        return int(answer) if answer else self.process.poll()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_SECONDS)
        self._signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self._requests, self._answers):
            pipe.close()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Workforce:
    """Starts a process for each run: an idle worker, a new worker, or a process for this run alone.

    Args:
        parallel: number of runs at the same time; the cores are shared among them.
    """

    def __init__(self, parallel: int):
        self.parallel = parallel
        self.free: list[WarmWorker] = []

    def start(self, config: RunConfig, folder: Path) -> RunProcess:
        """Begin to train the run in a directory; its output goes to its log."""
        environment = self._environment(config)
        if needs_own_process(config):
            return OwnProcess(folder, environment)
        worker = self._worker(environment, folder / LOG)
        worker.train(config, folder)
        return worker

    def release(self, process: RunProcess) -> None:
        """Take back the process of a run that has ended. A worker that died is replaced when one is needed."""
        if isinstance(process, WarmWorker) and process.alive:
            self.free.append(process)
        else:
            process.wait()

    def close(self) -> None:
        """End the idle workers."""
        end(self.free)
        self.free = []

    def _worker(self, environment: Environment, log: Path) -> WarmWorker:
        for worker in self.free:
            if worker.environment == environment and worker.alive:
                self.free.remove(worker)
                return worker
        return WarmWorker(environment, log)

    def _environment(self, config: RunConfig) -> Environment:
        """The environment of a run's process, with a fair share of the cores if runs are parallel."""
        threads = config.threads or max(1, (os.cpu_count() or 1) // self.parallel)
        limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} if self.parallel > 1 else {}
        return {**os.environ, "PYTHONUNBUFFERED": "1", **limits}


def needs_own_process(config: RunConfig) -> bool:
    """Whether a run, or its engine, starts servers or further processes, so that it needs a fresh Python.

    Outside Linux this holds for all runs, since system libraries of macOS do not survive a fork.
    """
    if sys.platform != "linux":
        return True
    return config.rollouts.engine.part.changes_process or config.learner.deepspeed.zero_stage is not None


def run_command(folder: Path) -> list[str]:
    """The command that trains one run in a separate process."""
    return [*COMMAND, "run-arm", str(folder)]


def end(processes: Sequence[RunProcess]) -> None:
    """End all processes at the same time."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def wait_or_kill(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process that was asked to end, and kill it if it does not."""
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
