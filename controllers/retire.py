"""Retirement: stops rolling out a problem that passes too often, for a time or for good (ScaleRL)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import fresh_counts, fresh_groups, is_whole
from halfway.controllers.beliefs.forest import Floats, Forest
from halfway.controllers.beliefs.forest_beliefs import BeliefKind, PassRateBelief
from halfway.controllers.laws.slots import judge_fresh
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Request, Stream, Verdict, require


@dataclass(frozen=True)
class LatestRate(PassRateBelief):
    """`PassRateBelief` that defaults to the rate of the latest group."""

    kind: BeliefKind = "last_rate"


@dataclass(frozen=True, slots=True, eq=False)
class RetireState:
    """Evidence on every problem, and the step at which it was retired.

    Attributes:
        forest: counts of each problem, each its own tree.
        retired_P: the step since which each problem has been retired; -1 = it is not retired.
        refused, readmitted, returned: numbers of requests so far that were dropped, accepted so that the plan fills,
            and accepted because the retirement had ended.
    """

    problems: ProblemSet
    forest: Forest
    retired_P: NDArray[np.int32]
    refused: int = 0
    readmitted: int = 0
    returned: int = 0


@dataclass(frozen=True)
class Retire(PassRateController[RetireState]):
    """Drops a problem when its believed pass rate reaches a threshold, and tries it again much later.

    ScaleRL (arXiv 2510.13786, "no positive resampling") and `no_resampling_pass_rate` of open-instruct use the pass
    rate of the latest group, the default here; ScaleRL's 0.9 is taken from secondary sources. POLARIS drops, between
    stages, problems whose pass rate over their latest visits exceeds 0.9; `belief: {kind: beta}`, with its discounted
    counts, approximates this.

    After `returns` steps a retired problem is tried once more, and the outcome decides. A plan always fills: after as
    many candidates as there are problems, or 100 refusals for one slot, it accepts the next candidate. Only fresh
    requests are judged. Only fresh groups with at least half of the requested rollouts are evidence.

    Attributes:
        above: lowest pass rate at which a problem is retired.
        returns: steps after which a retired problem is tried again; null = never, as published. The default is that of
            our comparisons; in ReMind's runs (2606.03087), 21 % of the mastered problems that were tried again
            had been partly forgotten.
        belief: estimates pass rates from counts. A problem that was never tried is never retired.
    """

    above: float = 0.9
    returns: int | None = 40
    belief: PassRateBelief = field(default_factory=LatestRate)

    def __post_init__(self) -> None:
        require(0 < self.above <= 1, "retire.above", self.above, "give a pass rate above 0, at most 1")
        require(self.returns is None or self.returns >= 1, "retire.returns", self.returns, "give at least 1, or null")

    @property
    def needs(self) -> frozenset[str]:
        return self.belief.needs

    def init(self, problems: ProblemSet) -> RetireState:
        return RetireState(problems, self.belief.init(len(problems)), np.full(len(problems), -1, np.int32))

    def propose(self, plan: Plan, state: RetireState, stream: Stream) -> tuple[Plan, RetireState]:
        candidates = plan.undecided
        if not candidates:
            return plan, state
        state = self._judge_rates(state, plan.step, stream)
        judge = partial(self._judge, state=state, step=plan.step)
        verdicts = judge_fresh(plan, len(state.problems), judge)
        actions = [verdict.action for verdict in verdicts]
        return plan.decide(verdicts), replace(
            state,
            refused=state.refused + actions.count("retired"),
            readmitted=state.readmitted + actions.count("readmitted"),
            returned=state.returned + actions.count("returned"),
        )

    def _judge(self, request: Request, state: RetireState, step: int) -> Verdict:
        since = int(state.retired_P[state.problems.position(request.problem.id)])
        if since < 0:
            return Verdict(True, "kept")
        back = self.returns is not None and step - since >= self.returns
        return Verdict(True, "returned") if back else Verdict(False, "retired")

    def _judge_rates(self, state: RetireState, step: int, stream: Stream) -> RetireState:
        """Retire the problems whose rates are too high; each stays retired until it is tried again."""
        stale = state.forest.stale_R.any()
        forest = self.belief.refresh(state.forest, step, stream) if stale else state.forest
        retires_P = (state.retired_P < 0) & (forest.tried_M > 0) & (forest.rate_M >= self.above)
        retired_P = np.where(retires_P, step, state.retired_P).astype(np.int32)
        return replace(state, forest=forest, retired_P=retired_P)

    def observe(self, state: RetireState, groups: Sequence[Group], step: int) -> RetireState:
        fresh_groups(groups, state.problems)  # raises for a problem of another set
        counts = fresh_counts(filter(is_whole, groups), state.problems)
        if not counts.positions:
            return state
        retired_P = state.retired_P.copy()
        retired_P[counts.positions] = -1
        return replace(state, forest=self.belief.learn(state.forest, *counts), retired_P=retired_P)

    def inform(self, state: RetireState, rates_P: Floats) -> RetireState:
        return replace(state, forest=self.belief.inform(state.forest, rates_P))

    def metrics(self, state: RetireState) -> Mapping[str, float]:
        """retired: share of problems that are retired; refused, readmitted, returned: see `RetireState`."""
        retired = float((state.retired_P >= 0).mean())
        return {"retired": retired, **self.shown(state, "refused", "readmitted", "returned")}
