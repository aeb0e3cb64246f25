"""GRESO: skip problems that have stopped teaching, before they are rolled out (arXiv 2506.02177)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import is_whole
from halfway.controllers.laws.control import TOLERANCE, bound, damp_gain
from halfway.controllers.laws.slots import judge_fresh
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, Verdict, require

LONGEST_STREAK = np.iinfo(np.int16).max


@dataclass(frozen=True, slots=True, eq=False)
class GresoState:
    """State of GRESO.

    Attributes:
        streaks: zero-variance streak of each problem, by position, signed: +z easy, -z hard (see `advance_streak`).
            Counts visits that were rolled out; a skipped visit adds nothing.
        p_easy, p_hard: base exploration probabilities.
        share_easy, share_hard: shares of all-passed and of all-failed groups among the fresh groups of the latest step
            that had any.
        considered: number of fresh candidates judged so far, which gives the epoch.
        skipped_easy, skipped_hard, readmitted: numbers of these verdicts so far.
        unjudged: number of fresh groups so far that came back with fewer than two rollouts, or fewer than half of them,
            and so say nothing about variance.
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
        """The pass through the problem set that the latest candidate belongs to, counted from 0."""
        return max(self.considered - 1, 0) // len(self.problems)


@dataclass(frozen=True)
class Greso(PassRateController[GresoState]):
    """Skips a problem with probability 1 - max(p^z, floor), where z is its streak of zero-variance groups.

    All-passed (easy) and all-failed (hard) streaks have a base probability p each. Once per training step it moves by
    `step`: down, so that more is skipped, where the share of its kind among the groups rolled out reaches its target,
    up where it does not. Only fresh groups count. GRESO's adaptive request size belongs to the fill policy
    (`fill.request: adaptive`).

    Unlike the published code:

    - k = N is easy and k = 0 is hard, whatever the shaped reward. The code's thresholds on the mean reward (0.98, 0.11)
      mislabel groups of ten and more, and its hard share misses groups with another reward than the format credit;
    - a step's outcomes count from the next step on, not from the step's next round;
    - a plan never starves: once it has been offered as many candidates as there are problems, or has refused a hundred
      for a slot, it takes whatever comes next ("readmitted");
    - exactly as many problems are rolled out as were asked for; none are dropped to suit devices or chunks of 32;
    - `step` is smaller on late evidence (`halfway.controllers.laws.control.damp_gain`);
    - order and draws come from the run's seed, not from the clock, and everything that steers is in the checkpoint.

    Attributes:
        p_easy, p_hard: base exploration probabilities at the start.
        target: T, the zero-variance share aimed at among the groups rolled out.
        easy_share: the part of T for easy groups, one third as published; the rest is for hard groups.
        step: change of a base probability per training step; 0 = fixed probabilities.
        bounds: range of the base probabilities.
        floor: least probability of rolling out any problem.
        streaks: "separate" as in the published code: an all-passed group ends an all-failed streak; "joint" as the
            paper words it: a streak of zero-variance groups of either kind, with the base probability of the newest
            kind.
        frozen_epochs: number of epochs at the start in which the base probabilities stay fixed.
    """

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
        require(0 <= low <= high <= 1, "greso.bounds", self.bounds, "give 0 <= low <= high <= 1")
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
        # Drawn by problem, so that no verdict depends on what other members add or drop.
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
        """The fields of `GresoState`, and the share of problems that are in a streak of either kind."""
        return {
            "p_easy": state.p_easy,
            "p_hard": state.p_hard,
            "share_easy": state.share_easy,
            "share_hard": state.share_hard,
            "in_easy_streak": float((state.streaks > 0).mean()),
            "in_hard_streak": float((state.streaks < 0).mean()),
            "epoch": float(state.epoch),
            "skipped_easy": float(state.skipped_easy),
            "skipped_hard": float(state.skipped_hard),
            "readmitted": float(state.readmitted),
            "unjudged": float(state.unjudged),
        }


def advance_streak(streak: int, passed: int, size: int, kinds: Literal["separate", "joint"] = "separate") -> int:
    """The run of zero-variance groups of one problem, after one more group.

    Both kinds share one signed number, since only one of them can be running: +z after z consecutive groups that all
    passed (easy), -z after z that all failed (hard), 0 after any other group.

    Args:
        passed, size: k and N of the group, with N >= 2.
        kinds: "separate" = a group of the other kind starts a new run at 1; "joint" = it continues the run, and the
            sign follows the newest group.
    """
    if passed not in (0, size):
        return 0
    sign = 1 if passed == size else -1
    continues = kinds == "joint" or streak * sign > 0
    return sign * ((abs(streak) if continues else 0) + 1)


def keep_probability(base: float, streak: int, floor: float = 0.01) -> float:
    """GRESO's chance of rolling out a problem after `streak` consecutive zero-variance visits: max(base^streak, floor).

    A streak of 0 gives 1: a problem that was informative at its last visit is never skipped.
    """
    return max(math.pow(base, streak), floor)


def exploration_step(
    base: float, share: float, target: float, step: float = 0.01, bounds: tuple[float, float] = (0.05, 0.95)
) -> float:
    """GRESO's update of a base exploration probability, once per training step.

    Args:
        share: observed share of zero-variance groups of one kind in the training step.
        target: the share aimed at. At or above it the probability falls, so that more is skipped; below it rises.
    """
    # 2 groups of 12 are exactly at a target of 2/3 x 0.25, though not in floating point.
    return bound(base - step if share >= target - TOLERANCE else base + step, bounds)
