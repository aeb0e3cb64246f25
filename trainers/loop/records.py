"""The records of a run: their content per step, and their files, which a resumed run continues.

Other trainers that host Halfway write the same records.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfway.curriculum import Group, Origin, Skip, UserError
from halfway.curriculum.decision_log import group_record, skip_records
from halfway.curriculum.stored import identity
from halfway.curriculum.support.atomic import open_own, writing
from halfway.trainers.loop.fill import GroupOutcome
from halfway.trainers.loop.samples import Samples


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """The record of a training step.

    Attributes:
        policy_version: number of learner updates behind the weights after the step.
        spent: amounts spent by the end of the step, by name.
        outcomes: every group with its round and outcome.
        skips: problems refused before any rollout, each with its round.
        rounds: number of batches drawn.
        starved: true if the step trained on fewer groups than its fill policy requires.
        timing: seconds by part.
        controllers: metrics of the chain.
        learner: metrics of the learner.
        groups: the groups of `outcomes` that were rolled out in this step.
        unjudged: number of responses that failed because no verifier could judge them, by reason.
        resampled: number of groups sampled again since a worker had ended.
    """

    step: int
    policy_version: int
    spent: Mapping[str, float]
    outcomes: Sequence[GroupOutcome]
    skips: Sequence[tuple[int, Skip]]
    rounds: int
    timing: Mapping[str, float]
    controllers: Mapping[str, float]
    groups: Sequence[Group]
    learner: Mapping[str, float] = field(default_factory=dict)
    starved: bool = False
    unjudged: Mapping[str, int] = field(default_factory=dict)
    resampled: int = 0

    def decision_records(self) -> list[Mapping[str, Any]]:
        """The lines of a step in decisions.jsonl: skipped problems by round, then every group with its outcome."""
        rolled_out = [group_record(group, self.step, round_, outcome) for round_, group, outcome in self.outcomes]
        return skip_records(self.skips, self.step) + rolled_out

    def record(self) -> dict[str, Any]:
        """The line of a step in steps.jsonl."""
        latest = [group.latest for group in self.groups]
        counts = {
            f"{origin.value}_counts": pass_counts([g for g in latest if g.request.origin is origin])
            for origin in Origin
            if origin is not Origin.STORED  # which was rolled out in an earlier step
        }
        return {
            "step": self.step,
            "policy_version": self.policy_version,
            **self.spent,
            "rounds": self.rounds,
            "starved": self.starved,
            "groups": {"rolled_out": len(self.groups), **Counter(entry.outcome for entry in self.outcomes)},
            "skipped": len(self.skips),
            "timing": dict(self.timing),
            "responses": response_counts(self.groups),
            **signal_record(self.groups),
            **tool_record(latest),
            **counts,
            "learner": dict(self.learner),
            "controllers": dict(self.controllers),
            **({"unjudged": dict(self.unjudged)} if self.unjudged else {}),
            **({"resampled": self.resampled} if self.resampled else {}),
        }


def pass_counts(groups: Sequence[Group]) -> list[int]:
    """The number of groups with k successes, for each k = 0..N."""
    counts = Counter(group.num_passed for group in groups)
    return [counts[k] for k in range(max((group.size for group in groups), default=-1) + 1)]


def signal_record(groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """Metrics of the groups of a step, under the names used by other trainers; empty without a scored rollout.

    Pass rates are means over the rollouts of this step. A group has zero variance by all its rollouts, those of earlier
    steps included, if it has waited; lost ones do not count.
    """
    groups = [group for group in groups if group.latest.size]
    rollouts = [rollout for group in groups for rollout in group.latest.rollouts]
    if not rollouts:
        return {}
    by_origin = {origin.value: [g for g in groups if g.request.origin is origin] for origin in Origin}
    by_origin = {origin: found for origin, found in by_origin.items() if found}
    length = sum(rollout.num_generated for rollout in rollouts) / len(rollouts)
    cut = sum(rollout.truncated for rollout in rollouts) / len(rollouts)
    return {
        "reward": {"mean": sum(rollout.trained_reward for rollout in rollouts) / len(rollouts)},
        "pass_rate": {
            origin: sum(g.latest.num_passed for g in found) / sum(g.latest.size for g in found)
            for origin, found in by_origin.items()
        },
        "zero_variance": {
            "all_fail": sum(group.num_passed == 0 for group in groups) / len(groups),
            "all_pass": sum(group.num_passed == group.size for group in groups) / len(groups),
            **{origin: sum(g.zero_variance for g in found) / len(found) for origin, found in by_origin.items()},
        },
        "response_length": {"mean": length, "clip_ratio": cut},
    }


def response_counts(groups: Sequence[Group]) -> dict[str, int]:
    """Counts for a step: rollouts scored, truncated and lost, and zero-variance groups of identical texts."""
    rollouts = [rollout for group in groups for rollout in group.latest.rollouts]
    zero_variance = [group for group in groups if group.zero_variance and group.size > 1]
    texts = [
        {tuple(identity(turn.tokens_T) for turn in one.turns) for one in group.rollouts} for group in zero_variance
    ]
    return {
        "scored": len(rollouts),
        "truncated": sum(rollout.truncated for rollout in rollouts),
        "lost": sum(sum(group.dropped.values()) for group in groups),
        "repeated": sum(len(each) == 1 and () not in each for each in texts),
    }


def tool_record(groups: Sequence[Group]) -> dict[str, Any]:
    """Seconds to execute fresh and replayed responses in a step; empty without tools.

    Tool seconds are summed over responses; `rollout` in the timing includes them.
    """
    costs = [group.replay_cost for group in groups if group.replay_cost is not None]
    tools = tool_seconds(groups)
    if not tools and not costs:
        return {}
    turns = [turn for group in groups for rollout in group.rollouts for turn in rollout.turns]
    return {
        "tools": {
            "responses": sum(turn.num_replayed < len(turn.tokens_T) for turn in turns),
            "seconds": tools,
            "replays": len(costs),
            "replayed_responses": sum(cost.responses for cost in costs),
            "replayed_seconds": sum(cost.seconds for cost in costs),
            "replayed_wall_seconds": sum(cost.wall_seconds for cost in costs),
        }
    }


def tool_seconds(groups: Sequence[Group]) -> float:
    """Seconds of the environment's tools for generated responses."""
    return sum(turn.tool_seconds for group in groups for rollout in group.rollouts for turn in rollout.turns)


