"""Figure of who worked when, in runs whose rollouts do not wait, and of how late groups came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from halfway.experiments.report.figures.style import grid, legend_above, step_axis
from halfway.experiments.report.records import Comparison, read_jsonl

COLORS = {"sampling": "#0072B2", "update": "#E69F00", "weights, and waiting for the last rollouts": "#56B4E9"}
MOST_RUNS, MOST_STEPS = 4, 12
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Event:
    """A line of events.jsonl, as far as the figure reads it, see `halfway.trainers.loop.events`."""

    event: str
    t: float
    began: float = 0.0
    ended: float = 0.0
    updated: float = 0.0
    lag: int = 0


@dataclass(slots=True)
class Worked:
    """When each side of a run worked, in seconds, and by how many updates the groups of each step were late."""

    sampling: list[Span] = field(default_factory=list)
    updates: list[Span] = field(default_factory=list)
    weights: list[Span] = field(default_factory=list)
    lags: list[list[int]] = field(default_factory=list)


def worked(events: Iterable[Event]) -> Worked:
    """What an event log says of a run's finished steps."""
    found, late, committed = Worked(), list[int](), 0.0
    for event in events:
        if event.event == "done":
            found.sampling.append((event.began, event.ended))
            late.append(event.lag)
        elif event.event == "commit":
            committed = event.t
        elif event.event == "weights":
            found.updates.append((committed, event.updated))
            found.weights.append((event.updated, event.t))
            found.lags.append(late)
            late = []
    found.sampling = merged(found.sampling)
    return found


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time in spans that do not touch, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def both(ones: Sequence[Span], others: Sequence[Span]) -> float:
    """Seconds in which both were at work. The spans of each do not touch."""
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in ones for b in others)


def timeline(comparison: Comparison) -> Figure | None:
    """Some steps of the first run of each arm that has an event log, and the lags of all its steps."""
    logs = [(arm, runs[0].folder / "events.jsonl") for arm, runs in comparison.runs.items() if runs]
    found = [(arm, worked(read_jsonl(path, Event)[0])) for arm, path in logs if path.exists()]
    found = [(arm, each) for arm, each in found if each.updates][:MOST_RUNS]
    if not found:
        return None
    figure, axes = grid(len(found), 2, height=2.2)
    for (arm, each), (left, right) in zip(found, axes, strict=True):
        _draw_work(left, arm, each)
        right.plot([max(lags, default=0) for lags in each.lags], drawstyle="steps-mid", label="latest")
        right.plot([sum(lags) / max(len(lags), 1) for lags in each.lags], drawstyle="steps-mid", label="mean")
        right.set_ylabel("lag (updates)")
        right.legend(loc="upper right")
        step_axis(right)
    legend_above(figure, handles=[Patch(color=color, label=name) for name, color in COLORS.items()])
    return figure


def _draw_work(ax: Axes, arm: str, each: Worked) -> None:
    """One run: the sampler's row above the learner's, for the steps in its middle."""
    first = max(0, (len(each.updates) - MOST_STEPS) // 2)
    start, end = each.updates[first][0], each.weights[: first + MOST_STEPS][-1][1]
    rows = ((1, each.sampling), (0, each.updates), (0, each.weights))
    for (row, spans), color in zip(rows, COLORS.values(), strict=True):
        ax.broken_barh([(a - start, b - a) for a, b in spans], (row - 0.35, 0.7), color=color)
    ax.set_xlim(0, max(end - start, 1e-9))
    ax.set_yticks([0, 1], ["learner", "sampler"])
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("seconds")
    times = [sum(b - a for a, b in spans) for spans in (each.sampling, each.updates)]
    share = both(each.sampling, each.updates) / max(min(times), 1e-9)
    ax.set_title(f"{arm}: {share:.0%} of the shorter work was done beside the other")
