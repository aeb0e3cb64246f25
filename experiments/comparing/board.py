"""Shows progress bars for many runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from halfway.experiments.comparing.jobs import Job
from halfway.experiments.running.progress_bars import Bar, progress_display
from halfway.experiments.running.runs import last_spent
from halfway.trainers.contracts import Recorder


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
        total, at_start = sum(job.config.budget.total for job in jobs), self._completed()
        self.all = display.add_task(f"{len(jobs)} runs", total=total, at_start=at_start, note="")

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
