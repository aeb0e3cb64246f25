"""Describes the runs that a comparison has to train, and those that failed."""

from dataclasses import dataclass
from pathlib import Path

from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.runs import LOG, read_state


@dataclass(frozen=True)
class Job:
    """One run of a comparison.

    Attributes:
        arm: the arm it belongs to, or one setting of an arm's sweep, "tuning/ARM/SETTING".
    """

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
    """A run whose process ended without finishing it: the last line of its log, and where to read the rest."""

    job: Job
    reason: str

    def __str__(self) -> str:
        return f"{self.job.name} failed: {self.reason} (see {self.job.folder / LOG})"
