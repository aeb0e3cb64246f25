"""Conformal: rollouts in growing budgets until a group's successes come as early as calibrated (C-GRPO)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.controllers.laws.stopping import SCORES, accepted_miss, conformal_quantile, pass_rate_score
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group, Request
from halfway.curriculum.plan import Plan, Verdict
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


@dataclass(frozen=True, slots=True, eq=False)
class ConformalState:
    """Scores of the calibration groups, which get all N rollouts whatever the outcome, and counts.

    Attributes:
        scores: for each of the latest calibration groups, its score at every budget, and last its share of failures.
        calibrating: problem id -> number of its groups, not observed yet, that serve for calibration.
        groups, rollouts: numbers of fresh groups so far, and of their rollouts.
    """

    problems: ProblemSet
    scores: tuple[tuple[float, ...], ...] = ()
    calibrating: Mapping[str, int] = field(default_factory=dict)
    groups: int = 0
    rollouts: int = 0


@dataclass(frozen=True)
class Conformal(PassRateController[ConformalState]):
    """Rolls a group out in growing budgets, and stops at the first at which it counts as solved.

    C-GRPO (OpenReview TrdqzzvFCs; rules as in the package trl-cgrpo 0.2.0, for rewards by execution): after k rollouts
    a group stops if one has passed and its score is at most q_k, the conformal quantile of the scores at k of
    calibration groups; the accepted share of misses is 1 - solved + `margin`. So it saves rollouts where success is
    cheap, and spends all N where it is rare. The package's default, a prediction set of final answers, needs answers
    and is not here.

    The package calibrates every 50 steps on N rollouts of each held-out problem, which are not trained on. Here (ours)
    a random share of the run's own fresh groups never stops early; they train like others and serve for calibration.
    Until there are `least` of them, every group is one. The policy moves meanwhile, so coverage is approximate.

    Attributes:
        score: "pass_rate"; or "first_success", for hosts that record rollouts one by one, since it depends on their
            order.
        budgets: rollouts after which a group may stop, ascending; only budgets below N are used.
        miss: accepted share of misses; null = derived from the share of groups that are solved.
        margin: added to the derived share.
        share: chance that a fresh group is used for calibration.
        least, window: calibration groups before the first stop, and how many of the latest are kept.
    """

    score: Literal["pass_rate", "first_success"] = "pass_rate"
    budgets: tuple[int, ...] = (2, 4, 8, 16)
    miss: float | None = None
    margin: float = 0.05
    share: float = 0.125
    least: int = 32
    window: int = 200

    claims = frozenset({"rounds", "rollouts"})
    needs = frozenset({"rounds", "rollouts"})

    def __post_init__(self) -> None:
        rising = self.budgets == tuple(sorted(set(self.budgets))) and min(self.budgets, default=0) >= 1
        require(rising, "conformal.budgets", list(self.budgets), "give ascending numbers of rollouts, from 1")
        fits = self.miss is None or 0 < self.miss < 1
        require(fits, "conformal.miss", self.miss, "give a share between 0 and 1, or null")
        require(0 <= self.margin < 1, "conformal.margin", self.margin, "give a share of 0 or more, below 1")
        require(0 < self.share <= 1, "conformal.share", self.share, "give a chance above 0, at most 1")
        require(self.least >= 1, "conformal.least", self.least, "give at least 1 group")
        require(self.window >= self.least, "conformal.window", self.window, "give conformal.least groups or more")

    def init(self, problems: ProblemSet) -> ConformalState:
        return ConformalState(problems)

    def propose(self, plan: Plan, state: ConformalState, stream: Stream) -> tuple[Plan, ConformalState]:
        """Raises UserError if no budget is below N."""
        budgets = [budget for budget in self.budgets if budget < plan.num_rollouts]
        remedy = f"one has to be below N, which is {plan.num_rollouts} (rollouts.num_rollouts)"
        require(len(budgets) > 0, "conformal.budgets", list(self.budgets), remedy)
        generator = stream.at("calibrate").generator()
        spared = len(state.scores) >= self.least
        # Groups that later members of the chain have dropped do not calibrate any more.
        requests = [*plan.requests, *(group.request for group in plan.in_hand)]
        alive = _own_groups(request for request in requests if request.decided_by(plan.member))
        calibrating = Counter(state.calibrating) & Counter(alive)

        def verdict(request: Request) -> Verdict:
            if request.origin is Origin.STORED:
                return Verdict(True, "exempt")
            if request.origin is Origin.FRESH and not (spared and generator.random() >= self.share):
                calibrating[request.problem.id] += 1
                return Verdict(True, "calibrates", budgets[0])
            return Verdict(True, f"budget {budgets[0]}", budgets[0])

        plan = plan.decide([verdict(request) for request in plan.undecided])
        thresholds = self.thresholds(state)
        extended = {request.extends for request in plan.requests}
        steps = list(zip(budgets, [*budgets[1:], plan.num_rollouts], strict=True))
        for group in plan.in_hand:
            # Each of this member's decisions about a group in hand gave it one more budget.
            place = sum(decision.member == plan.member for decision in group.request.decisions) - 1
            if group.request.ticket in extended or not 0 <= place < len(steps):
                continue
            now, after = steps[place]
            calibrates = any(problem_id in calibrating for problem_id in _own_groups([group.request]))
            if calibrates or not self._solved(group, thresholds[place]):
                plan = plan.extend(group, after - now, f"budget {after}")
        return plan, replace(state, calibrating=dict(calibrating))

    def thresholds(self, state: ConformalState) -> list[float]:
        """q_k of every budget; 1 where nothing is known."""
        if not state.scores:
            return [1.0] * len(self.budgets)
        at_K = list(zip(*state.scores, strict=True))
        miss = accepted_miss(at_K[-1], self.margin) if self.miss is None else self.miss
        return [conformal_quantile(scores, miss) for scores in at_K[:-1]]

    def _solved(self, group: Group, threshold: float) -> bool:
        return group.num_passed > 0 and SCORES[self.score](_passed(group)) <= threshold

    def observe(self, state: ConformalState, groups: Sequence[Group], step: int) -> ConformalState:
        fresh = fresh_groups(groups, state.problems)
        whole = [_passed(group) for group in fresh if group.size and group.request.problem.id in state.calibrating]
        score = SCORES[self.score]
        scores = tuple((*(score(passed[:k]) for k in self.budgets), pass_rate_score(passed)) for passed in whole)
        observed = Counter(_own_groups(group.request for group in groups))
        return replace(
            state,
            scores=(*state.scores, *scores)[-self.window :],
            calibrating=dict(Counter(state.calibrating) - observed),
            groups=state.groups + len(fresh),
            rollouts=state.rollouts + sum(group.size for group in fresh),
        )

    def metrics(self, state: ConformalState) -> Mapping[str, float]:
        """rollouts: mean number of rollouts per fresh group so far; threshold: q at the first budget."""
        return {"rollouts": state.rollouts / max(1, state.groups), "threshold": self.thresholds(state)[0]}


def _own_groups(requests: Iterable[Request]) -> list[str]:
    """The problems of those requests that may calibrate: begun fresh, whether or not another member added a hint."""
    return [request.problem.id for request in requests if request.origin in (Origin.FRESH, Origin.HINTED)]


def _passed(group: Group) -> list[bool]:
    return [rollout.success for rollout in group.rollouts]
