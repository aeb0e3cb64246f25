"""Hints: rollouts start with the beginning of the reference solution while the problem needs it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halfway.controllers.prefixes.hint_cuts import trial_of, zero_variance_tries
from halfway.controllers.prefixes.hint_lengths import HintLengths, HintsState
from halfway.curriculum import Group, Origin, PassRateController, Plan, Request, Stream, Verdict


@dataclass(frozen=True)
class Hints(HintLengths, PassRateController[HintsState]):
    """Starts fresh requests with the beginning of the problem's reference solution.

    - "reverse", ours: one hint length per problem, which follows the outcomes of its groups (see `step_length`).
    - "shared", ours: one number of units left to generate per category, which follows all groups of the category (see
      `units_left`), so that even the first hint of a problem suits its category.
    - "adaprefix", after AdaPrefix-GRPO (arXiv 2607.07674): the share of the solution left to generate follows the
      groups of the problem, left <- left + gain (pass rate - target) between 0 and 1 (`units_left`). After
      `stage_steps` steps hints are withdrawn: the largest share of a hint falls to 0 over another `stage_steps` steps.
      The law and its numbers are ours; the abstract only says that the pass rate is held near one half and that the
      prefix is then withdrawn.
    - "schedule", QuestA (arXiv 2507.13266): one share of the solution per stage. Published: half of the characters,
      later a quarter, placed in the prompt; no hint below 10 characters; stages changed by hand. Here a stage lasts
      `stage_steps` steps.
    - "ghpo" (arXiv 2507.10628): an all-failed problem gets another group in the same step, with `shares[0]` of its
      solution as the hint; half, as in the released script.
    - "seele" (arXiv 2509.06923): a logistic curve is fitted to pass rate against hint length; it gives the length at
      which the problem should pass at rate `target`. A problem whose group had zero variance gets another group in the
      same step. Published: the rounds of a step share one baseline; here each hint length is its own group.

    A problem without a solution gets no hint and is counted. Hinted groups are no evidence on the pass rate of the
    problem without a hint.

    Attributes:
        place: "response" = the response begins with the hint, which is not trained on; "prompt" = the hint is appended
            to the prompt.
        separator, width, shortest: where hints may end, see `Cuts`; separator "\\n" = at line ends.
        low, high: for "reverse": pass rates at or below which a hint grows, and at or above which it shrinks.
        shares: shares of the solution: "schedule" uses one per stage and keeps the last; "ghpo" uses the first.
        stage_steps: for "schedule": training steps per stage; for "adaprefix": steps before the withdrawal of hints,
            and steps that it takes.
        category: for "shared": the problem feature that names the category.
        gain: change of a hint per unit of pass rate off the target: in units for "shared", as a share of the solution
            for "adaprefix".
        target: for "shared", "adaprefix" and "seele": target pass rate.
        forget: for "seele": share of its weight that a group loses with every later group of the same problem.
        tries: for "ghpo" and "seele": maximum number of further groups of one problem in one step.
    """

    claims = frozenset({"hints"})

    @property
    def needs(self) -> frozenset[str]:
        rounds = {"rounds"} if self.kind in ("ghpo", "seele") else set()
        feature = {f"feature:{self.category}"} if self.kind == "shared" else set()
        return frozenset({"hints", "solutions"} | rounds | feature)

    def propose(self, plan: Plan, state: HintsState, stream: Stream) -> tuple[Plan, HintsState]:
        verdicts = [self._judge(request, state, plan.step) for request in plan.undecided]
        # The member that holds a group over a step requests its next rollouts.
        own = [g for g in plan.in_hand if g.request.origin in (Origin.FRESH, Origin.HINTED) and not g.earlier]
        hand = [g for g in own if g.request.problem.solution] if "rounds" in self.needs else []
        again = [request for group in hand for request in self._again(group, plan, state)]
        counts = Counter(state.counts) + Counter([verdict.action for verdict in verdicts] + ["again"] * len(again))
        return plan.decide(verdicts).add(again, "again"), replace(state, counts=dict(counts))

    def _judge(self, request: Request, state: HintsState, step: int) -> Verdict:
        problem = request.problem
        if request.origin is not Origin.FRESH or not problem.solution:
            return Verdict(True, "no_solution" if request.origin is Origin.FRESH else "exempt")
        hint = self.cuts.hint(problem, self.length(problem, state, step))
        return Verdict(True, "hinted" if hint else "plain", hint=hint)

    def _again(self, group: Group, plan: Plan, state: HintsState) -> list[Request]:
        """A request for another group, if the latest group of the problem in hand has zero variance; otherwise none."""
        problem = group.request.problem
        tried = zero_variance_tries(group, plan, self.tries + 1)
        if not tried:
            return []
        if self.kind == "seele":
            length = self.aim(problem, (*state.trials.get(problem.id, ()), *map(trial_of, tried)))
        elif any(earlier.num_passed for earlier in tried):
            return []  # it passes without a hint, or with one it does not teach
        else:
            length = self.cuts.units(problem, self.shares[0])
        hint = self.cuts.hint(problem, length)
        request = Request(problem, plan.num_rollouts, **Verdict(True, "again", hint=hint).changes)
        return [] if hint == group.request.hint else [request]

    def observe(self, state: HintsState, groups: Sequence[Group], step: int) -> HintsState:
        return self.learn(state, groups)

    def metrics(self, state: HintsState) -> Mapping[str, float]:
        """hinted, plain, again, no_solution: requests so far; length: mean units of the next hint (reverse); left: mean
        over categories of the units left to generate (shared), or over problems of the share (adaprefix)."""
        counts = {name: float(state.counts.get(name, 0)) for name in ("hinted", "plain", "again", "no_solution")}
        left = {"left": float(state.left_C.mean())} if len(state.left_C) else {}
        return {**counts, "length": float(state.length_P.mean()), **left}
