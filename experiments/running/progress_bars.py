"""Recorders for people: a progress bar in a terminal, one line per step in a log file."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from halfway.trainers.contracts import Recorder
from halfway.trainers.loop.loop_options import Budget

HOUR = 3600


def progress_display(console: Console) -> Progress:
    """Empty progress bars with name, bar, share, elapsed and remaining time, and a short note."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        console=console,
        speed_estimate_period=HOUR,  # steps may take minutes
    )


def spent(record: Mapping[str, Any], budget: Budget) -> float:
    """How much of the budget is spent, according to a step record."""
    return float(record["step"] + 1 if budget.unit == "steps" else record.get(budget.unit, 0.0))


class Bar:
    """A recorder that moves one progress bar."""

    def __init__(self, display: Progress, task: TaskID, budget: Budget, completed: float):
        self.display, self.task, self.budget, self.completed = display, task, budget, completed
        self.pass_at_1 = ""

    @classmethod
    def add(cls, display: Progress, name: str, budget: Budget, done: float, note: str) -> "Bar":
        """Add a bar that stands at `done` of the budget; its clock is not started yet."""
        task = display.add_task(name, start=False, total=budget.total, note=note)
        display.update(task, completed=done)
        return cls(display, task, budget, done)

    def begin(self) -> None:
        """Start the clock."""
        self.display.start_task(self.task)
        self.display.update(self.task, note="starting")

    def step(self, record: Mapping[str, Any]) -> None:
        self.completed = min(spent(record, self.budget), self.budget.total)
        groups = record["groups"]
        trained = f"{groups.get('trained', 0)}/{groups['rolled_out']} groups trained"
        note = f"step {record['step'] + 1}, {trained}{self.pass_at_1}"
        self.display.update(self.task, completed=self.completed, note=note)

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.pass_at_1 = f", pass@1 {record['pass_at_1']:.3f}"
        self.display.update(self.task, note=f"step {record['step']}{self.pass_at_1}")

    def close(self, state: str) -> None:
        self.display.update(self.task, note=f"{state}{self.pass_at_1}")
        self.display.stop_task(self.task)


class Lines:
    """A recorder that says one line per record."""

    def __init__(self, budget: Budget, say: Callable[[str], None] | None = None):
        self.budget, self.say = budget, say or functools.partial(print, flush=True)

    def step(self, record: Mapping[str, Any]) -> None:
        groups, seconds = record["groups"], sum(record["timing"].values())
        share = spent(record, self.budget) / self.budget.total
        self.say(
            f"step {record['step']}: {share:.0%} of the budget, {record['rollouts']} rollouts, "
            f"{groups.get('trained', 0)} of {groups['rolled_out']} groups trained"
            f"{' (starved)' if record['starved'] else ''}, {seconds:.2f} s"
        )

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.say(f"step {record['step']}: held-out pass@1 {record['pass_at_1']:.4f} +- {record['stderr']:.4f}")

    def close(self, state: str) -> None:
        self.say(state)


@contextmanager
def single_run(console: Console, name: str, budget: Budget, done: float) -> Iterator[Recorder]:
    """A recorder for one run: a progress bar if there is a terminal, otherwise lines.

    Args:
        done: how much of the budget has been spent already.
    """
    if not console.is_terminal:
        yield Lines(budget, functools.partial(console.out, highlight=False))
        return
    with progress_display(console) as display:
        bar = Bar.add(display, name, budget, min(done, budget.total), "starting")
        bar.begin()
        yield bar
