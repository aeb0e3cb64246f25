"""GRESO: skip problems that have stopped teaching, before they are rolled out (arXiv 2506.02177)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import is_whole
from halfway.controllers.laws.feedback import TOLERANCE, bound, damp_gain
from halfway.controllers.laws.slots import judge_fresh
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, Verdict, require

LONGEST_STREAK = np.iinfo(np.int16).max


@dataclass(frozen=True, slots=True, eq=False)
class GresoState:
    """Streak of every problem, exploration probabilities, and numbers of verdicts, after GRESO.

    Attributes:
        streaks: zero-variance streak of each problem, by position, signed: +z easy, -z hard (see `advance_streak`).
            Only visits with rollouts count; a skipped visit adds nothing.
        p_easy, p_hard: base exploration probabilities.
        share_easy, share_hard: shares of all-passed and of all-failed groups among the fresh groups of the latest step
            that had any.
        considered: number of fresh candidates judged so far, from which the epoch follows.
        skipped_easy, skipped_hard, readmitted: numbers of these verdicts so far.
        unjudged: number of fresh groups so far with fewer than two rollouts, or fewer than half of those requested;
            they are no evidence of variance.
    """

    problems: ProblemSet
    streaks: NDArray[np.int16]
    p_easy: float
    p_hard: float
    share_easy: float = 0.0
    share_hard: float = 0.0
    considered: int = 0
    skipped_easy: int = 0
    skipped_hard: int = 0
    readmitted: int = 0
    unjudged: int = 0

    @property
    def epoch(self) -> int:
        """The epoch of the latest candidate, counted from 0."""
        return max(self.considered - 1, 0) // len(self.problems)


@dataclass(frozen=True)
class Greso(PassRateController[GresoState]):
    """Skips a problem with probability 1 - max(p^z, floor), where z is its streak of zero-variance groups.

    All-passed (easy) and all-failed (hard) streaks each have a base probability p. Once per training step p moves by
    `step`: down, so that more is skipped, if the share of that kind among the groups rolled out is at or above its
    target, and up otherwise. Only fresh groups count. GRESO's adaptive request size belongs to the fill policy
    (`fill.request: adaptive`).

    Unlike the published code:

    - k = N is easy and k = 0 is hard, whatever the shaped reward. The code's thresholds on the mean reward (0.98, 0.11)
      mislabel groups of ten or more, and its hard share misses groups whose reward is not the format credit;
    - outcomes of a step count from the next step on, not from the next round of the same step;
    - a plan always fills: after as many candidates as there are problems, or a hundred refusals for one slot, it
      accepts the next candidate ("readmitted");
    - exactly the requested number of problems is rolled out; none are dropped to suit devices or chunks of 32;
    - `step` is smaller on late evidence (`halfway.controllers.laws.feedback.damp_gain`);
    - order and draws depend on the run's seed, not on the clock, and the checkpoint holds all state.

    Attributes:
        p_easy, p_hard: base exploration probabilities at the start.
        target: T, the target share of zero-variance groups among those rolled out.
        easy_share: part of T that belongs to easy groups, one third as published; the rest belongs to hard groups.
        step: change of a base probability per training step; 0 = fixed probabilities.
        bounds: range of the base probabilities.
        floor: lowest probability of rolling out a problem.
        streaks: "separate" = an all-passed group ends an all-failed streak, as in the published code; "joint" = a
            streak of zero-variance groups of either kind, with the base probability of the newest kind, as in the
            paper.
        frozen_epochs: number of initial epochs with fixed base probabilities.
    """

    REMOVED: ClassVar = {"evidence": ("streak", "a belief skipped no better than streaks"), "belief": (None, "")}

    p_easy: float = 0.5
    p_hard: float = 0.5
    target: float = 0.25
    easy_share: float = 1 / 3
    step: float = 0.01
    bounds: tuple[float, float] = (0.05, 0.95)
    floor: float = 0.01
    streaks: Literal["separate", "joint"] = "separate"
    frozen_epochs: int = 1

    def __post_init__(self) -> None:
        for name in ("p_easy", "p_hard", "target", "easy_share", "step"):
            value = vars(self)[name]
            require(0 <= value <= 1, f"greso.{name}", value, "give a number between 0 and 1")
        require(0 < self.floor <= 1, "greso.floor", self.floor, "give a number above 0 and at most 1")
        low, high = self.bounds
        require(0 <= low <= high <= 1, "greso.bounds", self.bounds, "give two numbers with 0 <= low <= high <= 1")
        require(self.frozen_epochs >= 0, "greso.frozen_epochs", self.frozen_epochs, "give 0 or more")

    def init(self, problems: ProblemSet) -> GresoState:
        return GresoState(problems, np.zeros(len(problems), np.int16), self.p_easy, self.p_hard)

    def propose(self, plan: Plan, state: GresoState, stream: Stream) -> tuple[Plan, GresoState]:
        candidates = plan.undecided
        if not candidates:
            return plan, state
        verdicts = judge_fresh(plan, len(state.problems), partial(self._judge, state=state, stream=stream))
        actions = [verdict.action for verdict in verdicts]
        return plan.decide(verdicts), replace(
            state,
            considered=state.considered + sum(request.origin is Origin.FRESH for request in candidates),
            skipped_easy=state.skipped_easy + actions.count("easy"),
            skipped_hard=state.skipped_hard + actions.count("hard"),
            readmitted=state.readmitted + actions.count("readmitted"),
        )

    def _judge(self, request: Request, state: GresoState, stream: Stream) -> Verdict:
        streak = int(state.streaks[state.problems.position(request.problem.id)])
        if streak == 0:
            return Verdict(True, "kept")
        kind, base = ("easy", state.p_easy) if streak > 0 else ("hard", state.p_hard)
        # One draw per problem, so that verdicts do not depend on what other members add or drop.
        explores = stream.at(request.problem.id).uniform() < keep_probability(base, abs(streak), self.floor)
        return Verdict(True, f"explored {kind}") if explores else Verdict(False, kind)

    def observe(self, state: GresoState, groups: Sequence[Group], step: int) -> GresoState:
        fresh = [group for group in groups if group.request.origin is Origin.FRESH]
        positions = [state.problems.position(group.request.problem.id) for group in fresh]
        judging = [(position, g) for position, g in zip(positions, fresh, strict=True) if g.size > 1 and is_whole(g)]
        visits = [(position, g.num_passed, g.size) for position, g in judging]
        state = replace(state, unjudged=state.unjudged + len(fresh) - len(visits))
        if not visits:
            return state
        streaks = state.streaks.copy()
        for position, passed, size in visits:
            streak = advance_streak(int(streaks[position]), passed, size, self.streaks)
            streaks[position] = min(max(streak, -LONGEST_STREAK), LONGEST_STREAK)
        share_easy = sum(passed == size for _, passed, size in visits) / len(visits)
        share_hard = sum(passed == 0 for _, passed, _ in visits) / len(visits)
        state = replace(state, streaks=streaks, share_easy=share_easy, share_hard=share_hard)
        if state.epoch < self.frozen_epochs:
            return state
        target_easy, move = self.target * self.easy_share, damp_gain(self.step, fresh)
        return replace(
            state,
            p_easy=exploration_step(state.p_easy, share_easy, target_easy, move, self.bounds),
            p_hard=exploration_step(state.p_hard, share_hard, self.target - target_easy, move, self.bounds),
        )

    def metrics(self, state: GresoState) -> Mapping[str, float]:
        """The fields of `GresoState`, and the share of problems in a streak of either kind."""
        easy, hard = float((state.streaks > 0).mean()), float((state.streaks < 0).mean())
        return {
            **self.shown(state, "p_easy", "p_hard", "share_easy", "share_hard"),
            **{"in_easy_streak": easy, "in_hard_streak": hard},
            **self.shown(state, "epoch", "skipped_easy", "skipped_hard", "readmitted", "unjudged"),
        }


def advance_streak(streak: int, passed: int, size: int, kinds: Literal["separate", "joint"] = "separate") -> int:
    """Zero-variance streak of one problem after one more group.

    A problem is in at most one streak, so one signed number holds both kinds: +z after z consecutive all-passed groups
    (easy), -z after z all-failed groups (hard), 0 after any other group.

    Args:
        passed, size: k and N of the group, with N >= 2.
        kinds: "separate" = a group of the other kind starts a new streak of 1; "joint" = it continues the streak, and
            the sign follows the newest group.
    """
    if passed not in (0, size):
        return 0
    sign = 1 if passed == size else -1
    continues = kinds == "joint" or streak * sign > 0
    return sign * ((abs(streak) if continues else 0) + 1)


def keep_probability(base: float, streak: int, floor: float = 0.01) -> float:
    """GRESO's chance of rolling out a problem after `streak` consecutive zero-variance visits: max(base^streak, floor).

    A streak of 0 gives 1: a problem whose latest group was mixed is never skipped.
    """
    return max(math.pow(base, streak), floor)


def exploration_step(
    base: float, share: float, target: float, step: float = 0.01, bounds: tuple[float, float] = (0.05, 0.95)
) -> float:
    """GRESO's update of a base exploration probability, once per training step.

    Args:
        share: observed share of zero-variance groups of one kind in the training step.
        target: the target share. At or above it the probability falls, so that more is skipped; below it rises.
    """
    # 2 groups of 12 are exactly at a target of 2/3 x 0.25, though not in floating point.
    return bound(base - step if share >= target - TOLERANCE else base + step, bounds)
