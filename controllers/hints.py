"""Hints: rollouts start with a beginning of the reference solution, as long as the problem needs it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.features import Categories, categories
from halfway.controllers.beliefs.forest import Floats
from halfway.controllers.beliefs.item_response import REMEMBERED, Trial, aimed
from halfway.controllers.prefixes.hints import Cuts, trial_of, tries_without_signal, units_left
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group, Request
from halfway.curriculum.plan import Plan, Verdict
from halfway.curriculum.prefix import Place
from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


@dataclass(frozen=True, slots=True, eq=False)
class HintsState:
    """What is known of how much help each problem needs.

    Attributes:
        length_P: reverse: units of the next hint, by position.
        left_C: shared: units that problems of each category are left to do.
        most: shared: units of the longest solution, which is what is left without a hint.
        trials: seele: problem id -> its latest groups.
        counts: requests by what was done with them.
    """

    problems: ProblemSet
    length_P: NDArray[np.int64]
    left_C: Floats
    most: int
    trials: Mapping[str, tuple[Trial, ...]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Hints(PassRateController[HintsState]):
    """Gives fresh requests, whoever chose them, a beginning of the problem's reference solution.

    - "reverse", ours: one hint length per problem, which follows its groups (see `step_length`).
    - "shared", ours: problems of one category are left the same number of units to do, which follows all their groups
      (see `units_left`), so that a problem's first hint is as long as those of its like.
    - "schedule", QuestA (arXiv 2507.13266): all problems get the share of the stage. Published: half of the characters,
      later a quarter, in the prompt, none below 10 characters. There people change stage; here after `stage_steps`.
    - "ghpo" (arXiv 2507.10628): a problem that nobody passes is tried again in the same step with `shares[0]` of its
      solution; half, as in the released script.
    - "seele" (arXiv 2509.06923): a logistic curve through what a problem did with hints of different lengths tells
      which one makes it pass `target` of the time; groups without signal are tried again in the same step. Published:
      the rounds of a step share one baseline; here each hint length is a group of its own.

    A problem without a solution is left alone and counted. Hinted groups say nothing about the problem as it stands.

    Attributes:
        place: "response" = the response begins with the hint, which is not trained; "prompt" = it follows the prompt.
        separator, width, shortest: where hints end, see `Cuts`; separator "\\n" for whole lines.
        low, high: reverse: pass rates at or below which a hint grows, at or above which it shrinks.
        shares, stage_steps: schedule: of each stage, and its length; the last one stays. ghpo: the first is used.
        category, gain: shared: a feature of the problems, and units for each unit of pass rate off the target.
        target: shared, seele: pass rate.
        forget: seele: share of its weight that a group loses with every later one of its problem.
        tries: ghpo, seele: further groups of one problem in one step.
    """

    kind: Literal["reverse", "shared", "schedule", "ghpo", "seele"] = "reverse"
    place: Place = "response"
    separator: str = ""
    width: int = 0
    shortest: int = 1
    low: float = 0.2
    high: float = 0.6
    shares: tuple[float, ...] = (0.5, 0.25)
    stage_steps: int = 100
    category: str = "category"
    gain: float = 1.0
    target: float = 0.5
    forget: float = 0.5
    tries: int = 1

    def __post_init__(self) -> None:
        require(0 <= self.low < self.high <= 1, "hints.low", self.low, "give 0 <= low < high <= 1")
        within = 0 < min(self.shares, default=0) <= max(self.shares, default=0) < 1
        require(within, "hints.shares", list(self.shares), "give shares above 0 and below 1, at least one")
        require(0 < self.target < 1, "hints.target", self.target, "give a pass rate above 0 and below 1")
        require(0 <= self.forget < 1, "hints.forget", self.forget, "give 0 (= remember all alike) or more, below 1")
        for name, least in (("width", 0), ("stage_steps", 1), ("shortest", 1), ("tries", 1)):
            require(vars(self)[name] >= least, f"hints.{name}", vars(self)[name], f"give at least {least}")

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"hints"})

    @property
    def needs(self) -> frozenset[str]:
        rounds = {"rounds"} if self.kind in ("ghpo", "seele") else set()
        feature = {f"feature:{self.category}"} if self.kind == "shared" else set()
        return frozenset({"hints", "solutions"} | rounds | feature)

    def init(self, problems: ProblemSet) -> HintsState:
        length_P, most, number = np.zeros(len(problems), np.int64), 0, 0
        if self.kind == "shared":
            most = 1 + max((len(self._cuts.points(problem)) for problem in problems), default=0)
            number = len(self._categories(problems))
        return HintsState(problems, length_P, np.full(number, float(most)), most)

    def _categories(self, problems: ProblemSet) -> Categories:
        return categories(problems, self.category, "hints.category")

    @property
    def _cuts(self) -> Cuts:
        return Cuts(self.place, self.separator, self.width, self.shortest)

    def propose(self, plan: Plan, state: HintsState, stream: Stream) -> tuple[Plan, HintsState]:
        verdicts = [self._judge(request, state, plan.step) for request in plan.undecided]
        hand = [g for g in plan.in_hand if g.request.problem.solution] if "rounds" in self.needs else []
        again = [request for group in hand for request in self._again(group, plan, state)]
        counts = Counter(state.counts) + Counter([verdict.action for verdict in verdicts] + ["again"] * len(again))
        return plan.decide(verdicts).add(again, "again"), replace(state, counts=dict(counts))

    def _judge(self, request: Request, state: HintsState, step: int) -> Verdict:
        problem = request.problem
        if request.origin is not Origin.FRESH or not problem.solution:
            return Verdict(True, "no_solution" if request.origin is Origin.FRESH else "exempt")
        length = int(state.length_P[state.problems.position(problem.id)])  # 0 but for reverse
        if self.kind == "schedule":
            length = self._cuts.units(problem, self.shares[min(step // self.stage_steps, len(self.shares) - 1)])
        elif self.kind == "shared":
            left = state.left_C[self._category_of(problem, state)]
            length = max(0, 1 + len(self._cuts.points(problem)) - round(float(left)))
        elif self.kind == "seele":
            length = aimed(state.trials.get(problem.id, ()), self._cuts.shares(problem), self.target, self.forget)
        hint = self._cuts.hint(problem, length)
        return Verdict(True, "hinted" if hint else "plain", hint=hint)

    def _again(self, group: Group, plan: Plan, state: HintsState) -> list[Request]:
        """The request for another group of a problem whose latest group in hand had no signal; none if it had."""
        problem = group.request.problem
        tried = tries_without_signal(group, plan, self.tries + 1)
        if not tried:
            return []
        length = 0 if group.num_passed else self._cuts.units(problem, self.shares[0])
        if self.kind == "seele":
            known = (*state.trials.get(problem.id, ()), *map(trial_of, tried))
            length = aimed(known, self._cuts.shares(problem), self.target, self.forget)
        hint = self._cuts.hint(problem, length)
        request = Verdict(True, "again", hint=hint).applied(Request(problem, plan.num_rollouts))
        return [] if hint == group.request.hint else [request]

    def observe(self, state: HintsState, groups: Sequence[Group], step: int) -> HintsState:
        length_P, trials, shared = state.length_P.copy(), dict(state.trials), []
        for group in groups:
            problem = group.request.problem
            if group.request.origin not in (Origin.FRESH, Origin.HINTED):
                continue
            place = state.problems.position(problem.id)  # raises for a problem of another set
            if group.size and problem.solution and self.kind == "reverse":
                length_P[place] = self._cuts.next_length(group, self.low, self.high)
            elif group.size and problem.solution and self.kind == "shared":
                shared.append((self._category_of(problem, state), group.pass_rate))
            elif group.size and problem.solution and self.kind == "seele":
                trials[problem.id] = (*trials.get(problem.id, ()), trial_of(group))[-REMEMBERED:]
        left_C = units_left(state.left_C, shared, self.target, self.gain, state.most)
        return replace(state, length_P=length_P, trials=trials, left_C=left_C)

    def _category_of(self, problem: Problem, state: HintsState) -> int:
        return int(self._categories(state.problems).category_P[state.problems.position(problem.id)])

    def metrics(self, state: HintsState) -> Mapping[str, float]:
        """hinted, plain, again, no_solution: requests so far; length: mean units of the next hint (reverse)."""
        counts = {name: float(state.counts.get(name, 0)) for name in ("hinted", "plain", "again", "no_solution")}
        return {**counts, "length": float(state.length_P.mean())}
