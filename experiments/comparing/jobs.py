"""The runs of a comparison, their failures, and their progress bars."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from halfway.curriculum.support.atomic import read_json_lines, reading
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.progress_bars import FIELDS, Bar, MinuteLines, RunsDisplay
from halfway.experiments.running.runs import LOG, last_spent, read_state
from halfway.trainers.contracts import Recorder


@dataclass(frozen=True)
class Job:
    """One run of a comparison.

    Attributes:
        arm: the run's arm, or one setting of an arm's sweep, "tuning/ARM/SETTING".
    """

    arm: str
    seed: int
    config: RunConfig
    folder: Path

    @classmethod
    def of(cls, config: ComparisonConfig, run: RunConfig, folder: Path) -> "Job":
        """Make the job of a comparison's run; the run's name is its path in the comparison's folder."""
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
    """A run whose process ended before the run: the last line of its log, and the log's path."""

    job: Job
    reason: str
    stopped: bool = False

    def __str__(self) -> str:
        if self.stopped:
            return f"{self.job.name} stopped; resume continues it (log: {self.job.folder / LOG})"
        return f"{self.job.name} failed: {self.reason} (see {self.job.folder / LOG})"


class Board:
    """Progress of the runs: a bar per active run and one for all; without a terminal one line a minute.

    Args:
        display: None = no terminal.
    """

    def __init__(self, jobs: Sequence[Job], console: Console, display: RunsDisplay | None):
        self.jobs, self.display = jobs, display
        self.bars: dict[str, Bar] = {}
        self.done = {job.name: 0.0 for job in jobs}
        self.scores: dict[str, dict[int, float]] = {}
        self.finished = 0
        for job in jobs:
            total = job.config.budget.total
            self.done[job.name] = total if job.finished else min(total, last_spent(job.folder, job.config.budget))
            if job.finished:
                self._count(job, last_score(job.folder))
        self.total = sum(job.config.budget.total for job in jobs)
        self.began, self.lines = time.monotonic(), MinuteLines(console)
        if display is not None:
            fields: dict[str, Any] = dict.fromkeys(FIELDS, "")
            self.all = display.add_task(f"{len(jobs)} runs", total=self.total, **fields)
        self.refresh()

    def recorders(self, job: Job) -> list[Recorder]:
        """Make the recorder of a run, a progress bar, and start its clock; without a terminal, say where its log is."""
        if self.display is None:
            self.lines.console.out(f"{job.name} starts (log: {job.folder / LOG})", highlight=False)
        bar = self.bars[job.name] = Bar(self.display, job.name, job.config.budget, self.done[job.name])
        bar.begin()
        return [bar]

    def refresh(self) -> None:
        """Update the bar of all runs, or print a line if a minute has passed."""
        self.done |= {name: bar.completed for name, bar in self.bars.items()}
        if self.display is not None:
            self.display.footer = f"{self.standing()}{self._logs()}"
            self.display.update(self.all, completed=sum(self.done.values()))
        self.lines.offer(self._line)

    def _line(self) -> str:
        minutes, share = (time.monotonic() - self.began) / 60, sum(self.done.values()) / max(self.total, 1e-9)
        parts = [
            f"{minutes:.0f} min, {100 * share:.0f} %",
            self.standing(),
            *(bar.line() for bar in self.bars.values()),
        ]
        return "; ".join(parts)

    def standing(self) -> str:
        """The number of finished runs, and the best arm so far by the last pass@1 of its finished runs."""
        done = f"{self.finished} of {len(self.jobs)} runs done"
        means = {arm: fmean(scores.values()) for arm, scores in self.scores.items()}
        if not means:
            return done
        best = max(means, key=lambda arm: means[arm])
        return f"{done}, best arm so far: {best}, pass@1 {means[best]:.3f} (seeds: {len(self.scores[best])})"

    def take_away(self, job: Job) -> None:
        """Remove the bar of an ended run: a hundred bars would fill the screen."""
        bar = self.bars[job.name]
        if job.finished:
            self._count(job, bar.score)
        self.refresh()
        del self.bars[job.name]
        if self.display is not None:
            self.display.remove_task(bar.task)

    def _count(self, job: Job, score: float | None) -> None:
        self.finished += 1
        if score is not None:
            self.scores.setdefault(job.arm, {})[job.seed] = score

    def _logs(self) -> str:
        active = [job.folder / LOG for job in self.jobs if job.name in self.bars]
        return f"; log: {active[0]}{' ...' if len(active) > 1 else ''}" if active else ""


def last_score(folder: Path) -> float | None:
    """Read the last held-out pass@1 of a run; None if it was not evaluated."""
    path, remedy = folder / "evaluations.jsonl", "remove its last line"
    lines = read_json_lines(path, remedy).split(b"\n")[:-1] if path.exists() else []
    with reading(path, remedy):
        return float(json.loads(lines[-1])["pass_at_1"]) if lines else None


@contextmanager
def board_of(jobs: Sequence[Job], console: Console) -> Iterator[Board]:
    """Show the board of these jobs until the context ends."""
    if not console.is_terminal:
        yield Board(jobs, console, None)
        return
    with RunsDisplay(console) as display:
        yield Board(jobs, console, display)
