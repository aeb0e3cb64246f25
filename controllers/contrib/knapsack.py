"""Knapsack RL: divides the rollouts of a step among problems by their expected gain (arXiv 2509.25849)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import moving_average
from halfway.controllers.laws.rollout_budget import allocate, signal_gain, sufficient_size
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, Verdict, require

UNSEEN = -1.0


@dataclass(frozen=True, slots=True, eq=False)
class KnapsackState:
    """Estimated pass rates of the problems.

    Attributes:
        rate_P: believed pass rate by position; `UNSEEN` before the first visit.
        smallest, largest: group sizes in the latest plan.
    """

    problems: ProblemSet
    rate_P: NDArray[np.float64]
    smallest: int = 0
    largest: int = 0


@dataclass(frozen=True)
class Knapsack(PassRateController[KnapsackState]):
    """Divides the rollouts of a plan among its groups before sampling, exactly N per group on average.

    The worth of a group of n is the sum of `signal_gain` at the problem's believed pass rate. Gains fall with n, so
    greedy allocation is optimal, as dynamic programming would be. A problem gets at most `sufficient_size` while other
    problems can use the rollouts. Problems that always passed get `least`; problems that never passed share the
    remainder evenly; unseen problems get N. Requests of other origins keep their size. A stored group costs no rollouts
    but counts as N, whatever its size, so that the others have N on average.

    There is no official code; the rule and its numbers come from public implementations. Without the bound (`certainty:
    1`) every mixed problem can always use one more rollout, and problems that never passed get little more than
    `least`.

    Attributes:
        least, most: bounds on the size of a group; 2 is published, the upper bound is ours.
        certainty: while other problems can use rollouts, a group gets at most the size at which it is mixed with this
            probability; 1 = no such bound.
        alpha: weight of the newest pass rate in the believed rate; 1 = the last rate alone, as published.
    """

    least: int = 2
    most: int = 128
    certainty: float = 0.9
    alpha: float = 1.0

    claims = frozenset({"rollouts"})
    needs = frozenset({"rollouts"})

    def __post_init__(self) -> None:
        require(2 <= self.least <= self.most, "knapsack.least", self.least, "give at least 2, and no more than most")
        require(0 < self.certainty <= 1, "knapsack.certainty", self.certainty, "give a chance above 0, at most 1")
        require(0 < self.alpha <= 1, "knapsack.alpha", self.alpha, "give a number above 0, at most 1")

    def init(self, problems: ProblemSet) -> KnapsackState:
        return KnapsackState(problems, np.full(len(problems), UNSEEN))

    def propose(self, plan: Plan, state: KnapsackState, stream: Stream) -> tuple[Plan, KnapsackState]:
        """Raises UserError if N, the mean of a plan, is outside the bounds of a group."""
        fits = self.least <= plan.num_rollouts <= self.most
        remedy = f"the mean of a plan, rollouts.num_rollouts={plan.num_rollouts}, has to lie between them"
        require(fits, "knapsack.least, most", (self.least, self.most), remedy)
        ours = [request for request in plan.undecided if request.origin is Origin.FRESH]
        others = [r for r in plan.requests if not r.extends and all(r is not own for own in ours)]
        if not plan.undecided:
            return plan, state
        taken = sum(plan.num_rollouts if r.origin is Origin.STORED else r.num_rollouts for r in others)
        left = plan.budget - plan.missing * plan.num_rollouts - taken
        sizes = iter(self._share_out(left, ours, state, plan.num_rollouts))
        verdicts = [
            Verdict(True, self._why(r, state), next(sizes)) if r.origin is Origin.FRESH else Verdict(True, "exempt")
            for r in plan.undecided
        ]
        plan = plan.decide(verdicts)
        fresh_sizes = [r.num_rollouts for r in plan.requests if r.origin is Origin.FRESH and r.decided_by(plan.member)]
        return plan, replace(state, smallest=min(fresh_sizes), largest=max(fresh_sizes)) if fresh_sizes else state

    def _share_out(self, budget: int, requests: Sequence[Request], state: KnapsackState, size: int) -> list[int]:
        rates = [_rate(request, state) for request in requests]
        least = [size if rate == UNSEEN else self.least for rate in rates]
        most = [size if rate == UNSEEN else self.most for rate in rates]
        if not sum(least) <= budget <= sum(most):  # earlier decisions left more or less than N each
            least, most = [self.least] * len(rates), [self.most] * len(rates)
            budget = min(max(budget, sum(least)), sum(most))
        enough = [sufficient_size(rate, self.certainty) if 0 < rate < 1 else 0 for rate in rates]

        def gain(i: int, n: int) -> float:
            # Negative ranks get the remainder: never passed, then sufficiently large, then always passed.
            if 0 < rates[i] < 1:
                return signal_gain(rates[i], n) - (2 if n >= enough[i] else 0)
            return -3 if rates[i] == 1 else -1

        return allocate(budget, least, most, gain)

    def _why(self, request: Request, state: KnapsackState) -> str:
        rate = _rate(request, state)
        return "unseen" if rate == UNSEEN else f"believed {rate:.2f}"

    def observe(self, state: KnapsackState, groups: Sequence[Group], step: int) -> KnapsackState:
        rate_P = state.rate_P.copy()
        for group in groups:
            if group.request.origin is Origin.FRESH:
                place = state.problems.position(group.request.problem.id)
                if group.size:
                    old = float(rate_P[place]) if rate_P[place] != UNSEEN else group.pass_rate
                    rate_P[place] = moving_average(old, group.pass_rate, self.alpha)
        return replace(state, rate_P=rate_P)

    def metrics(self, state: KnapsackState) -> Mapping[str, float]:
        """seen: share of problems tried so far; smallest, largest: see `KnapsackState`."""
        seen = float((state.rate_P != UNSEEN).mean())
        return {"seen": seen, "smallest": float(state.smallest), "largest": float(state.largest)}


def _rate(request: Request, state: KnapsackState) -> float:
    return float(state.rate_P[state.problems.position(request.problem.id)])
