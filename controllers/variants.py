"""Variants: new problems that resemble those which teach (ours)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halfway.controllers.laws.slots import slots_left
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group, Request
from halfway.curriculum.plan import Plan
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.tasks.variations import VARIATIONS


@dataclass(frozen=True, slots=True, eq=False)
class VariantsState:
    """Which problems teach.

    Attributes:
        parents: ids of problems that were in the band at their latest visit and have had no variant written since,
            oldest first.
        written: number of new problems so far.
        repeated: number of variations that were known already.
        reserved: number of variations that were dropped because they are held-out problems.
        rate: mean pass rate of the latest step's new problems, as far as they had rollouts.
    """

    problems: ProblemSet
    parents: tuple[str, ...] = ()
    written: int = 0
    repeated: int = 0
    reserved: int = 0
    rate: float = 0.0


@dataclass(frozen=True)
class Variants(PassRateController[VariantsState]):
    """Gives a share of every plan to new problems, each a variation of a problem whose group was in the band.

    A problem that passes about half of the time soon passes more often; others that require the same skill take its
    place. The variations are those registered for the problem's verifier, with computed answers; no model writes them,
    unlike in SvS (arXiv 2508.14029), whose band is the default. Each is proposed once, in the step that writes it. In a
    chain this controller comes before the member that chooses problems. A variation that happens to be a held-out
    problem is dropped and counted.

    Attributes:
        share: largest share of a plan that new problems get, rounded down.
        band: pass rates, both included, at which a problem is worth a variation.
        waiting: largest number of problems that may wait for their variation; the oldest are dropped first.
        most: largest number of new problems in all, since every checkpoint holds them.
    """

    share: float = 0.25
    band: tuple[float, float] = (0.125, 0.5)
    waiting: int = 256
    most: int = 10_000

    claims = frozenset({"generated"})

    def __post_init__(self) -> None:
        require(0 < self.share < 1, "variants.share", self.share, "give a share above 0 and below 1")
        low, high = self.band
        require(0 < low <= high < 1, "variants.band", self.band, "give 0 < low <= high < 1")
        for name in ("waiting", "most"):
            require(vars(self)[name] >= 1, f"variants.{name}", vars(self)[name], "give at least 1")

    def init(self, problems: ProblemSet) -> VariantsState:
        """Raises UserError if there is no variation for any of the problems."""
        verifiers, known = {problem.verifier for problem in problems}, VARIATIONS.names()
        if verifiers.isdisjoint(known):
            raise UserError(
                f"variants: problems have the verifier {', '.join(sorted(verifiers))}, and variations are there for "
                f"{', '.join(known)}; register one (curriculum/tasks/variations.py), or leave the controller out"
            )
        return VariantsState(problems)

    def propose(self, plan: Plan, state: VariantsState, stream: Stream) -> tuple[Plan, VariantsState]:
        wanted = min(slots_left(plan, self.share, Origin.GENERATED), self.most - state.written)
        known = {problem.id for problem in (*state.problems.generated, *plan.grown)} if wanted > 0 else set()
        left, written, repeated, reserved = list(state.parents), 0, 0, 0
        while wanted > 0 and left:
            parent = state.problems[state.problems.position(left.pop())]  # newest first
            made = VARIATIONS.get(parent.verifier)(parent, stream.at(parent.id))
            if made.prompt in state.problems.reserved:
                reserved += 1
                continue
            if made.id in known or made.id in state.problems or made.prompt == parent.prompt:
                repeated += 1
                continue
            request = Request(made, plan.num_rollouts, Origin.GENERATED)
            plan = plan.grow([made]).add([request], "varied")
            known.add(made.id)
            written, wanted = written + 1, wanted - 1
        return plan, replace(
            state,
            parents=tuple(left),
            written=state.written + written,
            repeated=state.repeated + repeated,
            reserved=state.reserved + reserved,
        )

    def observe(self, state: VariantsState, groups: Sequence[Group], step: int) -> VariantsState:
        parents, varied = dict.fromkeys(state.parents), VARIATIONS.names()
        for group in groups:
            problem = group.request.problem
            if group.request.origin is not Origin.FRESH:
                continue
            state.problems.position(problem.id)  # raises for a problem of another set
            parents.pop(problem.id, None)
            in_band = group.size > 0 and self.band[0] <= group.pass_rate <= self.band[1]
            if in_band and problem.verifier in varied:
                parents[problem.id] = None
        rates = [g.pass_rate for g in groups if g.request.origin is Origin.GENERATED and g.size]
        rate = sum(rates) / len(rates) if rates else state.rate
        return replace(state, parents=tuple(parents)[-self.waiting :], rate=rate)

    def grown(self, state: VariantsState, problems: ProblemSet) -> VariantsState:
        return replace(state, problems=problems)

    def metrics(self, state: VariantsState) -> Mapping[str, float]:
        """written, repeated, reserved, rate: see `VariantsState`; waiting: problems that wait for their variation."""
        counts = {name: float(getattr(state, name)) for name in ("written", "repeated", "reserved", "rate")}
        return {**counts, "waiting": float(len(state.parents))}
