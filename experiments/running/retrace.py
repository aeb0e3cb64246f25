"""Retraces a run with asynchronous rollouts: from the event log, a session makes every decision again."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halfway.curriculum import Group, Request, Session, Stream, UserError
from halfway.curriculum.support.atomic import read_json_lines, reading
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.events import logged_group
from halfway.trainers.loop.held_out import Evaluation, summarize
from halfway.trainers.loop.loop_options import Budget, CheckpointOptions, FillOptions
from halfway.trainers.loop.progress import Stopwatch
from halfway.trainers.loop.training import Training
from halfway.trainers.rollouts.in_flight import Pool


class Retraced(NamedTuple):
    """Agreement of retraced decisions with the log.

    Attributes:
        steps: steps retraced.
        decisions: number of equal decisions before the first difference.
        different: line of the first difference in decisions.jsonl, from 1; 0 = none.
    """

    steps: int
    decisions: int
    different: int


def retrace(folder: Path, session: Session, fill: FillOptions, staleness: int, seed: int, measure: int = 1) -> Retraced:
    """Make the decisions of a run again.

    Args:
        folder: the run directory, with events.jsonl, events.bin and decisions.jsonl.
        session: in its state at the start of the run.
        measure: steps between two measurements of an oracle, if there is one.

    Raises:
        UserError: if the event log is missing or damaged, or the session draws other problems than the run did.
    """
    remedy = "put the whole file back"
    damaged = partial(reading, folder / "events.jsonl", remedy)
    with damaged():
        recorded = Recorded(list(read_events(folder / "events.jsonl")), folder)
    with tempfile.TemporaryDirectory() as again:
        run = Training(
            folder=Path(again),
            session=session,
            rollouts=recorded,
            pool=recorded,
            learner=recorded,
            oracle=recorded.measured if "measured" in session.controller.needs else None,
            oracle_every=measure,
            sync=lambda: None,
            fill=fill,
            budget=Budget(steps=max(recorded.steps, 1)),
            seed=seed,
            checkpoints=Checkpoints(Path(again), CheckpointOptions()),
            staleness=staleness,
            in_flight=True,  # nothing need be awaited
        )
        with damaged():
            for _ in range(recorded.steps):
                run.step(Stopwatch())
        ours = (Path(again) / "decisions.jsonl").read_bytes().splitlines()
    theirs = read_json_lines(folder / "decisions.jsonl", remedy).splitlines()
    with reading(folder / "decisions.jsonl", remedy):
        whole = [line for line in theirs if json.loads(line)["step"] < recorded.steps]
    pairs = enumerate(zip_longest(ours, whole), start=1)
    different = next((number for number, (one, other) in pairs if one != other), 0)
    return Retraced(recorded.steps, different - 1 if different else len(whole), different)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a log. Raises UserError if there is none, or a line is damaged."""
    if not path.exists():
        raise UserError(f"{path}: does not exist; only runs with rollouts.staleness above 0 write an event log")
    for number, line in enumerate(read_json_lines(path, "put the whole file back").splitlines(), start=1):
        try:
            event = json.loads(line)
            assert isinstance(event["event"], str)
        except (ValueError, LookupError, TypeError, AssertionError, RecursionError):
            raise UserError(f"{path}: line {number} is damaged; put the whole file back") from None
        yield event


@dataclass
class Recorded(Pool):
    """Stand-in for pool, learner and oracle that replays the event log of a finished run."""

    events: Sequence[dict[str, Any]]
    folder: Path
    times: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._done = {event["ticket"]: event for event in self.events if event["event"] == "done"}
        self._weights = [event["version"] for event in self.events if event["event"] == "weights"]
        self._drawn = {t[0]: t[1] for event in self.events if event["event"] == "draw" for t in event["tickets"]}
        self._asked: dict[str, Request] = {}
        self._measured = iter([event for event in self.events if event["event"] == "measured"])
        self._updates = 0

    @property
    def steps(self) -> int:
        """Number of finished steps."""
        return len(self._weights)

    @property
    def policy_version(self) -> int:
        drawn = next((event["version"] for event in self.events if event["event"] == "draw"), 0)
        return int(self._weights[self._updates - 1] if self._updates else drawn)

    def update(self, groups: Sequence[Group], stream: Stream, spent: float) -> dict[str, float]:
        self._updates += 1
        return {}

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        self._asked |= {request.ticket: request for request in requests}

    def take(self, tickets: Sequence[str]) -> list[Group]:
        return [self._group(self._asked.pop(ticket)) for ticket in tickets]

    def measured(self, stream: Stream) -> Evaluation:
        event = next(self._measured)
        return summarize(np.array(event["passed"], np.int64), event["samples"])

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        raise AssertionError("nothing is rolled out")

    def time(self) -> float:
        return 0.0

    def close(self) -> None: ...
    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...

    def _group(self, request: Request) -> Group:
        event = self._done.get(request.ticket)
        if event is None or self._drawn.get(request.ticket) != request.problem.id:
            raise UserError(
                f"events.jsonl: the ticket {request.ticket} now has problem {request.problem.id!r}, but in the run "
                f"{self._drawn.get(request.ticket)!r}; retrace with the code, configuration and problems of the run"
            )
        group = logged_group(event, self.folder)
        return replace(group, request=request) if group.request.origin is request.origin else group
