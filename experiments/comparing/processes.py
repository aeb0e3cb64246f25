"""The processes that train a comparison's runs: forks of one with all imports, or fresh ones.

Python's fork server imports once and computes nothing, so its forks start like a process that has just finished its
imports. No run sees leftovers of an earlier one (random state, thread settings, caches, environment), and a run that
dies affects no other.
"""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from halfway.curriculum.support.atomic import open_own
from halfway.curriculum.support.end_with_parent import end_with_parent
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.launch import PYTHON
from halfway.experiments.running.progress_bars import Lines
from halfway.experiments.running.runs import CONFIG, LOG, train
from halfway.experiments.running.stop_signals import Interrupted, exit_code
from halfway.experiments.scripts import one_line_errors

PATIENCE_SECONDS = 25
"""Seconds for runs to write their checkpoints; Slurm and Kubernetes kill after 30 s by default."""


class Process(Protocol):
    """The process of a run, with the interface of `multiprocessing`."""

    @property
    def exitcode(self) -> int | None: ...

    def terminate(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...

    def kill(self) -> None: ...


Start = Callable[[RunConfig, Path, int], Process]
"""Starts training the run in a directory, one of several at the same time."""
MODULES = (
    "accelerate",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",  # of the lab's models
    "halfway.experiments.comparing.processes",
    "halfway.experiments.running.build",
    "halfway.experiments.running.parts",
    "halfway.trainers.engines.transformers.engine",
    "halfway.trainers.learner.learner",
    "halfway.trainers.loop.checkpoint",
    "halfway.trainers.loop.held_out",
    "halfway.trainers.loop.training",
    "halfway.trainers.rollouts.collector",
)
"""Modules that every run imports. If one is missing here, each run imports it itself."""


def start(config: RunConfig, folder: Path, parallel: int) -> BaseProcess:
    """Start training the run in a directory, in its own process; its output goes to its log.

    Args:
        parallel: number of runs at the same time; the cores are shared among them.
    """
    share = str(max(1, (os.cpu_count() or 1) // parallel))
    limits = {"OMP_NUM_THREADS": share, "MKL_NUM_THREADS": share} if parallel > 1 else {}
    # Processes import nothing from the user's current folder.
    os.environ.update({"PYTHONSAFEPATH": "1", **limits})
    if needs_fresh_process(config):
        process: BaseProcess = multiprocessing.get_context("spawn").Process(target=train_alone, args=(folder,))
    else:
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(list(MODULES))
        process = server.Process(target=train_alone, args=(folder,))
    process.start()
    return process


def needs_fresh_process(config: RunConfig) -> bool:
    """True if a run needs a fresh Python, because it or its engine starts servers or further processes.

    Outside Linux all runs do: system libraries of macOS do not survive a fork.
    """
    if sys.platform != "linux":
        return True
    return config.rollouts.engine.part.changes_process or config.learner.deepspeed.zero_stage is not None


def needs_launch(config: RunConfig) -> bool:
    """True if a run has several ranks, or servers on other hosts."""
    return config.cluster.ranks > 1 or config.cluster.rollout_nodes > 0


def train_as_job(folder: Path, hosts: Callable[[], Sequence[str]], through: str) -> int:
    """Train the run in a directory as a scheduler's job, like `halfway compare` on this machine.

    Args:
        hosts: finds the hosts of the job, for a run that must be launched on them.
        through: "ssh" or "srun".

    Returns:
        The exit status of the training.
    """
    config = load_run_config(folder / CONFIG)
    if needs_launch(config):
        words = (*PYTHON, "halfway.experiments.cli", "launch", str(folder / CONFIG), "--through", through, "--nodes")
        with open_own(folder / LOG, "ab") as log:
            return subprocess.call([*words, ",".join(hosts())], stdout=log, stderr=log)
    process = start(config, folder, parallel=1)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def train_alone(folder: Path) -> None:
    """Train the run in a directory, with one line per record in its log and no report. Ends with the comparison."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the comparison passes it on
    gc.freeze()  # otherwise a collection would copy the pages that a fork shares
    end_with_parent()
    log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    with one_line_errors("halfway compare"):
        config = load_run_config(folder / CONFIG)
        try:
            train(config, folder, [Lines(config.budget)], supervised=True)
        except Interrupted as interrupt:
            raise SystemExit(exit_code(interrupt)) from None


def end(processes: Sequence[Process]) -> None:
    """End all processes at the same time; a process that does not end by itself is killed."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()
