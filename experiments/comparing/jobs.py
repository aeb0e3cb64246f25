"""The runs that a comparison has to train, those that failed, and their progress bars."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.progress_bars import Bar, progress_display
from halfway.experiments.running.runs import LOG, last_spent, read_state
from halfway.trainers.contracts import Recorder


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

    @classmethod
    def of(cls, config: ComparisonConfig, run: RunConfig, folder: Path) -> "Job":
        """The job of a comparison's run, whose name says where it belongs in the comparison's folder."""
        place = run.name.removeprefix(f"{config.name}/")
        return cls(place.rpartition("/")[0], run.seed, run, folder / place)

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


class Board:
    """One progress bar per active run and one for all runs; nothing is shown without a terminal."""

    def __init__(self, jobs: Sequence[Job], display: Progress | None):
        self.display = display
        self.done: dict[str, float] = {}
        self.bars: dict[str, Bar] = {}
        if display is None:
            return
        for job in jobs:
            total = job.config.budget.total
            self.done[job.name] = total if job.finished else min(total, last_spent(job.folder, job.config.budget))
        total = sum(job.config.budget.total for job in jobs)
        self.all = display.add_task(f"{len(jobs)} runs", total=total, note="")
        self.refresh()

    def recorders(self, job: Job) -> list[Recorder]:
        """The recorder that moves the bar of a run; the bar's clock starts now."""
        if self.display is None:
            return []
        bar = self.bars[job.name] = Bar.add(self.display, job.name, job.config.budget, self.done[job.name], "waiting")
        bar.begin()
        return [bar]

    def refresh(self) -> None:
        """Update the bar of all runs."""
        if self.display is not None:
            self.done |= {name: bar.completed for name, bar in self.bars.items()}
            self.display.update(self.all, completed=self._completed())

    def take_away(self, job: Job) -> None:
        """Remove the bar of a run that has ended, since a hundred of them would fill the screen."""
        if self.display is not None:
            self.refresh()
            self.display.remove_task(self.bars.pop(job.name).task)

    def _completed(self) -> float:
        return sum(self.done.values())


@contextmanager
def board_of(jobs: Sequence[Job], console: Console) -> Iterator[Board]:
    """The board of these jobs, shown until the context ends."""
    if not console.is_terminal:
        yield Board(jobs, None)
        return
    with progress_display(console) as display:
        yield Board(jobs, display)
