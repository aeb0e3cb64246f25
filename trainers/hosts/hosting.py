"""The parts shared by all adapters: a session, its records on disk, its metrics, and its state in a checkpoint."""

import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from halfway.curriculum import Group, PassRateController, Rollout, Session, Ticket, UserError
from halfway.curriculum.controller import members_of
from halfway.curriculum.support.atomic import ANOTHER, read_state, reading, write_json
from halfway.curriculum.support.extras import clean
from halfway.trainers.hosts.rows import Rows
from halfway.trainers.loop.fill import GroupOutcome
from halfway.trainers.loop.records import FinishedStep, RunLog
from halfway.trainers.loop.samples import Decode, Samples
from halfway.trainers.loop.waste import Waste

STATE_FILE = "halfway.json"
"""The file in a host's checkpoint that holds the session's state."""


RECORDS = "halfway"
"""The folder of a hosted run's records, inside the host's output folder."""

DESCRIPTION_FILE = "hosted.json"
"""The file beside the records that describes the host and the chain, for `halfway report`."""


@dataclass(frozen=True)
class Host:
    """A trainer that hosts a chain.

    Attributes:
        name: the trainer's name and version, for messages and records.
        provides: those of `halfway.curriculum.controller.NEEDS` that it can give a chain.
    """

    name: str
    provides: Collection[str] = ()


def warn(line: str) -> None:
    """Write a warning to stderr, past the host's own logging."""
    print(f"halfway: {clean(line)}", file=sys.stderr, flush=True)