class Bytes:
    """An append-only file whose size is part of the checkpoint."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        open_own(path).close()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self.path.stat().st_size

    def extend(self, content: bytes) -> int:
        """Append in one call. Returns the position. Raises WriteError if it fails."""
        with writing(self.path), open_own(self.path, "ab") as file:
            start: int = file.tell()
            file.write(content)
        return start

    def truncate(self, size: int) -> None:
        """Remove what a killed run wrote after its last checkpoint."""
        os.truncate(self.path, size)


class JsonLines(Bytes):
    """An append-only file of JSON records."""

    def append(self, *records: Mapping[str, Any]) -> None:
        """Append records in one call. Raises WriteError if it fails."""
        self.extend("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode())


class RunLog:
    """The record files of a run directory, which are truncated together."""

    def __init__(self, folder: Path, events: bool = False, chosen: Samples | None = None):
        """
        Args:
            events: true = write an event log, events.jsonl with events.bin.
            chosen: selects the content of samples.jsonl; None = no such file.
        """
        self._chosen = chosen
        self.decisions = JsonLines(folder / "decisions.jsonl")
        self.steps = JsonLines(folder / "steps.jsonl")
        self.evaluations = JsonLines(folder / "evaluations.jsonl")
        if events:
            self.events = JsonLines(folder / "events.jsonl")
            self.event_arrays = Bytes(folder / "events.bin")
        if chosen:
            self.samples = JsonLines(folder / "samples.jsonl")

    def append(self, step: FinishedStep) -> dict[str, Any]:
        """Write the samples, decisions and steps.jsonl line of a step; returns that line."""
        if self._chosen:
            self.samples.append(*self._chosen.records([group.latest for group in step.groups], step.step))
        self.decisions.append(*step.decision_records())
        record = step.record()
        self.steps.append(record)
        return record

    @property
    def _files(self) -> dict[str, Bytes]:
        return {name: file for name, file in vars(self).items() if isinstance(file, Bytes)}

    def sizes(self) -> dict[str, int]:
        return {name: file.size for name, file in self._files.items()}

    def truncate(self, sizes: Mapping[str, int] | None = None) -> None:
        """Truncate every file to its size at the checkpoint, or to 0 if there is no checkpoint.

        Raises:
            UserError: if a file has lost records that it had when the checkpoint was written.
        """
        sizes = dict.fromkeys(self._files, 0) | dict(sizes or {})
        for name, file in self._files.items():
            if file.size < sizes[name]:
                raise UserError(
                    f"{file.path}: has {file.size} bytes, but had {sizes[name]} when its checkpoint was written; "
                    "restore the whole file, or return to a checkpoint before its end with `halfway resume --from`"
                )
        for name, file in self._files.items():
            file.truncate(sizes[name])
