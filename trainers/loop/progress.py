"""The spent budget of a run."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from halfway.curriculum import UserError
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.held_out import Evaluation
from halfway.trainers.loop.loop_options import Budget
from halfway.trainers.loop.records import tool_seconds

IDLE_STEPS = 10
"""A run with a budget of rollouts or tokens stops after this many consecutive steps without a rollout."""

Count = Annotated[int, Meta(ge=0, lt=2**53)]
Seconds = Annotated[float, Meta(ge=0, lt=2**53)]


@dataclass(frozen=True)
class Progress:
    """Amounts spent so far.

    Attributes:
        step: number of finished steps.
        rollouts, tokens: amounts generated for training, without evaluation and replayed tokens.
        trained_tokens: number of tokens in the learner's training passes: whole sequences, including prompts and
            replays, in every epoch.
        measured: number of rollouts for measurements of an oracle, which count against no budget.
        seconds: wall-clock time of the loop, without evaluation, measurements and checkpoints.
        tool_seconds: time of the environment's tools for generated responses.
        judge_seconds: total time of the environment to respond and judge, including tools.
        evaluations: number of held-out evaluations done, including the one before the first step.
        starved: number of steps that trained on fewer groups than the fill policy requires.
        idle: number of consecutive steps, up to the latest, that neither rolled out nor trained anything.
    """

    step: Count = 0
    rollouts: Count = 0
    tokens: Count = 0
    trained_tokens: Count = 0
    measured: Count = 0
    seconds: Seconds = 0.0
    tool_seconds: Seconds = 0.0
    judge_seconds: Seconds = 0.0
    evaluations: Count = 0
    starved: Count = 0
    idle: Count = 0

    def share(self, budget: Budget) -> float:
        """Spent share of the budget."""
        spent: float = getattr(self, "step" if budget.unit == "steps" else budget.unit)
        return spent / budget.total

    @property
    def spent(self) -> dict[str, float]:
        """The amounts in the record of a step; those of tools and of an oracle only if there is one."""
        names = ("rollouts", "tokens", "trained_tokens", "seconds", "tool_seconds", "judge_seconds", "measured")
        amounts = {name: vars(self)[name] for name in names}
        return {name: amount for name, amount in amounts.items() if amount or name not in ("tool_seconds", "measured")}

    def after(self, filling: Filling, learned: Mapping[str, float], clock: "Stopwatch") -> "Progress":
        """The progress after one more step. `learned`: the learner's metrics of the step."""
        groups = [group.latest for group in filling.groups]
        return replace(
            self,
            step=self.step + 1,
            rollouts=self.rollouts + sum(group.size for group in groups),
            tokens=self.tokens + sum(group.num_generated for group in groups),
            trained_tokens=self.trained_tokens + int(learned.get("trained_tokens", 0)),
            seconds=self.seconds + clock.counted,
            tool_seconds=self.tool_seconds + tool_seconds(groups),
            judge_seconds=self.judge_seconds + clock.judged,
            starved=self.starved + filling.starved,
            idle=0 if filling.trained or any(group.size for group in groups) else self.idle + 1,
        )

    def unspent(self, budget: Budget) -> bool:
        """True if the run continues.

        Raises:
            UserError: if the run would never end, because nothing is rolled out any more.
        """
        if self.idle >= IDLE_STEPS and budget.unit in ("rollouts", "tokens"):
            raise UserError(
                f"controllers: nothing was rolled out in {self.idle} steps in a row, so budget.{budget.unit} would "
                "never be spent; decisions.jsonl says what was skipped, and why"
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
        judged: time of the environment, summed over all rollouts; the engine may have run meanwhile.
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


def evaluation_record(progress: Progress, evaluation: Evaluation, unjudged: Mapping[str, int]) -> dict[str, Any]:
    """One line of evaluations.jsonl.

    Args:
        unjudged: number of responses that failed because no verifier could judge them, by reason.
    """
    return {
        "step": progress.step,
        **{name: spent for name, spent in progress.spent.items() if name not in ("tool_seconds", "measured")},
        "pass_at_1": evaluation.pass_at_1,
        "stderr": evaluation.stderr,
        "problems": evaluation.num_problems,
        "samples": evaluation.samples,
        "pass_counts": list(evaluation.pass_counts_K),
        "passed": list(evaluation.passed_G),
        "strata": {name: {"problems": num, "passed": passed} for name, (num, passed) in evaluation.strata.items()},
        **({"unjudged": dict(unjudged)} if unjudged else {}),
    }
