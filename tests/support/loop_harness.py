"""A run of the loop without a model: scripted rollouts and a learner that counts."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller_harness import problem_set

from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, PassRateController, Session, Stream, chain
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import Budget, CheckpointOptions, FillOptions
from halfway.trainers.loop.training import Training

GROUPS, SIZE = 4, 4
PROBLEMS = problem_set(24)


@dataclass
class ScriptedLearner:
    """Counts its updates, and remembers its groups."""

    batches: list[tuple[Group, ...]] = field(default_factory=list)
    version: int = 0
    spent: list[float] = field(default_factory=list)

    @property
    def policy_version(self) -> int:
        return self.version

    def update(self, groups: Sequence[Group], stream: Stream, spent: float = 0.0) -> dict[str, float]:
        self.batches.append(tuple(groups))
        self.spent.append(spent)
        self.version += bool(groups)
        return {"draw": stream.uniform(), "trained_tokens": 10.0 * len(groups)}

    def save(self, folder: Path) -> None:
        (folder / "version.json").write_text(str(self.version))

    def load(self, folder: Path) -> None:
        self.version = int((folder / "version.json").read_text())


def training(folder: Path, fill: FillOptions, budget: Budget, **changes: Any) -> Training:
    """A run of Uniform on the simulated learner, in which some groups have zero variance and some are mixed."""
    values: dict[str, Any] = {
        "rollouts": SimulatedRollouts(),
        "learner": ScriptedLearner(),
        "seed": 0,
        "checkpoints": Checkpoints(folder / "checkpoints", CheckpointOptions(every=2)),
    }
    parts: dict[str, Any] = {"problems": PROBLEMS, "controller": chain(("uniform", Uniform())), "num_rollouts": SIZE}
    parts["provides"] = ALWAYS_PROVIDED
    parts |= {name: changes.pop(name) for name in parts.keys() & changes.keys()}
    values |= changes
    values.setdefault("sync", lambda: values["rollouts"].sync(values["learner"].policy_version))
    return Training(folder=folder, fill=fill, budget=budget, session=Session(**parts, seed=values["seed"]), **values)


def records(folder: Path, name: str = "decisions") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class Witness(PassRateController[None]):
    """Records the lags and tickets of its groups."""

    seen: list[tuple[int, int, str]] = field(default_factory=list)

    def observe(self, state: None, groups: Sequence[Group], step: int) -> None:
        self.seen.extend((step, group.lag, group.request.ticket) for group in groups)


def drawn(ticket: str) -> tuple[int, ...]:
    """Sorts tickets in the order in which they were drawn."""
    return tuple(map(int, ticket.split(".")))


class KilledError(Exception):
    """Ends a run at some moment."""


def kill(owner: Any, name: str, number: int) -> None:
    """Have the n-th call of a method end the run."""
    original, calls = getattr(owner, name), Counter[str]()

    def call(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        if calls[name] == number:
            raise KilledError
        return original(*arguments, **options)

    setattr(owner, name, call)


MOMENTS = [
    ("next_batch", 9),
    ("run", 7),
    ("record_group", 15),
    ("weigh", 11),
    ("commit", 5),
    ("update", 6),
    ("save", 3),
]
