"""BOTS: a posterior for each problem, updated by its own outcomes and by those of all others (arXiv 2510.26374)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from halfway.controllers.beliefs.counts import Counts, fresh_counts, moving_average, predict_fresh
from halfway.controllers.beliefs.features import numbers
from halfway.controllers.beliefs.forest import Decay, Floats, Forest
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief, ThompsonBelief
from halfway.controllers.laws.choose_problems import Choice
from halfway.controllers.laws.slots import fill_by_rate
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Stream, UserError, require

LARGE_ERROR = 0.25  # mean absolute error of the predictions at which an adaptive rho is halved


@dataclass(frozen=True)
class BotsBelief(ThompsonBelief):
    """`PassRateBelief` with BOTS' defaults: Thompson draws from Beta posteriors, all discounted by a tenth per step."""

    forgetting: float = 0.9
    decay_on: Decay = "step"


@dataclass(frozen=True, slots=True, eq=False)
class BotsState:
    """Evidence on every problem, and the policy's capability, after BOTS.

    Attributes:
        forest: counts of each problem, implicit evidence included.
        rho: weight of the implicit evidence.
        capability: position of the policy between the reference models; None before the first outcome.
        error: mean absolute error of the predicted rates p', in the latest step with outcomes.
    """

    problems: ProblemSet
    forest: Forest
    rho: float
    capability: float | None = None
    error: float = 0.0


