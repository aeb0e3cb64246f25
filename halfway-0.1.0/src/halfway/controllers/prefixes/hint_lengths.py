"""Lengths of hints: the laws of `halfway.controllers.hints` and their state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.features import Categories, categories
from halfway.controllers.beliefs.forest import Floats
from halfway.controllers.beliefs.item_response import REMEMBERED, Trial, choose_share
from halfway.controllers.prefixes.hint_cuts import Cuts, trial_of, units_left
from halfway.curriculum import Group, Origin, Problem, ProblemSet, require
from halfway.curriculum.prefix import Place


@dataclass(frozen=True, slots=True, eq=False)
class HintsState:
    """The evidence on the help that each problem needs.

    Attributes:
        length_P: for "reverse": units of each problem's next hint.
        left_C: for "shared": units left to the policy in problems of each category; for "adaprefix": share of its
            solution left to the policy in each problem.
        most: for "shared": units of the longest solution, all left to the policy without a hint.
        trials: for "seele": problem id -> its latest groups.
        counts: numbers of requests by kind of hint.
    """

    problems: ProblemSet
    length_P: NDArray[np.int64]
    left_C: Floats
    most: int
    trials: Mapping[str, tuple[Trial, ...]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HintLengths:
    """The options of `halfway.controllers.hints.Hints`, explained there, and the lengths that follow from them."""

    kind: Literal["reverse", "shared", "adaprefix", "schedule", "ghpo", "seele"] = "reverse"
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
        require(0 <= self.forget < 1, "hints.forget", self.forget, "give 0 (= forget nothing) or more, below 1")
        require(self.gain > 0, "hints.gain", self.gain, "give a number of units above 0")
        for name, least in (("width", 0), ("stage_steps", 1), ("shortest", 1), ("tries", 1)):
            require(vars(self)[name] >= least, f"hints.{name}", vars(self)[name], f"give at least {least}")

    @property
    def cuts(self) -> Cuts:
        return Cuts(self.place, self.separator, self.width, self.shortest)

    def init(self, problems: ProblemSet) -> HintsState:
        length_P, most, number = np.zeros(len(problems), np.int64), 0, 0
        if self.kind == "shared":
            most = 1 + max((len(self.cuts.points(problem)) for problem in problems), default=0)
            number = len(self._categories(problems))
        left_C = np.ones(len(problems)) if self.kind == "adaprefix" else np.full(number, float(most))
        return HintsState(problems, length_P, left_C, most)

    def _categories(self, problems: ProblemSet) -> Categories:
        return categories(problems, self.category, "hints.category")

    def length(self, problem: Problem, state: HintsState, step: int) -> int:
        """Units of the hint for a fresh request of a problem; 0 = no hint."""
        place = state.problems.position(problem.id)
        if self.kind == "schedule":
            return self.cuts.units(problem, self.shares[min(step // self.stage_steps, len(self.shares) - 1)])
        if self.kind == "shared":
            left = float(state.left_C[self._categories(state.problems).category_P[place]])
            return max(0, 1 + len(self.cuts.points(problem)) - round(left))
        if self.kind == "adaprefix":
            return self.cuts.units(problem, min(1 - float(state.left_C[place]), self.largest_share(step)))
        if self.kind == "seele":
            return self.aim(problem, state.trials.get(problem.id, ()))
        return int(state.length_P[place])  # 0 unless the law is "reverse"

    def largest_share(self, step: int) -> float:
        """For "adaprefix": largest share of a solution in this step: 1 for `stage_steps` steps, then falling to 0 over
        as many again."""
        return min(max(2 - step / self.stage_steps, 0.0), 1.0)

    def aim(self, problem: Problem, trials: Sequence[Trial]) -> int:
        """For "seele": units of the hint with which a problem's believed pass rate is `target`."""
        return choose_share(trials, self.cuts.shares(problem), self.target, self.forget)

    def learn(self, state: HintsState, groups: Sequence[Group]) -> HintsState:
        """Update the state by some groups, with and without hints, of problems with a solution."""
        length_P, trials = state.length_P.copy(), dict(state.trials)
        shared: list[tuple[int, float]] = []
        for group in groups:
            problem = group.request.problem
            if group.request.origin not in (Origin.FRESH, Origin.HINTED):
                continue
            place = state.problems.position(problem.id)  # raises for a problem of another set
            if not group.size or not problem.solution:
                continue
            if self.kind == "reverse":
                length_P[place] = self.cuts.next_length(group, self.low, self.high)
            elif self.kind == "shared":
                shared.append((int(self._categories(state.problems).category_P[place]), group.pass_rate))
            elif self.kind == "adaprefix":
                shared.append((place, group.pass_rate))
            elif self.kind == "seele":
                trials[problem.id] = (*trials.get(problem.id, ()), trial_of(group))[-REMEMBERED:]
        least, most = (0.0, 1.0) if self.kind == "adaprefix" else (1.0, state.most)
        left_C = units_left(state.left_C, shared, self.target, self.gain, most, least)
        return replace(state, length_P=length_P, trials=trials, left_C=left_C)
