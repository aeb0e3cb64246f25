"""Copies records to Weights & Biases and Trackio: into the folder `output`, unless the environment names a place.

accelerate's trackers need the process's distributed state before the run has set it, and mark every run of Weights &
Biases as a success.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from contextvars import Context
from itertools import groupby
from pathlib import Path
from typing import Any

from halfway.curriculum.support.extras import load_extra
from halfway.experiments.config.run import TrackingOptions
from halfway.experiments.tracking.recording import About, Metric, Tracker

OFFLINE = "offline"


class SteppedRun:
    """A run whose tracker takes the metrics of one step at a time, as Weights & Biases and Trackio do."""

    def __init__(self, run: Any, finish: Callable[[str], object]):
        self.run, self.run_id, self.finish = run, str(run.id), finish

    def send(self, metrics: Sequence[Metric]) -> None:
        for step, batch in groupby(metrics, key=lambda metric: metric.step):
            self.run.log({metric.name: metric.value for metric in batch}, step=step)

    def end(self, state: str, files: Sequence[Path]) -> None:
        self.finish(state)


class Wandb(Tracker):
    """One project; the runs of a comparison are one of its groups."""

    name = "wandb"

    def __init__(self, project: str, output: Path):
        """
        Raises:
            UserError: if the package is missing.
        """
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise it reports its faults to its makers
        self.wandb = load_extra("wandb", "tracking.wandb")
        self.project, self.output = project, output

    def store(self, about: About, arm: str, run_id: str) -> SteppedRun:
        self.output.mkdir(parents=True, exist_ok=True)
        settings = self.wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, init_timeout=30)
        run = self.wandb.init(
            project=self.project,
            dir=str(self.output),
            mode=os.environ.get("WANDB_MODE", OFFLINE),
            name=about.name,
            group=self.group or None,
            job_type=arm or None,
            config=dict(about.values),
            id=run_id or None,
            resume="allow",
            reinit="create_new",  # a comparison has several at once
            settings=settings,
        )
        return SteppedRun(run, lambda state: run.finish(exit_code=0 if state == "finished" else 1))


def sync_command(output: Path) -> str:
    """The shell command that sends local records; empty if they were sent at once."""
    command = f"wandb sync {shlex.quote(str(output / 'wandb'))}/offline-run-*"
    return command if os.environ.get("WANDB_MODE", OFFLINE) == OFFLINE else ""


class Trackio(Tracker):
    """One project; the runs of a comparison are one of its groups."""

    name = "trackio"

    def __init__(self, project: str, output: Path):
        """
        Raises:
            UserError: if the package is missing.
        """
        os.environ.setdefault("TRACKIO_DIR", str((output / "trackio").resolve()))  # read when it is imported
        self.trackio = load_extra("trackio", "tracking.trackio")
        self.project = project

    def store(self, about: About, arm: str, run_id: str) -> SteppedRun:
        # In its own context; otherwise it would end the run before it.
        run = Context().run(
            self.trackio.init,
            project=self.project,
            name=about.name,
            group=self.group or None,
            config={name: str(value) for name, value in about.values.items()},
            resume="allow" if run_id else "never",
            embed=False,
        )
        return SteppedRun(run, lambda state: run.finish())


def show_command(tracking: TrackingOptions, output: Path) -> str:
    """The shell command that opens the dashboard."""
    folder = os.environ.get("TRACKIO_DIR", str(output / "trackio"))
    return f"TRACKIO_DIR={shlex.quote(folder)} trackio show --project {shlex.quote(tracking.experiment)}"
