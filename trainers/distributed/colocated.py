"""Learner and engine that take turns on the same devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from halfway.curriculum import Group, Stream
from halfway.trainers.contracts import AppraisingLearner


@dataclass(frozen=True)
class Colocated:
    """A learner that puts the engine to sleep before an update. The weight sync afterwards wakes the engine."""

    learner: AppraisingLearner
    sleep: Callable[[], None]

    @property
    def policy_version(self) -> int:
        return self.learner.policy_version

    def update(self, groups: Sequence[Group], stream: Stream, spent: float) -> Mapping[str, float]:
        self.sleep()
        return self.learner.update(groups, stream, spent)

    def with_values(self, groups: Sequence[Group]) -> list[Group]:
        return self.learner.with_values(groups)

    def save(self, folder: Path) -> None:
        self.learner.save(folder)

    def load(self, folder: Path) -> None:
        self.learner.load(folder)
