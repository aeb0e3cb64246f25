"""MoPPS: chooses the problems whose pass rate, drawn from a posterior, is nearest one half (arXiv 2507.04632)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from halfway.controllers.beliefs.counts import fresh_counts, predict_fresh
from halfway.controllers.beliefs.forest import Floats, Forest
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief, ThompsonBelief
from halfway.controllers.laws.choose_problems import Choice
from halfway.controllers.laws.slots import fill_by_rate
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Stream, require


@dataclass(frozen=True, slots=True, eq=False)
class MoppsState:
    """Evidence on every problem's pass rate, after MoPPS.

    Attributes:
        forest: counts of each problem, each its own tree.
        rate: mean observed pass rate in the latest step that had any.
    """

    problems: ProblemSet
    forest: Forest
    rate: float = 0.0


@dataclass(frozen=True)
class Mopps(PassRateController[MoppsState]):
    """Draws each candidate's pass rate from its posterior, and takes the candidates with draws nearest the target.

    Each problem has a Beta(a, b) posterior. After s of n rollouts passed, a <- lambda a + (1 - lambda) a0 + s and b <-
    lambda b + (1 - lambda) b0 + n - s; we store a - a0 and b - b0, which are discounted counts. A rate r is drawn from
    Beta(a, b) for each candidate, and those with the smallest (r - target)^2 are taken.

    The paper discounts because the policy changes; its published script sets `bandit_decay_ratio` to 1.0, no discount,
    our default too. (By a slip of operator precedence, the script also adds 8 to both counts if a group has one
    rollout; this is not reproduced.)

    Only fresh groups are evidence. Alternatives for `belief` and `law`: means instead of draws, the hierarchical model,
    MoPPS' own second rule (`law: {kind: band}`), or the law of another controller.

    Attributes:
        candidates: number of random problems that compete for each slot; 16 in the published script for maths. null =
            all problems.
        belief: estimates pass rates from counts.
        law: chooses among the candidates.
    """

    candidates: int | None = 16
    belief: PassRateBelief = field(default_factory=ThompsonBelief)
    law: Choice = field(default_factory=Choice)

    claims = frozenset({"problems"})

    def __post_init__(self) -> None:
        fits = self.candidates is None or self.candidates >= 1
        require(fits, "mopps.candidates", self.candidates, "give at least 1 for each slot, or null for all problems")

    @property
    def needs(self) -> frozenset[str]:
        return self.belief.needs

    def init(self, problems: ProblemSet) -> MoppsState:
        return MoppsState(problems, self.belief.init(len(problems)))

    def propose(self, plan: Plan, state: MoppsState, stream: Stream) -> tuple[Plan, MoppsState]:
        if plan.missing == 0:
            return plan, state
        forest = self.belief.ready(state.forest, plan.step, stream)
        rates = partial(self.belief.rates, forest)
        plan = fill_by_rate(plan, state.problems, rates, self.law, stream, self.candidates)
        return plan, replace(state, forest=forest)

    def observe(self, state: MoppsState, groups: Sequence[Group], step: int) -> MoppsState:
        counts = fresh_counts(groups, state.problems)
        forest = self.belief.learn(state.forest, *counts)
        rate = sum(counts.passed) / sum(counts.tried) if counts.tried else state.rate
        return replace(state, forest=forest, rate=rate)

    def inform(self, state: MoppsState, rates_P: Floats) -> MoppsState:
        return replace(state, forest=self.belief.inform(state.forest, rates_P))

    def predict(self, state: MoppsState, groups: Sequence[Group]) -> Floats:
        return predict_fresh(groups, state.problems, partial(self.belief.means, state.forest))

    def metrics(self, state: MoppsState) -> Mapping[str, float]:
        """rate: see `MoppsState`; tried: share of problems with evidence; evidence: mean of their discounted
        rollouts."""
        tried_P = state.forest.tried_M
        seen = float((tried_P > 0).mean())
        return {"rate": state.rate, "tried": seen, "evidence": float(tried_P.mean()) / seen if seen else 0.0}
