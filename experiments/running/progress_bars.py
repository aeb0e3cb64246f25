"""Recorders for people: a progress bar in a terminal, one line per step in a log file."""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from halfway.trainers.contracts import Recorder
from halfway.trainers.loop.loop_options import Budget

HOUR = 3600
LINE_SECONDS = 60


def progress_display(console: Console) -> Progress:
    """Create empty progress bars with name, bar, share, elapsed and remaining time, and a short note."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        console=console,
        speed_estimate_period=HOUR,  # steps may take minutes
    )


def spent(record: Mapping[str, Any], budget: Budget) -> float:
    """The amount of the budget spent, according to a step record."""
    return float(record["step"] + 1 if budget.unit == "steps" else record.get(budget.unit, 0.0))


class RunsDisplay(Progress):
    """Progress bars of runs, under column heads; `footer` is the line below them.

    A narrow terminal drops columns, by their heads in the order of `least_first`, until the table fits.
    """

    footer = ""
    least_first = ("elapsed", "", "tokens/s", "zero var.", "state", "pass rate", "left")

    def __init__(self, console: Console):
        heads = {
            "note": "state",
            "rate": "pass rate",
            "zero_variance": "zero var.",
            "speed": "tokens/s",
            "score": "pass@1",
        }
        # Set first, since `Progress` already draws the table as it is made.
        self.out, self.every = (
            console,
            (
                TextColumn("{task.description}", table_column=Column("run")),
                TextColumn("{task.percentage:>3.0f} %", table_column=Column("budget")),
                BarColumn(bar_width=10),
                TimeElapsedColumn(table_column=Column("elapsed")),
                TimeRemainingColumn(table_column=Column("left")),
                *(TextColumn(f"{{task.fields[{name}]}}", table_column=Column(head)) for name, head in heads.items()),
            ),
        )
        super().__init__(*self.every, console=console, speed_estimate_period=HOUR)

    def get_renderables(self) -> Iterator[RenderableType]:
        wide = self.out.options.update_width(1000)
        for number in range(len(self.least_first) + 1):
            dropped = self.least_first[:number]
            self.columns = tuple(each for each in self.every if each.get_table_column().header not in dropped)
            table = self.make_tasks_table(self.tasks)
            table.show_header = True
            if Measurement.get(self.out, wide, table).maximum <= self.out.width:
                break
        yield table
        yield Text(self.footer, style="dim")


FIELDS = ("note", "rate", "zero_variance", "speed", "score")
WINDOW = 8  # steps whose means are compared for a trend


class Bar:
    """A recorder that shows the progress of a run, on a bar or as a line.

    Args:
        display: None = no bar.
    """

    def __init__(self, display: Progress | None, name: str, budget: Budget, completed: float):
        self.display, self.name, self.budget, self.completed = display, name, budget, completed
        self.fields: dict[str, Any] = dict.fromkeys(FIELDS, "")
        self.rates: deque[float] = deque(maxlen=2 * WINDOW)
        self.spent: tuple[float, float] | None = None
        self.score: float | None = None
        if display is not None:
            self.task = display.add_task(name, start=False, total=budget.total, **self.fields)
            display.update(self.task, completed=completed)

    def begin(self) -> None:
        """Start the clock."""
        if self.display is not None:
            self.display.start_task(self.task)
        self._show(note="starting")

    def step(self, record: Mapping[str, Any]) -> None:
        self.completed = min(spent(record, self.budget), self.budget.total)
        groups, now = record["groups"], (record.get("tokens", 0), record.get("seconds", 0.0))
        if self.spent is not None and now[1] > self.spent[1]:
            self.fields["speed"] = f"{(now[0] - self.spent[0]) / (now[1] - self.spent[1]):,.0f}"
        self.spent = now
        if (rate := training_pass_rate(record)) is not None:
            self.rates.append(rate)
            self.fields["rate"] = f"{rate:.2f}{trend([*self.rates])}"
        share = groups.get("zero_variance", 0) / max(groups["rolled_out"], 1)
        self.fields["zero_variance"] = f"{100 * share:.0f} %"
        self._show(note=f"step {record['step'] + 1}")

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.score = record["pass_at_1"]
        self._show(score=f"{self.score:.3f}")

    def close(self, state: str) -> None:
        self._show(note=state)
        if self.display is not None:
            self.display.stop_task(self.task)

    def line(self) -> str:
        """The run's progress as one line of text."""
        words = {
            "rate": "pass rate {}",
            "zero_variance": "{} zero variance",
            "speed": "{} tokens/s",
            "score": "pass@1 {}",
        }
        shown = [text.format(self.fields[name]) for name, text in words.items() if self.fields[name]]
        return ", ".join([f"{self.name} {100 * self.completed / self.budget.total:.0f} %", self.fields["note"], *shown])

    def _show(self, **fields: Any) -> None:
        self.fields |= fields
        if self.display is not None:
            self.display.update(self.task, completed=self.completed, **self.fields)


def training_pass_rate(record: Mapping[str, Any]) -> float | None:
    """Pass rate over all rollouts of a step; None if no group was scored."""
    counts = [record.get(f"{kind}_counts") or [0] for kind in ("fresh", "prefix", "generated", "hinted")]
    groups = sum(map(sum, counts))
    rates = sum(k / (len(each) - 1) * count for each in counts if len(each) > 1 for k, count in enumerate(each))
    return rates / groups if groups else None


def trend(rates: Sequence[float]) -> str:
    """An arrow, up or down, if the means of the earlier and later half differ by more than 0.02."""
    half = len(rates) // 2
    if not half:
        return ""
    change = fmean(rates[-half:]) - fmean(rates[:half])
    return " \u2191" if change > 0.02 else " \u2193" if change < -0.02 else " \u2192"


class MinuteLines:
    """Prints a line a minute where no terminal shows bars."""

    def __init__(self, console: Console):
        self.console, self.printed = console, time.monotonic()

    def offer(self, make_line: Callable[[], str]) -> None:
        """Print the line if there is no terminal and a minute has passed since the last one."""
        now = time.monotonic()
        if not self.console.is_terminal and now - self.printed >= LINE_SECONDS:
            self.printed = now
            self.console.out(make_line(), highlight=False)


class Lines:
    """A recorder that prints one line per record."""

    def __init__(self, budget: Budget, say: Callable[[str], None] | None = None):
        self.budget, self.say = budget, say or functools.partial(print, flush=True)

    def step(self, record: Mapping[str, Any]) -> None:
        groups, seconds = record["groups"], sum(record["timing"].values())
        share = spent(record, self.budget) / self.budget.total
        self.say(
            f"step {record['step']}: {100 * share:.0f} % of the budget, {record['rollouts']} rollouts, "
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
        done: amount of the budget already spent.
    """
    if not console.is_terminal:
        say = functools.partial(console.out, highlight=False)
        say("loading the model")
        yield Lines(budget, say)
        return
    with RunsDisplay(console) as display:
        bar = Bar(display, name, budget, min(done, budget.total))
        bar.begin()
        yield bar
