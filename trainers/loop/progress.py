"""What a run has spent, and the records it leaves of each step."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from halfway.curriculum.decision_log import group_record, skip_record
from halfway.curriculum.groups import Group
from halfway.curriculum.plan import Skip
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.support.errors import UserError
from halfway.trainers.loop.evaluation import Evaluation
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.options import Budget

IDLE_STEPS = 10
"""A run whose budget counts what is generated stops after this many consecutive steps without a rollout."""


@dataclass(frozen=True)
class Progress:
    """What has been spent so far.

    Attributes:
        step: number of finished steps.
        rollouts, tokens: amounts generated for training, without evaluation and replayed tokens.
        trained_tokens: number of tokens that the learner's passes went over: whole sequences, including prompts and
            replays, in every epoch.
        measured: number of rollouts that an oracle's measurements took, which no budget counts.
        seconds: wall-clock time of the loop, without evaluation, measurements and checkpoints.
        tool_seconds: time that the environment's tools took to answer what was generated.
        judge_seconds: time that the environment took in all to answer and judge it, including tools.
        evaluations: number of held-out evaluations done, including the one before the first step.
        starved: number of steps that trained on fewer groups than the fill policy asks for.
        idle: number of latest consecutive steps that neither rolled out nor trained anything.
    """

    step: int = 0
    rollouts: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    measured: int = 0
    seconds: float = 0.0
    tool_seconds: float = 0.0
    judge_seconds: float = 0.0
    evaluations: int = 0
    starved: int = 0
    idle: int = 0

    def share(self, budget: Budget) -> float:
        """Share of the budget that has been spent."""
        spent: float = getattr(self, "step" if budget.unit == "steps" else budget.unit)
        return spent / budget.total

    def after(self, filling: Filling, learned: Mapping[str, float], clock: "Stopwatch") -> "Progress":
        """The progress after one more step. `learned` is what the learner reported of it."""
        return replace(
            self,
            step=self.step + 1,
            rollouts=self.rollouts + sum(group.size for group in filling.groups),
            tokens=self.tokens + sum(group.num_generated for group in filling.groups),
            trained_tokens=self.trained_tokens + int(learned.get("trained_tokens", 0)),
            seconds=self.seconds + clock.counted,
            tool_seconds=self.tool_seconds + tool_seconds(filling),
            judge_seconds=self.judge_seconds + clock.judged,
            starved=self.starved + filling.starved,
            idle=0 if filling.trained or any(group.size for group in filling.groups) else self.idle + 1,
        )

    def unspent(self, budget: Budget) -> bool:
        """Whether the run continues.

        Raises:
            UserError: if it would go on for ever, because nothing is rolled out any more.
        """
        if self.idle >= IDLE_STEPS and budget.unit in ("rollouts", "tokens"):
            raise UserError(
                f"controllers: nothing was rolled out in {self.idle} steps in a row, so budget.{budget.unit} would "
                "never be spent; see in decisions.jsonl what was skipped, and why"
            )
        if budget.unit == "tool_seconds" and self.step >= IDLE_STEPS and not self.tool_seconds:
            raise UserError(
                f"budget.tool_seconds: {budget.total:g} would never be spent, since no tool took any time in "
                f"{self.step} steps; use another budget, or an environment with tools"
            )
        return self.share(budget) < 1


@dataclass
class Stopwatch:
    """Seconds spent in each part of a step.

    Attributes:
        judged: time that the environment took to answer, over all rollouts; the engine may have been working meanwhile.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    judged: float = 0.0

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start

    @property
    def counted(self) -> float:
        """Seconds that count against a budget of seconds."""
        return sum(v for part, v in self.seconds.items() if part not in ("evaluate", "measure", "checkpoint"))


def decision_records(filling: Filling, skips: Sequence[tuple[int, Skip]], step: int) -> list[Mapping[str, Any]]:
    """The decision log of a step: skipped problems by round, then every group with its outcome."""
    skipped = [skip_record(skip, step, round_index) for round_index, skip in skips]
    return skipped + [group_record(group, step, round_, outcome) for round_, group, outcome in filling.outcomes]


def step_record(
    progress: Progress,
    policy_version: int,
    filling: Filling,
    num_skipped: int,
    learned: Mapping[str, float],
    metrics: Mapping[str, float],
    clock: Stopwatch,
) -> dict[str, Any]:
    """One line of steps.jsonl. `progress` is the state after the step that is described."""
    outcomes = Counter(outcome for _, _, outcome in filling.outcomes)
    return {
        "step": progress.step - 1,
        "policy_version": policy_version,
        "rollouts": progress.rollouts,
        "tokens": progress.tokens,
        "trained_tokens": progress.trained_tokens,
        "seconds": progress.seconds,
        **({"tool_seconds": progress.tool_seconds} if progress.tool_seconds else {}),
        "judge_seconds": progress.judge_seconds,
        **({"measured": progress.measured} if progress.measured else {}),
        "rounds": filling.rounds,
        "starved": filling.starved,
        "groups": {"rolled_out": len(filling.groups), **outcomes},
        "skipped": num_skipped,
        "timing": dict(clock.seconds),
        **tool_record(filling),
        **{
            f"{origin.value}_counts": pass_counts(g for g in filling.groups if g.request.origin is origin)
            for origin in Origin
            if origin is not Origin.STORED  # which was rolled out in an earlier step
        },
        "learner": dict(learned),
        "controllers": dict(metrics),
    }


def evaluation_record(progress: Progress, evaluation: Evaluation) -> dict[str, Any]:
    """One line of evaluations.jsonl."""
    return {
        "step": progress.step,
        "rollouts": progress.rollouts,
        "tokens": progress.tokens,
        "trained_tokens": progress.trained_tokens,
        "seconds": progress.seconds,
        "judge_seconds": progress.judge_seconds,
        "pass_at_1": evaluation.pass_at_1,
        "stderr": evaluation.stderr,
        "problems": evaluation.num_problems,
        "samples": evaluation.samples,
        "pass_counts": list(evaluation.pass_counts_K),
        "passed": list(evaluation.passed_G),
        "strata": {name: {"problems": num, "passed": passed} for name, (num, passed) in evaluation.strata.items()},
    }


def tool_record(filling: Filling) -> dict[str, Any]:
    """The time that executing fresh and replayed responses took in a step; empty where tools take no time and nothing
    was replayed through them. Seconds of tools add up over responses; the seconds of `rollout` in the timing include
    all of it.
    """
    costs = [group.replay_cost for group in filling.groups if group.replay_cost is not None]
    tools = tool_seconds(filling)
    if not tools and not costs:
        return {}
    turns = [turn for group in filling.groups for rollout in group.rollouts for turn in rollout.turns]
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


def tool_seconds(filling: Filling) -> float:
    """Seconds that the environment's tools took in a step."""
    return sum(turn.tool_seconds for group in filling.groups for rollout in group.rollouts for turn in rollout.turns)


def pass_counts(groups: Iterable[Group]) -> list[int]:
    """Histogram over k = 0..N of groups of equal size."""
    groups = list(groups)
    counts = Counter(group.num_passed for group in groups)
    return [counts[k] for k in range(max((group.size for group in groups), default=-1) + 1)]
