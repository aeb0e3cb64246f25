"""Generated problems in solver training, chosen by a probe's estimates, recalibrated as the solver learns."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.calibration import Calibration, Line, Residual, guesses_of
from halfway.controllers.beliefs.forest import Floats
from halfway.controllers.beliefs.logit_normal import sigmoid
from halfway.controllers.laws.slots import slots_left
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, require

INVALID = ("impossible", "lost")


@dataclass(frozen=True, slots=True, eq=False)
class ProbedState:
    """Evidence on the generated problems, by position.

    Attributes:
        line: calibration line from a guess to the current pass rate.
        tried_P: number of groups rolled out.
        residual_P, variance_P: mean and variance of each problem's log-odds around the line.
        invalid_P: true for problems judged invalid; `counts` has their number by reason.
        offered, offered_in: positions proposed so far in a step, and the index of that step.
        rate: mean observed pass rate in the latest step that had any.
    """

    problems: ProblemSet
    line: Line
    tried_P: NDArray[np.int64]
    residual_P: Floats
    variance_P: Floats
    invalid_P: NDArray[np.bool_]
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(INVALID, 0))
    offered: tuple[int, ...] = ()
    offered_in: int = -1
    rate: float = 0.0

    def rates(self) -> Floats:
        """The predicted pass rate of every generated problem."""
        return sigmoid(self.line.logits(_guesses(self.problems)) + self.residual_P)

    def own(self, place: int) -> Residual:
        return Residual(float(self.residual_P[place]), float(self.variance_P[place]))


@dataclass(frozen=True)
class Probed(PassRateController[ProbedState]):
    """Gives a share of every plan to the generated problems whose predicted pass rate is nearest the target.

    The problems come with a probe's guesses of their pass rates (`problems.generated`). The solver changes, so a line
    (offset and slope, in logits), fitted to the outcomes, maps guesses to predictions. Each problem also has a residual
    about the line; the larger `noise` is, the less one outcome moves the line. Only outcomes of generated problems are
    evidence.

    A problem is dropped as invalid if no rollout passes although that was almost impossible, or if all rollouts are
    lost.

    In a chain, list it before the member that chooses problems of the data set. PROPEL specifies none of this; every
    number is ours.

    Attributes:
        share: share of generated problems in a plan, rounded down.
        selection: "target", or "random" = any generated problem, as a control.
        target: target pass rate.
        band: lowest and highest predicted pass rate of a proposed problem. If the pool has no such problem left,
            because the solver has outgrown it, the slots go to the members that follow.
        tries: maximum number of groups of one generated problem in the whole run.
        noise: standard deviation of a problem about the line, in logits: the error of the probe. Measured in the lab:
            0.5 for generated problems, 0.7 for the data set.
        impossible: an all-failed group marks its problem as invalid if the predicted probability of that was below
            this; 0 = never.
        calibration: options of the line's fit.
    """

    REMOVED: ClassVar = {"stop_on": (None, "")}

    share: float = 0.5
    selection: Literal["target", "random"] = "target"
    target: float = 0.5
    band: tuple[float, float] = (0.0, 1.0)
    tries: int = 1
    noise: float = 0.7
    impossible: float = 1e-3
    calibration: Calibration = field(default_factory=Calibration)

    claims = frozenset({"generated"})
    needs = frozenset({"generated"})

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "probe.share", self.share, "give a share above 0, at most 1")
        require(0 < self.target < 1, "probe.target", self.target, "give a pass rate between 0 and 1")
        rising = 0 <= self.band[0] < self.band[1] <= 1
        require(rising, "probe.band", list(self.band), "give two increasing pass rates, from 0 to 1")
        require(self.tries >= 1, "probe.tries", self.tries, "give at least 1")
        require(0 <= self.noise <= 20, "probe.noise", self.noise, "give 0 (= a perfect probe) to 20 logits")
        require(0 <= self.impossible < 1, "probe.impossible", self.impossible, "give 0 (= never) or a small chance")

    def init(self, problems: ProblemSet) -> ProbedState:
        """Raises UserError if a generated problem has no guess."""
        number = len(_guesses(problems))
        return ProbedState(
            problems,
            self.calibration.start(),
            tried_P=np.zeros(number, np.int64),
            residual_P=np.zeros(number),
            variance_P=np.full(number, self.noise**2),
            invalid_P=np.zeros(number, np.bool_),
        )

    def propose(self, plan: Plan, state: ProbedState, stream: Stream) -> tuple[Plan, ProbedState]:
        wanted = slots_left(plan, self.share, Origin.GENERATED)
        if wanted <= 0 or not state.problems.generated:
            return plan, state
        if state.offered_in != plan.step:
            state = replace(state, offered=(), offered_in=plan.step)
        free_P = self._free(replace(state, tried_P=state.tried_P + _count_pending(plan, state.problems)))
        free_P[list(state.offered)] = False
        rates_P = state.rates()
        free_P &= (rates_P >= self.band[0]) & (rates_P <= self.band[1])
        distance_P = np.abs(rates_P - self.target) if self.selection == "target" else np.zeros_like(rates_P)
        chance_P, free = stream.generator().random(len(rates_P)), np.flatnonzero(free_P)
        if wanted < len(free):  # no others can be chosen, so only these are sorted
            free = free[distance_P[free] <= np.partition(distance_P[free], wanted - 1)[wanted - 1]]
        chosen = free[np.lexsort([chance_P[free], distance_P[free]])[:wanted]].tolist()
        generated = state.problems.generated
        requests = [Request(generated[place], plan.num_rollouts, Origin.GENERATED) for place in chosen]
        plan = plan.add(requests, [f"probed {rates_P[place]:.2f}" for place in chosen])
        return plan, replace(state, offered=(*state.offered, *chosen))

    def observe(self, state: ProbedState, groups: Sequence[Group], step: int) -> ProbedState:
        position = _positions(state.problems)
        ours = [g for g in groups if g.request.origin is Origin.GENERATED and g.request.problem.id in position]
        if not ours:
            return state
        guesses_P = _guesses(state.problems)
        tried_P, invalid_P = state.tried_P.copy(), state.invalid_P.copy()
        residual_P, variance_P = state.residual_P.copy(), state.variance_P.copy()
        line, counts, scored = state.line.drift(self.calibration.drift), Counter(state.counts), []
        for group in ours:
            place = position[group.request.problem.id]
            tried_P[place] += 1
            reason = self._invalid(state, float(guesses_P[place]), state.own(place), group)
            if reason:
                counts[reason] += not invalid_P[place]
                invalid_P[place] = True
                continue
            scored.append(group.pass_rate)
            own = Residual(float(residual_P[place]), float(variance_P[place]))
            line, own = line.learn(float(guesses_P[place]), own, group.num_passed, group.size)
            residual_P[place], variance_P[place] = own
        return replace(
            state,
            line=line,
            tried_P=tried_P,
            residual_P=residual_P,
            variance_P=variance_P,
            invalid_P=invalid_P,
            counts=dict(counts),
            rate=float(np.mean(scored)) if scored else state.rate,
        )

    def predict(self, state: ProbedState, groups: Sequence[Group]) -> Floats:
        position, rates_P = _positions(state.problems), state.rates()
        ours = [position.get(g.request.problem.id) if g.request.origin is Origin.GENERATED else None for g in groups]
        return np.array([np.nan if place is None else rates_P[place] for place in ours])

    def _invalid(self, state: ProbedState, guess: float, own: Residual, group: Group) -> str:
        """The reason why a group shows its problem to be invalid; "" if it does not."""
        if group.size == 0:
            return "lost"
        if group.num_passed:
            return ""
        return "impossible" if state.line.chance_of_none(guess, own, group.size) < self.impossible else ""

    def _free(self, state: ProbedState) -> NDArray[np.bool_]:
        """Mask of the problems that may be tried again."""
        free_P: NDArray[np.bool_] = (state.tried_P < self.tries) & ~state.invalid_P
        return free_P

    def metrics(self, state: ProbedState) -> Mapping[str, float]:
        """offset, slope: of the line; left: number of generated problems that may still be proposed;
        invalid_impossible, invalid_lost: numbers dropped, by reason; rate: see `ProbedState`."""
        offset, slope = map(float, state.line.mean_2)
        invalid = {f"invalid_{reason}": float(state.counts[reason]) for reason in INVALID}
        left = float(self._free(state).sum())
        return {"offset": offset, "slope": slope, "left": left, **invalid, "rate": state.rate}


@lru_cache(maxsize=4)
def _positions(problems: ProblemSet) -> Mapping[str, int]:
    return {problem.id: i for i, problem in enumerate(problems.generated)}


def _count_pending(plan: Plan, problems: ProblemSet) -> NDArray[np.int64]:
    """Number of groups of each generated problem in the plan and in hand."""
    requests = (*plan.requests, *(group.request for group in plan.in_hand))
    position, tries_P = _positions(problems), np.zeros(len(problems.generated), np.int64)
    for request in requests:
        if request.origin is Origin.GENERATED and not request.extends and request.problem.id in position:
            tries_P[position[request.problem.id]] += 1
    return tries_P


@lru_cache(maxsize=4)
def _guesses(problems: ProblemSet) -> Floats:
    return guesses_of(problems.generated, "problems.generated")
