"""Charts of sampler and learner over time in runs with asynchronous rollouts, and of lags of groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from halfway.experiments.report.figures.charts import Chart, by_name, chart, finite, lines, value
from halfway.experiments.report.records import Comparison, read_jsonl

COLORS = {"sampling": "#0072B2", "update": "#E69F00", "weights, and waiting for the last rollouts": "#56B4E9"}
MOST_RUNS, MOST_STEPS = 4, 12
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Event:
    """The fields of a line of events.jsonl that the figure reads, see `halfway.trainers.loop.events`."""

    event: str
    t: float
    began: float = 0.0
    ended: float = 0.0
    updated: float = 0.0
    lag: int = 0


@dataclass(slots=True)
class Worked:
    """The working times of both sides of a run, in seconds, and the lags of each step's groups in updates."""

    sampling: list[Span] = field(default_factory=list)
    updates: list[Span] = field(default_factory=list)
    weights: list[Span] = field(default_factory=list)
    lags: list[list[int]] = field(default_factory=list)


def read_spans(events: Iterable[Event]) -> Worked:
    """Read the finished steps of an event log."""
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
    found.sampling = merge_spans(found.sampling)
    return found


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that touch, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def both(ones: Sequence[Span], others: Sequence[Span]) -> float:
    """Seconds in which both worked. Neither list has spans that touch."""
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in ones for b in others)


def timeline(comparison: Comparison) -> Chart | None:
    """Some steps of the first run of each arm that has an event log: the sampler's work above the learner's."""
    rows: list[dict[str, Any]] = []
    for arm, each in list(_logs(comparison).items())[:MOST_RUNS]:
        first = max(0, (len(each.updates) - MOST_STEPS) // 2)
        start, end = each.updates[first][0], each.weights[: first + MOST_STEPS][-1][1]
        times = [sum(b - a for a, b in spans) for spans in (each.sampling, each.updates)]
        share = both(each.sampling, each.updates) / max(min(times), 1e-9)
        panel = f"{arm}: {100 * share:.0f} % of the shorter work was done beside the other"
        for spans, work in zip((each.sampling, each.updates, each.weights), COLORS, strict=True):
            rows += [
                {
                    **{"panel": panel, "arm": arm, "who": "sampler" if work == "sampling" else "learner"},
                    **{"work": work, "start": finite(max(a - start, 0.0)), "until": finite(min(b, end) - start)},
                }
                for a, b in spans
                if b > start and a < end
            ]
    encoding = {
        **{"x": value("start", "seconds"), "x2": {"field": "until"}, "y": value("who", None, "nominal")},
        "color": by_name("work", COLORS),
        "tooltip": [{"field": field} for field in ("work", "start", "until")],
    }
    return chart(rows, [{"mark": {"type": "bar"}, "encoding": encoding}], columns=2, height=70, free="x")


def lags(comparison: Comparison) -> Chart | None:
    """Age in updates of the weights that sampled the groups of each step."""
    rows = [
        {"panel": arm, "arm": arm, "lag": name, "step": step, "x": step, "y": finite(of(lags))}
        for arm, each in _logs(comparison).items()
        for step, lags in enumerate(each.lags)
        for name, of in (("latest", lambda lags: max(lags, default=0)), ("mean", lambda lags: fmean(lags or [0])))
    ]
    color = by_name("lag", {"latest": "#0072B2", "mean": "#D55E00"})
    y = value("y", "lag (updates)")
    return chart(rows, lines(y, color, ["lag", "y:.2f", "x:,.0f"], interpolate="step"), height=130)


def _logs(comparison: Comparison) -> dict[str, Worked]:
    logs = {arm: runs[0].folder / "events.jsonl" for arm, runs in comparison.runs.items() if runs}
    found = {arm: read_spans(read_jsonl(path, Event)[0]) for arm, path in logs.items() if path.exists()}
    return {arm: each for arm, each in found.items() if each.updates}
