"""Opens the trackers of a run."""

from collections.abc import Iterator
from pathlib import Path

from halfway.experiments.config.run import TrackingOptions
from halfway.experiments.tracking.mlflow_store import Mlflow, ui_command
from halfway.experiments.tracking.recording import Tracker
from halfway.experiments.tracking.stepped_stores import show_command, sync_command
from halfway.experiments.tracking.tracker_process import TrackerProcess


def open_trackers(tracking: TrackingOptions, output: Path) -> list[Tracker]:
    """Open a run's trackers; a tracker that does not open is left out.

    Raises:
        UserError: if a tracker's package is missing, or MLflow's store is elsewhere and the user has not accepted that.
    """
    asked = {"mlflow": tracking.mlflow, "wandb": tracking.wandb, "trackio": tracking.trackio}
    found: list[Tracker | None] = []
    for name in (name for name, wanted in asked.items() if wanted):
        here = name == "mlflow" and "://" not in tracking.uri  # a file, without a server
        found.append(Mlflow.open(tracking, output) if here else TrackerProcess.open(name, tracking, output))
    return [tracker for tracker in found if tracker is not None]


def commands(tracking: TrackingOptions, output: Path) -> Iterator[tuple[str, str]]:
    """The name of each tracker of a run, and the shell command that shows or sends its records."""
    if tracking.mlflow:
        yield "MLflow", ui_command(tracking, output)
    if tracking.wandb and (command := sync_command(output)):
        yield "W&B", command
    if tracking.trackio:
        yield "Trackio", show_command(tracking, output)
