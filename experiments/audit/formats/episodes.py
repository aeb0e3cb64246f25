"""Reads episodes of `verifiers`, as prime-rl and the v1 evaluation write them, and results of older evaluations.

prime-rl writes OUT/rollouts/step_{N}/{train,eval}/{all,effective}/traces.jsonl, with one `Episode.to_record` of
verifiers/v1/episode.py per line; `all` includes rejected episodes. An evaluation writes only traces.jsonl into its
folder. Older evaluations wrote results.jsonl, with one rollout per line.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import NULL, Head, JsonLines
from halfway.experiments.audit.history import UNKNOWN, Reading

TEXTS = ("prompt", "question", "instruction", "problem")


class Named(msgspec.Struct):
    """The fields of an environment or a group that are read."""

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
    """The fields of a line that are read."""

    task: Task
    env: Named | None = None
    group: Named | None = None
    run: Run | None = None
    ok: bool = True
    traces: list[Trace] = []
    num_output_tokens: int = UNKNOWN

    @property
    def step(self) -> int:
        return self.run.work.step if self.run and self.run.work else 0

    @property
    def evaluates(self) -> bool:
        """Whether a training run made the episode for an evaluation."""
        return bool(self.run and self.run.work and self.run.work.type == "eval")

    @property
    def reward(self) -> float | None:
        """The weighted sum of rewards, averaged over the agents that were scored; None if none was."""
        scored = [trace for trace in self.traces if any(r and r.score is not None for r in trace.rewards.values())]
        sums = [sum((r.score or 0.0) * r.weight for r in trace.rewards.values() if r) for trace in scored]
        return sum(sums) / len(sums) if sums else None


class Episodes(JsonLines[Episode]):
    """Reads traces of verifiers v1: prime-rl's rollouts, and evaluations."""

    trainer = "prime-rl / verifiers v1"
    named = True
    row = Episode

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("task", "traces")

    @classmethod
    def run_of(cls, found: Found) -> Path:
        parts = found.path.parts
        return Path(*parts[: parts.index("rollouts")]) if "rollouts" in parts else found.path.parent

    def reading(self, name: str) -> Reading:
        return Reading(name, self.trainer, measure="tokens")

    def read(self, files: Sequence[Found], into: HistoryBuilder) -> None:
        folders = {found.path.parent for found in files}
        for found in files:
            folder = found.path.parent
            if folder.name == "effective" and folder.with_name("all") in folders:
                continue  # the folder `all` includes these episodes
            if folder.name == "effective":
                into.trap('only the effective rollouts are here; the folder "all" also has those that were filtered')
            self.read_file(found, into)

    def rollouts(self, rows: Sequence[Episode], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        kept = [row for row in rows if not row.evaluates]
        if len(kept) < len(rows):
            into.drop("episode of an evaluation", len(rows) - len(kept))
        failed = sum(row.reward is None and not row.ok for row in kept)
        if failed:
            into.drop("episode that ended in an error", failed)
            kept = [row for row in kept if row.reward is not None or row.ok]
        if any(len(row.traces) > 1 for row in kept):
            into.guess("the reward of an episode with several agents is the mean of their rewards")
        problems = [(row.task.key or row.task.hash or "").encode() for row in kept]
        for row, problem in zip(kept, problems, strict=True):
            if problem.decode() not in into.texts:
                into.describe(problem, _text(row.task.data))
        alone = any(row.group is None for row in kept)
        return RolloutColumns(
            steps=[row.step for row in kept],
            problems=problems,
            rewards=[row.reward for row in kept],
            groups=None if alone else [row.group.id if row.group else "" for row in kept],
            tokens=[row.num_output_tokens for row in kept],
            categories=[(row.env.name or row.env.id) if row.env else "" for row in kept],
        )


class ResultRow(msgspec.Struct):
    example_id: int | str
    reward: float | None = None
    prompt: msgspec.Raw = NULL
    completion: msgspec.Raw = NULL
    task: str | None = None


class Results(JsonLines[ResultRow]):
    """Reads the results of older evaluations of verifiers."""

    trainer = "verifiers"
    named = True
    row = ResultRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("example_id", "reward") and head.has("prompt", "completion")

    def reading(self, name: str) -> Reading:
        return Reading(
            name, self.trainer, traps=("an evaluation has no steps, so nothing is said about change over time",)
        )

    def rollouts(self, rows: Sequence[ResultRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        problems = [str(row.example_id).encode() for row in rows]
        for row, problem in zip(rows, problems, strict=True):
            if problem.decode() not in into.texts:
                into.describe(problem, " ".join(bytes(row.prompt)[:600].decode("utf-8", "replace").split()))
        return RolloutColumns(
            steps=[0] * len(rows),
            problems=problems,
            rewards=[row.reward for row in rows],
            responses=[bytes(row.completion) for row in rows],
            categories=[row.task or "" for row in rows],
        )


def _text(data: msgspec.Raw) -> str:
    """The text of a task, from the first field in `TEXTS` that it has; empty if it has none."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        found = next((fields[name] for name in TEXTS if name in fields), NULL)
        return " ".join(bytes(found)[:600].decode("utf-8", "replace").strip('"').split())
    except msgspec.DecodeError:
        return ""
