"""Reads logs with one rollout per line whose fields are the columns: each format is a map from columns to fields."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import BY_PROMPT, NULL, Columns, JsonLines

FLAGS = {b"true": True, b"false": False, b"null": None}


class VerlRow(msgspec.Struct, gc=False):
    """The fields of a line that are read. `acc` comes from the reward_extra_info of mathematical reward functions."""

    input: msgspec.Raw
    output: msgspec.Raw
    gts: msgspec.Raw = NULL
    score: float | None = None
    step: int = 0
    acc: msgspec.Raw = NULL
    uid: str | None = None
    data_source: str | None = None

    @property
    def passed(self) -> bool | None:
        """Whether `acc` is true or a number above one half; None if it is neither a truth value nor a number."""
        acc = bytes(self.acc)
        if acc in FLAGS:
            return FLAGS[acc]
        try:
            return float(acc) > 0.5
        except ValueError:
            return None

    @property
    def group(self) -> str:
        """The part of the uid that the rollouts of one prompt share: it ends in the keys of rollout and output."""
        return (self.uid or "").rsplit("_", 2)[0]


class Verl(JsonLines[VerlRow]):
    """Reads verl's rollout dumps: with `trainer.rollout_data_dir`, one file per step.

    The files are written by `_write_generations` in verl/trainer/ppo/ray_trainer.py and
    verl/trainer/ppo/v1/trainer_base.py (verl 0.9.1). The classic trainer writes every field of reward_extra_info beside
    the score. V1 instead writes a uid: the keys of prompt, rollout and output, joined by underscores.
    """

    trainer = "verl"
    known_by = ("input", "output", "score", "step", "gts")
    guesses = ("problems are told apart by prompt and reference, since the log has no key",)
    row = VerlRow
    columns: ClassVar[Columns] = {
        "steps": "step",
        "problems": "input",
        "answers": "gts",
        "rewards": "score",
        "responses": "output",
        "passed": "passed",
    }

    def rollouts(self, rows: Sequence[VerlRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns:
        rollouts = super().rollouts(rows, file, into)
        assert rollouts is not None and rollouts.passed is not None
        if self.choices.passes_at is None and any(flag is not None for flag in rollouts.passed):
            into.guess(
                "the field acc says what passed, the score says which groups have zero variance; --passes-at goes by "
                "the score alone"
            )
        if rows[0].uid is not None:
            into.trap("V1 writes no reward_extra_info: acc and the parts of the score are lost")
            into.trap(
                "with filter_groups the groups that V1 evicted are not in the dump; if it was on, the shares of "
                "zero-variance groups here are shares after the filter"
            )
            rollouts.groups = [row.group for row in rows]
        if any(row.data_source for row in rows):
            rollouts.categories = [row.data_source or "" for row in rows]
        return rollouts


class ArealRow(msgspec.Struct, gc=False):
    task_id: int | str
    prompt: msgspec.Raw
    completion: msgspec.Raw
    reward: float | None = None
    seqlen: int = 0
    prompt_len: int = 0
    head_version: int = 0
    tail_version: int = 0


class Areal(JsonLines[ArealRow]):
    """Reads AReaL's dumped trajectories: with `rollout.dump_to_file`, one rollout per line.

    The files are LOGS/experiment/trial/rollout/{version}/{task_id}.jsonl, written by
    `WorkflowExecutor._dump_trajectory` in areal/infra/workflow_executor.py (1.0.4). AReaL writes them before it asks
    `should_accept`, so refused rollouts are included, but rollouts without a completion are not.
    """

    trainer = "AReaL"
    known_by = ("task_id", "sample_idx", "prompt", "completion", "reward", "tail_version")
    guesses = (BY_PROMPT, "a group's step is the newest policy version among its first rollouts")
    row = ArealRow
    columns: ClassVar[Columns] = {
        "steps": "tail_version",
        "problems": "prompt",
        "rewards": "reward",
        # A resumed run numbers its tasks from 0 again, so the number alone does not identify a group.
        "groups": lambda row: (row.task_id, bytes(row.prompt)),
        "responses": "completion",
        "tokens": lambda row: max(0, row.seqlen - row.prompt_len),
    }

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        return file.path.parent.parent

    def rollouts(self, rows: Sequence[ArealRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        rollouts, version = super().rollouts(rows, file, into), file.path.parent.name
        if rollouts is not None and version.isdecimal():
            rollouts.steps = [int(version)] * len(rows)
        return rollouts


class OpenInstructRow(msgspec.Struct, gc=False):
    step: int
    prompt_idx: int
    prompt_tokens: msgspec.Raw
    response_tokens: msgspec.Raw
    reward: float | None = None
    ground_truth: msgspec.Raw = NULL
    dataset: msgspec.Raw = NULL

    @property
    def length(self) -> int:
        """The number of tokens in the response, counted without decoding their list."""
        tokens = bytes(self.response_tokens)
        return tokens.count(b",") + 1 if tokens.strip(b"[] \n\t") else 0


class OpenInstruct(JsonLines[OpenInstructRow]):
    """Reads open-instruct's saved rollouts: with `save_traces`, one rollout per line.

    The files are {run}_rollouts_{shard:06d}.jsonl, written by `save_rollouts_to_disk` in open_instruct/rl_utils.py.
    """

    trainer = "open-instruct"
    known_by = ("prompt_tokens", "response_tokens", "reward", "step", "prompt_idx")
    guesses = ("problems are told apart by the prompt's tokens and the reference, since the log has no key",)
    row = OpenInstructRow
    columns: ClassVar[Columns] = {
        "steps": "step",
        "problems": "prompt_tokens",
        "answers": "ground_truth",
        "rewards": "reward",
        "groups": lambda row: (row.step, row.prompt_idx),
        "responses": "response_tokens",
        "tokens": "length",
        "categories": lambda row: bytes(row.dataset).decode("utf-8", "replace").strip('[]" '),
    }


class Turn(msgspec.Struct, gc=False):
    ac_len: int = 0


class TinkerRow(msgspec.Struct):
    iteration: int
    group_idx: int
    total_reward: float | None = None
    split: str = "train"
    tags: list[str] = []
    steps: list[Turn] = []

    @property
    def group(self) -> str:
        return f"{self.iteration}/{self.group_idx}"


class Tinker(JsonLines[TinkerRow]):
    """Reads the tinker cookbook's train_rollout_summaries.jsonl, with one rollout per line.

    The lines hold neither the prompt nor a key of the problem. They are written by `serialize_rollout_summaries` in
    tinker_cookbook/rl/rollout_logging.py (0.6.1).
    """

    trainer = "tinker-cookbook"
    known_by = ("iteration", "group_idx", "traj_idx", "total_reward")
    named = True
    identified = False
    traps = ("neither prompts nor keys are written, so a problem is not recognised when it comes again",)
    row = TinkerRow
    columns: ClassVar[Columns] = {
        "steps": "iteration",
        "problems": "group",
        "rewards": "total_reward",
        "groups": "group",
        "tokens": lambda row: sum(turn.ac_len for turn in row.steps),
        "categories": lambda row: row.tags[0] if row.tags else "",
    }

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        """The run's folder, which holds the file itself or one folder per iteration with a file in each."""
        folder = file.path.parent
        return folder.parent if any(letter.isdecimal() for letter in folder.name) else folder

    def rollouts(self, rows: Sequence[TinkerRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        training = [row for row in rows if row.split == "train"]
        if len(training) < len(rows):
            into.drop("rollout of an evaluation", len(rows) - len(training))
        return super().rollouts(training, file, into)
