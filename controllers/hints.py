"""Hints: rollouts start with the beginning of the reference solution, for as long as the problem needs it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halfway.controllers.prefixes.hint_cuts import trial_of, zero_variance_tries
from halfway.controllers.prefixes.hint_lengths import HintLengths, HintsState
from halfway.curriculum import Group, Origin, PassRateController, Plan, Request, Stream, Verdict


@dataclass(frozen=True)
class Hints(HintLengths, PassRateController[HintsState]):
    """Gives fresh requests, whichever member chose them, the beginning of the problem's reference solution.

    - "reverse", ours: one hint length per problem, which follows the outcomes of its groups (see `step_length`).
    - "shared", ours: problems of one category are left the same number of units to do, which follows all their groups
      (see `units_left`), so that a problem's first hint already suits its category.
    - "adaprefix", after AdaPrefix-GRPO (arXiv 2607.07674): the share of its solution that a problem is left follows its
      own groups, left <- left + gain (pass rate - target) between 0 and 1 (`units_left`). After `stage_steps` steps
      hints are withdrawn: the largest share falls to nothing in as many steps again. The law and its numbers are ours;
      the abstract only says that success is held near one half and that the prefix is then withdrawn.
    - "schedule", QuestA (arXiv 2507.13266): the share of the stage; published: half of the characters, later a quarter,
      in the prompt, none below 10 characters, changed by hand. Here a stage lasts `stage_steps` steps.
    - "ghpo" (arXiv 2507.10628): a problem that nobody passes is tried again in the same step with `shares[0]` of its
      solution; half, as in the released script.
    - "seele" (arXiv 2509.06923): a logistic curve through a problem's outcomes with hints of different lengths gives
      the length that makes it pass `target` of the time; zero-variance groups are tried again in the same step.
      Published: the rounds of a step share one baseline; here each hint length is a group of its own.

    A problem without a solution is left alone and counted. Hinted groups say nothing about the problem itself.

    Attributes:
        place: "response" = the response begins with the hint, which is not trained on; "prompt" = it follows that.
        separator, width, shortest: where hints end, see `Cuts`; separator "\\n" for whole lines.
        low, high: for "reverse": pass rates at or below which a hint grows, and at or above which it shrinks.
        shares: shares of the solution: for "schedule" one per stage, the last stays; for "ghpo" the first.
        stage_steps: for "schedule": training steps in each stage; for "adaprefix": steps before hints are withdrawn,
            and during which they are.
        category: for "shared": the feature of the problems that names their category.
        gain: by how much a hint changes for each unit of pass rate off the target: for "shared" in units, for
            "adaprefix" as a share of the solution.
        target: for "shared", "adaprefix" and "seele": the pass rate aimed at.
        forget: for "seele": share of its weight that a group loses with every later group of its problem.
        tries: for "ghpo" and "seele": most further groups of one problem in one step.
    """

    claims = frozenset({"hints"})

    @property
    def needs(self) -> frozenset[str]:
        rounds = {"rounds"} if self.kind in ("ghpo", "seele") else set()
        feature = {f"feature:{self.category}"} if self.kind == "shared" else set()
        return frozenset({"hints", "solutions"} | rounds | feature)

    def propose(self, plan: Plan, state: HintsState, stream: Stream) -> tuple[Plan, HintsState]:
        verdicts = [self._judge(request, state, plan.step) for request in plan.undecided]
        # Whoever holds a group over a step tries it again.
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
        """The request for another group of a problem whose latest group in hand had zero variance; none otherwise."""
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
        request = Verdict(True, "again", hint=hint).apply(Request(problem, plan.num_rollouts))
        return [] if hint == group.request.hint else [request]

    def observe(self, state: HintsState, groups: Sequence[Group], step: int) -> HintsState:
        return self.learn(state, groups)

    def metrics(self, state: HintsState) -> Mapping[str, float]:
        """hinted, plain, again, no_solution: requests so far; length: mean number of units of the next hint (reverse);
        left: mean over categories of the units left to do (shared), or over problems of the share (adaprefix)."""
        counts = {name: float(state.counts.get(name, 0)) for name in ("hinted", "plain", "again", "no_solution")}
        left = {"left": float(state.left_C.mean())} if len(state.left_C) else {}
        return {**counts, "length": float(state.length_P.mean()), **left}
