"""Copies records to Trackio: into the folder `output`, unless the user's environment names another place."""

import io
import os
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from contextvars import Context
from pathlib import Path
from typing import Any

from halfway.curriculum.support.extras import load_extra
from halfway.experiments.config.loading import flat, to_plain
from halfway.experiments.config.run import RunConfig, TrackingOptions
from halfway.experiments.tracking.recording import SteppedRun, Tracker


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

    def store(self, config: RunConfig, arm: str, run_id: str) -> SteppedRun:
        # In a context of its own, or it would end the run that was begun before it.
        run = _quietly(
            Context().run,
            self.trackio.init,
            project=self.project,
            name=config.name,
            group=self.group or None,
            config={name: str(value) for name, value in flat(to_plain(config)).items()},
            resume="allow" if run_id else "never",
            embed=False,
        )
        return SteppedRun(run, lambda state: _quietly(run.finish))


def _quietly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that prints."""
    with redirect_stdout(io.StringIO()):
        return function(*args, **kwargs)


def show_command(tracking: TrackingOptions, output: Path) -> str:
    """The shell command that opens the dashboard."""
    folder = os.environ.get("TRACKIO_DIR", str(output / "trackio"))
    return f"TRACKIO_DIR={shlex.quote(folder)} trackio show --project {shlex.quote(tracking.experiment)}"
