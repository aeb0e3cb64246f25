"""Reads episodes of `verifiers`, as prime-rl and the v1 evaluation write them.

prime-rl writes OUT/rollouts/step_{N}/{train,eval}/{all,effective}/traces.jsonl, with one `Episode.to_record` of
verifiers/v1/episode.py per line; `all` includes rejected episodes. An evaluation writes only traces.jsonl into its
folder.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from halfway.experiments.audit.builder import ERROR, HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import BY_PROMPT, NULL, Columns, JsonLines
from halfway.experiments.audit.history import UNKNOWN

TEXTS = ("prompt", "question", "instruction", "problem")


class Named(msgspec.Struct):
    """The fields to read from an environment or a group."""

    id: str = ""
    name: str | None = None


class Task(msgspec.Struct):
    data: msgspec.Raw = NULL
    key: str | None = None
    hash: str | None = None


class Work(msgspec.Struct):
    type: str = "train"
    step: int = 0


class Run(msgspec.Struct):
    type: str = "train"
    work: Work | None = None


class Reward(msgspec.Struct):
    score: float | None = None
    weight: float = 1.0


class Trace(msgspec.Struct):
    rewards: dict[str, Reward | None] = {}


class Episode(msgspec.Struct):
    """The fields to read from a line."""

    task: Task
    env: Named | None = None
    group: Named | None = None
    run: Run | None = None
    ok: bool = True
    traces: list[Trace] = []
    num_output_tokens: int = UNKNOWN

    @property
    def problem(self) -> bytes:
        """The task's key, otherwise the hash of its prompt; empty if it has neither."""
        if name := self.task.key or self.task.hash:
            return name.encode()
        return hashlib.blake2b(self.prompt, digest_size=8).hexdigest().encode() if self.prompt else b""

    @property
    def prompt(self) -> bytes:
        """The prompt as written in the file: the first field in `TEXTS` that the task has; empty if it has none."""
        try:
            fields = msgspec.json.decode(self.task.data, type=dict[str, msgspec.Raw])
        except (ValueError, RecursionError):  # undecoded until here, so it may be anything
            return b""
        return next((bytes(fields[name]) for name in TEXTS if name in fields), b"")

    @property
    def step(self) -> int:
        return self.run.work.step if self.run and self.run.work else 0

    @property
    def evaluates(self) -> bool:
        """True if a training run made the episode for an evaluation."""
        return bool(self.run and self.run.work and self.run.work.type == "eval")

    @property
    def reward(self) -> float | None:
        """The weighted sum of rewards, averaged over the scored agents; None if none was scored."""
        scored = [trace for trace in self.traces if any(r and r.score is not None for r in trace.rewards.values())]
        sums = [sum((r.score or 0.0) * r.weight for r in trace.rewards.values() if r) for trace in scored]
        return sum(sums) / len(sums) if sums else None


class Episodes(JsonLines[Episode]):
    """Reads traces of verifiers v1: prime-rl's rollouts, and evaluations."""

    trainer = "prime-rl / verifiers v1"
    next_step = "in prime-rl: a chain of uniform and greso samples the tasks (docs/hosts/prime_rl.md)"
    known_by = ("task", "traces")
    named = True
    row = Episode
    columns: ClassVar[Columns] = {
        "steps": "step",
        "problems": "problem",
        "rewards": "reward",
        "tokens": "num_output_tokens",
        "categories": lambda row: (row.env.name or row.env.id) if row.env else "",
    }

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        parts = file.path.parts
        return Path(*parts[: parts.index("rollouts")]) if "rollouts" in parts else file.path.parent

    def read(self, files: Sequence[LogFile], into: HistoryBuilder) -> None:
        folders = {file.path.parent for file in files}
        for file in files:
            folder = file.path.parent
            if folder.name == "effective" and folder.with_name("all") in folders:
                continue  # the folder `all` includes these episodes
            if folder.name == "effective":
                into.trap('only the effective rollouts are here; the folder "all" also has those that were filtered')
            self.read_file(file, into)

    def rollouts(self, rows: Sequence[Episode], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        training = into.keep(rows, lambda row: not row.evaluates, "episode of an evaluation")
        sound = into.keep(training, lambda row: row.ok, ERROR)
        scored = into.keep(sound, lambda row: row.problem, "episode whose task has neither key nor prompt")
        if scored and not (scored[0].task.key or scored[0].task.hash):
            into.guess(BY_PROMPT)
        if any(len(row.traces) > 1 for row in scored):
            into.guess("the reward of an episode with several agents is the mean of their rewards")
        for row in scored:
            into.describe(row.problem, row.prompt)
        rollouts = super().rollouts(scored, file, into)
        if rollouts is not None and all(row.group for row in scored):
            rollouts.groups = [row.group.id for row in scored if row.group]
        return rollouts
