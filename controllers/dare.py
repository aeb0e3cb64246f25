"""DARE: choose problems by the present policy's pass rate, estimated from stored rollouts by importance weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.beliefs.forest_beliefs import Aim
from halfway.controllers.beliefs.importance import importance_rate
from halfway.controllers.laws.choice import Choice, ChoiceKind
from halfway.controllers.laws.slots import fill_by_rate
from halfway.curriculum.controller import PassRateController, Score
from halfway.curriculum.groups import Group
from halfway.curriculum.plan import Plan
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


@dataclass(frozen=True)
class Softmax(Choice):
    """`Choice` with the default of DARE."""

    kind: ChoiceKind = "softmax"


@dataclass(frozen=True, slots=True, eq=False)
class DareState:
    """What is stored, and what is believed.

    Attributes:
        rate_P: estimated pass rate of every problem, by position.
        groups: problem id -> its latest group, those first whose estimate is oldest.
        size: mean effective sample size of the latest estimates.
        fallback: share of them that were too small for weights.
    """

    problems: ProblemSet
    rate_P: Floats
    groups: Mapping[str, Group] = field(default_factory=dict)
    size: float = 0.0
    fallback: float = 0.0


@dataclass(frozen=True)
class Dare(PassRateController[DareState]):
    """Draws problems whose estimated pass rate is near the target, DARE (arXiv 2605.09188).

    The latest group of each problem is stored. As the policy moves, its rollouts are weighted by how much more or less
    likely they have become (`beliefs.importance`); below an effective sample size the group's own rate is taken, and
    `unseen` for a problem that was never tried. The paper's code, whose bounds are the defaults here, scores all stored
    rollouts at the beginning of an epoch. Here `per_step` groups are scored before every step, those whose estimate is
    oldest; a third of their tokens counts as trained, since a pass forward is a third of the work.

    Only fresh groups are evidence.

    Attributes:
        per_step: number of stored groups that are scored before a step.
        clip: bound on the log of an importance weight.
        least_size: least effective sample size at which weights are used.
        unseen: pass rate of a problem that was never tried.
        capacity: largest number of stored groups; of those beyond, the last estimate stays.
        candidates: number of problems drawn at random to compete for each slot; null = all.
        law: which of the candidates are taken.
    """

    per_step: int = 16
    clip: float = 5.0
    least_size: float = 2.0
    unseen: float = 0.5
    capacity: int = 1024
    candidates: int | None = None
    law: Choice = field(default_factory=Softmax)

    claims = frozenset({"problems"})
    needs = frozenset({"rescored", "tokens"})

    def __post_init__(self) -> None:
        for name in ("per_step", "capacity"):
            require(vars(self)[name] >= 1, f"dare.{name}", vars(self)[name], "give at least 1 group")
        require(self.clip > 0, "dare.clip", self.clip, "give a number above 0")
        require(self.least_size >= 0, "dare.least_size", self.least_size, "give 0 (= always weighted) or more")
        require(0 <= self.unseen <= 1, "dare.unseen", self.unseen, "give a pass rate from 0 to 1")
        fits = self.candidates is None or self.candidates >= 1
        require(fits, "dare.candidates", self.candidates, "give at least 1 for each slot, or null for all problems")

    def init(self, problems: ProblemSet) -> DareState:
        return DareState(problems, np.full(len(problems), self.unseen))

    def propose(self, plan: Plan, state: DareState, stream: Stream) -> tuple[Plan, DareState]:
        def rates(free_F: Positions, near: Aim | None, draws: Stream) -> tuple[Positions, Floats]:
            return free_F, state.rate_P[free_F]

        return fill_by_rate(plan, state.problems, rates, self.law, stream, self.candidates), state

    def observe(self, state: DareState, groups: Sequence[Group], step: int) -> DareState:
        stored, rate_P = dict(state.groups), state.rate_P.copy()
        for group in fresh_groups(groups, state.problems):
            if group.size:
                problem = group.request.problem.id
                stored.pop(problem, None)  # the newest goes to the end
                stored[problem] = group.bare()
                rate_P[state.problems.position(problem)] = group.pass_rate
        kept = list(stored.items())[-self.capacity :]
        return replace(state, rate_P=rate_P, groups=dict(kept))

    def rescored(self, state: DareState, score: Score) -> DareState:
        stored, rate_P = dict(state.groups), state.rate_P.copy()
        due = [stored.pop(problem) for problem in list(stored)[: self.per_step]]
        if not due:
            return state
        estimates = [
            importance_rate(ratios_N, [rollout.success for rollout in group.rollouts], self.clip, self.least_size)
            for group, ratios_N in zip(due, score(due), strict=True)
        ]
        for group, estimate in zip(due, estimates, strict=True):
            stored[group.request.problem.id] = group
            rate_P[state.problems.position(group.request.problem.id)] = estimate.rate
        size = float(np.mean([estimate.size for estimate in estimates]))
        fallback = float(np.mean([not estimate.weighted for estimate in estimates]))
        return replace(state, rate_P=rate_P, groups=stored, size=size, fallback=fallback)

    def metrics(self, state: DareState) -> Mapping[str, float]:
        """rate: mean estimate over the problems; stored: number of groups; size, fallback: see `DareState`."""
        stored = float(len(state.groups))
        return {"rate": float(state.rate_P.mean()), "stored": stored, "size": state.size, "fallback": state.fallback}
