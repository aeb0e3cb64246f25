"""A few rollouts first, then more where they pay: SPEED's screening and HORA's hit utility."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from halfway.controllers.laws.allocation import allocate, hit_gain
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Stream, Verdict, require


@dataclass(frozen=True, slots=True)
class PilotState:
    """Which pilot groups have been judged.

    Attributes:
        settled: tickets of groups that were judged and have not been observed yet.
        pilots, continued: numbers of pilot groups that were judged so far, and of those that were continued.
    """

    settled: tuple[str, ...] = ()
    pilots: int = 0
    continued: int = 0


@dataclass(frozen=True)
class Pilot(PassRateController[PilotState]):
    """Every request begins with a few rollouts; how many more it gets depends on how they ended.

    - "speed", SPEED (arXiv 2506.09016): a group whose rollouts neither all passed nor all failed is continued; others
      are not. Both parts train. As published, the second part waits for the next generation batch, so that two policies
      wrote the group, and whatever waits is lost at a restart; here it follows in the same step. The paper's 7B script
      has 4 + 20 rollouts, and the code's own default is 12 more; here the rest of N follows.
    - "hora", HORA (arXiv 2605.07114): the rollouts that the pilots leave of N per group go where they are most likely
      to produce a success (`hit_utility`), by the posterior under a uniform prior. The greedy choice is exact, since
      gains fall. No code is published.

    Attributes:
        initial: number of rollouts of a pilot, below N.
        more: for "speed": number of further rollouts; 0 = up to N in all.
    """

    kind: Literal["speed", "hora"] = "speed"
    initial: int = 4
    more: int = 0

    claims = frozenset({"rounds", "rollouts"})
    needs = frozenset({"rounds", "rollouts"})

    def __post_init__(self) -> None:
        least = 2 if self.kind == "speed" else 1
        require(self.initial >= least, "pilot.initial", self.initial, f"give at least {least}")
        require(self.more >= 0, "pilot.more", self.more, "give 0 (= up to N) or more")
        fits = self.more == 0 or self.kind == "speed"
        require(fits, "pilot.more", self.more, "kind=hora shares out what is left of N each; remove this, or use speed")

    def init(self, problems: ProblemSet) -> PilotState:
        return PilotState()

    def propose(self, plan: Plan, state: PilotState, stream: Stream) -> tuple[Plan, PilotState]:
        """Raises UserError if a pilot would take all of N."""
        remedy = f"a pilot is below N, which is {plan.num_rollouts} (rollouts.num_rollouts)"
        require(self.initial < plan.num_rollouts, "pilot.initial", self.initial, remedy)
        new = [request.origin is not Origin.STORED for request in plan.undecided]
        plan = plan.decide([Verdict(True, "pilot", self.initial) if it else Verdict(True, "exempt") for it in new])
        ours = [group for group in plan.in_hand if group.request.decided_by(plan.member)]
        pilots = [group for group in ours if group.request.ticket not in state.settled]
        more_G = self._more(pilots, plan.num_rollouts)
        for group, more in zip(pilots, more_G, strict=True):
            plan = plan.extend(group, more, "goes on") if more else plan
        return plan, PilotState(
            settled=(*state.settled, *(group.request.ticket for group in pilots)),
            pilots=state.pilots + len(pilots),
            continued=state.continued + sum(more > 0 for more in more_G),
        )

    def _more(self, pilots: Sequence[Group], size: int) -> list[int]:
        """Further rollouts of each group."""
        if self.kind == "speed":
            return [0 if group.zero_variance else self.more or size - self.initial for group in pilots]
        budget = len(pilots) * (size - self.initial)
        return allocate(
            budget,
            [0] * len(pilots),
            [budget] * len(pilots),
            lambda i, more: hit_gain(pilots[i].num_passed, pilots[i].size, more),
        )

    def observe(self, state: PilotState, groups: Sequence[Group], step: int) -> PilotState:
        whole = {group.request.ticket for group in groups}
        return replace(state, settled=tuple(ticket for ticket in state.settled if ticket not in whole))

    def metrics(self, state: PilotState) -> Mapping[str, float]:
        """pilots: number judged so far; continued: how many of them got more rollouts."""
        return {"pilots": float(state.pilots), "continued": float(state.continued)}