class Hosting:
    """A session inside another trainer, with its records, metrics and saved state.

    The adapter draws tickets, records rollouts and commits. Decisions and steps are written to `folder` in the format
    of Halfway's own runs. If several processes hold equal sessions, only one of them writes.

    Attributes:
        session: the session; only the adapter may change it.
        rows: the problems, and the host's rows that they were made from.
        folder: folder for decisions.jsonl and steps.jsonl.
        writes: whether this process writes records and state.
        decode: turns tokens into text, in a host that reports tokens, which then keeps samples.jsonl; set before the
            run begins or resumes.
    """

    decode: Decode | None = None

    def __init__(
        self,
        controller: PassRateController[Any],
        rows: Rows,
        num_rollouts: int,
        folder: Path,
        host: Host,
        seed: int = 0,
        writes: bool = True,
    ):
        """
        Raises:
            UserError: if a controller needs something that the host lacks; the message names both.
        """
        self.session = Session(rows.problems, controller, num_rollouts, seed, host.provides, host.name)
        self.rows, self.folder, self.writes, self.host = rows, folder, writes, host
        self._seed = seed
        self._rollouts = self._tokens = 0
        self._seconds, self._since = 0.0, time.monotonic()
        self._timing: defaultdict[str, float] = defaultdict(float)
        self._waste = Waste(warn, stalls=False)

    def begin(self) -> None:
        """Start a new run. Records of an earlier run in the same folder are erased.

        Raises:
            UserError: if this session has already been trained; nothing is erased.
        """
        if self.session.step:
            raise UserError(
                f"train: this session has been trained for {self.session.step} steps; make a new trainer, or resume "
                "from a checkpoint"
            )
        self._since = time.monotonic()
        if not self.writes:
            return
        self._log.truncate()
        facts = {"host": self.host.name, "controllers": list(members_of(self.session.controller)), "seed": self._seed}
        facts |= {"num_rollouts": self.session.num_rollouts, "problems": len(self.session.problems)}
        write_json(self.folder / DESCRIPTION_FILE, facts)
        write_json(self.folder / "status.json", {"state": "running"})

    def end(self) -> None:
        """Mark the run as finished."""
        if self.writes:
            write_json(self.folder / "status.json", {"state": "finished"})

    def draw(self, wanted: int) -> list[Ticket]:
        """Draw exactly `wanted` tickets.

        Raises:
            UserError: if the chain proposes fewer, since a host's batch has a fixed size.
        """
        start = time.perf_counter()
        tickets = self.session.next_batch(wanted)
        self._timing["propose"] += time.perf_counter() - start
        if len(tickets) < wanted:
            raise UserError(
                f"controllers: only {len(tickets)} of {wanted} problems are left to roll out, and a batch of "
                f"{self.host.name} has a fixed size; skip or retire fewer, or give more problems"
            )
        return tickets

    def row(self, ticket: Ticket) -> dict[str, Any]:
        """The host's row of a ticket's problem."""
        return self.rows.row(ticket.request.problem)

    def record(self, ticket: str, rollout: Rollout | None, lost: str = "unscored") -> None:
        """Record one rollout of a ticket; a rollout of None counts as lost, for the reason `lost`."""
        if rollout is None:
            self.session.record(ticket, (), lost={lost: 1})
        else:
            self.session.record(ticket, (rollout,))

    def commit(self, version: int, outcomes: Mapping[str, str] | None = None) -> list[Group]:
        """Let the chain observe every complete group, write the step's records, and return the groups.

        Args:
            version: number of learner updates behind the current weights.
            outcomes: ticket -> outcome, for groups whose outcome the host knows; `outcome_of` decides the others.
        """
        skips, rounds = self.session.skipped, self.session.round
        start = time.perf_counter()
        groups = self.session.commit()
        self._timing["observe"] += time.perf_counter() - start
        self._rollouts += sum(group.size for group in groups)
        self._tokens += sum(group.num_generated for group in groups)
        if self.writes:
            ended = [
                GroupOutcome(
                    group.request.round, group, (outcomes or {}).get(group.request.ticket) or outcome_of(group)
                )
                for group in groups
            ]
            finished = FinishedStep(
                step=self.session.step - 1,
                policy_version=version,
                spent={"rollouts": self._rollouts, "tokens": self._tokens, "seconds": self._elapsed()},
                outcomes=ended,
                skips=skips,
                rounds=rounds,
                timing=self._timing,
                controllers=self.session.metrics(),
                groups=groups,
            )
            self._waste.step(self._log.append(finished))
        self._timing.clear()
        return groups

    def metrics(self) -> dict[str, float]:
        """The chain's metrics for the host's tracker, each name prefixed with `halfway/`."""
        return {f"halfway/{name}": float(value) for name, value in self.session.metrics().items()}

    def state_dict(self) -> dict[str, Any]:
        """The state of session and chain, and the sizes of the record files, as plain JSON data."""
        return {
            "session": self.session.state_dict(),
            "log_sizes": self._log.sizes() if self.writes else {},
            "spent": [self._rollouts, self._tokens, self._elapsed()],
        }

    def load_state_dict(self, saved: Mapping[str, Any], reissue: bool = True) -> None:
        """Restore a `state_dict`. Records written after the checkpoint are cut off.

        Args:
            reissue: whether to offer again the tickets that were in flight.

        Raises:
            UserError: if it belongs to other problems or another chain; nothing changes then.
        """
        rollouts, tokens, seconds = saved["spent"]
        spent = int(rollouts), int(tokens), float(seconds)
        self.session.load_state_dict(saved["session"], reissue)
        self._rollouts, self._tokens, self._seconds = spent
        self._since = time.monotonic()
        if self.writes:
            self._log.truncate(saved["log_sizes"])
            write_json(self.folder / "status.json", {"state": "running"})

    def save(self, folder: Path, name: str = STATE_FILE) -> None:
        """Write the state and its checksum into the folder of a host's checkpoint."""
        if self.writes:
            write_json(folder / name, seal_state(self.state_dict()))

    def load(self, folder: Path, name: str = STATE_FILE) -> None:
        """Continue from the state that `save` wrote into a checkpoint's folder.

        Raises:
            UserError: if the checkpoint has no state, a damaged one, or another run's.
        """
        path = folder / name
        if not path.exists():
            raise UserError(f"{folder}: holds no {name}; resume from a checkpoint that was saved with Halfway")
        ids = self.rows.problems.ids()
        with open_state(read_state(path, ids), path) as state:
            self.load_state_dict(state)

    @cached_property
    def _log(self) -> RunLog:
        names = self.rows.problems.ids()
        texts = Samples(names, self.decode, self.folder / "decisions.jsonl") if self.decode else None
        return RunLog(self.folder, chosen=texts)

    def _elapsed(self) -> float:
        return self._seconds + time.monotonic() - self._since


def seal_state(state: Any) -> dict[str, Any]:
    """Add a checksum to a state of plain JSON data."""
    return {"state": state, "sha256": _digest(state)}


@contextmanager
def open_state(saved: Any, place: Path | str) -> Iterator[Any]:
    """Check a sealed state and open it; errors within the scope become a one-line UserError.

    Args:
        place: where the state was saved, for the message.

    Raises:
        UserError: if the state is damaged, or another run's.
    """
    with reading(place, ANOTHER):
        if saved["sha256"] != _digest(saved["state"]):
            raise ValueError("its state has changed since it was written")
        yield saved["state"]


def _digest(state: Any) -> str:
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def outcome_of(group: Group) -> str:
    """Outcome of a group in a host that trains on every group with differing rewards."""
    return "empty" if group.size == 0 else "zero_variance" if group.zero_variance else "trained"
