"""The interfaces between the parts of a training run. A rollout engine's interface is in `engines/contract.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from halfway.curriculum import Group, Request, Stream


class Judged(Protocol):
    """Has rollouts judged by an environment."""

    @property
    def judge_seconds(self) -> float:
        """Seconds of the environment so far for answering and judging, summed over all rollouts, concurrent or not,
        without replays; 0 if nobody measures them."""
        return 0.0


class Rollouts(Judged, Protocol):
    """Turns requests into scored groups, in the order of the requests."""

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]: ...


class Learner(Protocol):
    """Owns the policy. `policy_version` counts its updates."""

    @property
    def policy_version(self) -> int: ...
    def update(self, groups: Sequence[Group], stream: Stream, spent: float) -> Mapping[str, float]:
        """Train on the groups; `spent` is the share of the run's budget spent before this step."""
        ...

    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...


class Appraiser(Protocol):
    """Estimates the values of rollouts."""

    def with_values(self, groups: Sequence[Group]) -> list[Group]:
        """Add a value to every token of the groups."""
        ...


class AppraisingLearner(Learner, Appraiser, Protocol):
    """A learner that can also compute the values of rollouts if it has a critic."""


class DividingLearner(AppraisingLearner, Protocol):
    """A learner on several processes; only one has the groups."""

    def shares(self, groups: Sequence[Group], stream: Stream) -> list[Any]:
        """Divide the groups into one share per process for `update_with`."""
        ...

    def update_with(self, share: Any, stream: Stream, spent: float) -> Mapping[str, float]:
        """Like `update`, on every process with its own share."""
        ...

    def with_values(self, groups: Sequence[Group], values: Sequence[Any] | None = None) -> list[Group]:
        """Add values to the groups: those that `values_with` returned; None = compute them here."""
        ...

    def value_shares(self, groups: Sequence[Group]) -> list[Any]:
        """Divide the groups into one share per process for `values_with`."""
        ...

    def values_with(self, share: Any) -> list[Any]:
        """Compute the values of all rollouts with generated tokens, on every process with its own share."""
        ...


class Recorder(Protocol):
    """Receives the loop's records. Trackers, progress bars and lists in tests are all recorders."""

    def step(self, record: Mapping[str, Any]) -> None:
        """One training step, with the fields of steps.jsonl."""
        ...

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """One held-out evaluation, with the fields of evaluations.jsonl."""
        ...

    def close(self, state: str) -> None:
        """The run ended: "finished", "stopped" or "failed"."""
        ...
