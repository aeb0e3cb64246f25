"""Copies records to Weights & Biases: into the folder `output`, until the user's WANDB_MODE says "online"."""

import os
import shlex
from pathlib import Path

from halfway.curriculum.support.extras import load_extra
from halfway.experiments.config.loading import flat, to_plain
from halfway.experiments.config.run import RunConfig
from halfway.experiments.tracking.recording import SteppedRun, Tracker

OFFLINE = "offline"


class Wandb(Tracker):
    """One project; the runs of a comparison are one of its groups."""

    name = "wandb"

    def __init__(self, project: str, output: Path):
        """
        Raises:
            UserError: if the package is missing.
        """
        self.wandb = load_extra("wandb", "tracking.wandb")
        self.project, self.output = project, output

    def store(self, config: RunConfig, arm: str, run_id: str) -> SteppedRun:
        self.output.mkdir(parents=True, exist_ok=True)
        settings = self.wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, init_timeout=30)
        run = self.wandb.init(
            project=self.project,
            dir=str(self.output),
            mode=os.environ.get("WANDB_MODE", OFFLINE),
            name=config.name,
            group=self.group or None,
            job_type=arm or None,
            config=flat(to_plain(config)),
            id=run_id or None,
            resume="allow",
            reinit="create_new",  # a comparison has several at once
            settings=settings,
        )
        return SteppedRun(run, lambda state: run.finish(exit_code=0 if state == "finished" else 1))


def sync_command(output: Path) -> str:
    """The shell command that sends what was kept here; empty if it was sent at once."""
    command = f"wandb sync {shlex.quote(str(output / 'wandb'))}/offline-run-*"
    return command if os.environ.get("WANDB_MODE", OFFLINE) == OFFLINE else ""