@dataclass(frozen=True)
class Bots(PassRateController[BotsState]):
    """Takes the problems whose believed pass rate is nearest the target; each outcome is evidence on all problems.

    In every step with outcomes, a <- (1 - lambda) a + lambda a0 + s + rho n p' for each problem, and b likewise with
    failures. A tried problem adds its own successes s (explicit evidence). An untried problem adds rho n
    pseudo-rollouts instead, where n is the group size, at a rate p' that two reference models predict (implicit
    evidence): p' = clip(f0 + c (f1 - f0)), where f0 and f1 are their pass rates on it, and c is a moving average of
    (mean rate - mean f0) / (mean f1 - mean f0) over the problems tried. This equals (1 - rho) s + rho s' of the
    published code, which sets s' = s for a tried problem.

    Published defaults disagree: the class has lambda 0.2, rho 0.2, target 1.0 and a softmax of temperature 1; the
    example configuration has lambda 0.1, rho 0.1, target 0.5, no softmax, Thompson draws. Our defaults are the
    example's. Only fresh groups are evidence. The whole state is saved; the published selector loses its posterior on
    resume.

    Attributes:
        rho: weight of implicit evidence; 0 = none, without need for reference columns.
        adaptive: true = rho is halved in every step whose predictions err by 0.25 or more on average.
        reference: columns with the pass rates of a weak and a strong reference model.
        inertia: weight of the old capability in each step's moving average.
        belief: estimates pass rates from counts; `forgetting` is 1 - lambda.
        law: chooses problems by their believed pass rates.
    """

    rho: float = 0.1
    adaptive: bool = False
    reference: tuple[str, str] = ("weak_rate", "strong_rate")
    inertia: float = 0.9
    belief: PassRateBelief = field(default_factory=BotsBelief)
    law: Choice = field(default_factory=Choice)

    claims = frozenset({"problems"})

    def __post_init__(self) -> None:
        require(0 <= self.rho <= 1, "bots.rho", self.rho, "give a number from 0 (= no implicit evidence) to 1")
        require(0 <= self.inertia < 1, "bots.inertia", self.inertia, "give a share from 0 to below 1")
        counts = self.belief.kind in ("hierarchical", "beta") or self.rho == 0
        remedy = "it keeps no implicit evidence; set rho: 0, or another kind"
        require(counts, "bots.belief.kind", self.belief.kind, remedy)

    @property
    def needs(self) -> frozenset[str]:
        references = (f"feature:{name}" for name in self.reference)
        return self.belief.needs.union(references if self.rho else ())

    def init(self, problems: ProblemSet) -> BotsState:
        """Raises UserError if rho > 0 and a reference column is missing or holds no pass rates."""
        if self.rho:
            weak_P, strong_P = self._rates(problems)
            lowest, highest = min(weak_P.min(), strong_P.min()), max(weak_P.max(), strong_P.max())
            if lowest < 0 or highest > 1:
                raise UserError(
                    f"bots.reference: {', '.join(self.reference)} go from {lowest:g} to {highest:g}; "
                    "name columns of pass rates, from 0 to 1"
                )
        return BotsState(problems, self.belief.init(len(problems)), self.rho)

    def propose(self, plan: Plan, state: BotsState, stream: Stream) -> tuple[Plan, BotsState]:
        if plan.missing == 0:
            return plan, state
        forest = self.belief.ready(state.forest, plan.step, stream)
        plan = fill_by_rate(plan, state.problems, partial(self.belief.rates, forest), self.law, stream)
        return plan, replace(state, forest=forest)

    def observe(self, state: BotsState, groups: Sequence[Group], step: int) -> BotsState:
        counts = fresh_counts(groups, state.problems)
        if not counts.positions:
            return state
        state = replace(state, forest=self.belief.learn(state.forest, *counts))
        return self._add_implicit(state, counts) if self.rho else state

    def inform(self, state: BotsState, rates_P: Floats) -> BotsState:
        return replace(state, forest=self.belief.inform(state.forest, rates_P))

    def _add_implicit(self, state: BotsState, counts: Counts) -> BotsState:
        weak_P, strong_P = self._rates(state.problems)
        rate_G = np.asarray(counts.passed) / np.asarray(counts.tried)
        now = capability(
            float(rate_G.mean()), float(weak_P[counts.positions].mean()), float(strong_P[counts.positions].mean())
        )
        if state.capability is not None:
            now = moving_average(now, state.capability, self.inertia)
        rate_P = interpolate_rates(weak_P, strong_P, now)
        error = float(np.abs(rate_P[counts.positions] - rate_G).mean())
        rho = state.rho / 2 if self.adaptive and error >= LARGE_ERROR else state.rho
        rollouts = rho * float(np.mean(counts.tried))
        forest = add_implicit(state.forest, rate_P, rollouts, counts.positions)
        return replace(state, forest=forest, rho=rho, capability=now, error=error)

    def _rates(self, problems: ProblemSet) -> tuple[Floats, Floats]:
        weak_P, strong_P = (numbers(problems, name, "bots.reference") for name in self.reference)
        return weak_P, strong_P

    def predict(self, state: BotsState, groups: Sequence[Group]) -> Floats:
        return predict_fresh(groups, state.problems, partial(self.belief.means, state.forest))

    def metrics(self, state: BotsState) -> Mapping[str, float]:
        """capability, rho: see `BotsState`; reference_error: its `error`; evidence: mean discounted rollouts per
        problem."""
        now = 0.0 if state.capability is None else state.capability
        evidence = float(state.forest.tried_M.mean())
        return {"capability": now, "rho": state.rho, "reference_error": state.error, "evidence": evidence}


GUARD = 1e-6  # as in the published code; prevents division by 0 where both models pass equally often


def capability(rate: float, weak: float, strong: float) -> float:
    """Position of the policy between two reference models: 0 = pass rate of the weak one, 1 = of the strong one.

    Args:
        rate, weak, strong: mean pass rates of the three on the same problems.
    """
    return (rate - weak) / (strong - weak + GUARD)


def interpolate_rates(weak_P: Floats, strong_P: Floats, capability: float) -> Floats:
    """Pass rates interpolated between the reference models' rates, or extrapolated beyond them, clipped to [0, 1]."""
    rate_P: Floats = strong_P - weak_P
    rate_P *= capability
    rate_P += weak_P
    return np.clip(rate_P, 0.0, 1.0, out=rate_P)


def add_implicit(forest: Forest, rate_P: Floats, rollouts: float, observed: Sequence[int]) -> Forest:
    """The forest with `rollouts` pseudo-rollouts added to each problem that was not observed, at its predicted rate."""
    own = list(observed)
    tried_M = forest.tried_M + rollouts
    passed_M: Floats = rollouts * rate_P
    passed_M += forest.passed_M
    tried_M[own], passed_M[own] = forest.tried_M[own], forest.passed_M[own]
    return replace(forest, passed_M=passed_M, tried_M=tried_M, stale_R=np.ones(forest.num_trees, np.bool_))
