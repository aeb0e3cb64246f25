"""A few rollouts first, then more where they pay: SPEED, HORA and Pilot-Commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from halfway.controllers.laws.allocation import allocate, hit_gain
from halfway.curriculum import (
    Group,
    Origin,
    PassRateController,
    Plan,
    ProblemSet,
    Request,
    Stream,
    Verdict,
    require,
)

PILOT, COMMIT = "pilot", "commit"


@dataclass(frozen=True, slots=True)
class PilotState:
    """Which pilot groups have been judged.

    Attributes:
        settled: tickets of groups that were judged and have not been observed yet.
        pilots, continued: numbers of pilot groups that were judged so far, and of those that were continued.
        too_easy, too_hard, evicted: under "commit", numbers of pilots above and below the band, and of those within it
            that waited too long.
    """

    settled: tuple[str, ...] = ()
    pilots: int = 0
    continued: int = 0
    too_easy: int = 0
    too_hard: int = 0
    evicted: int = 0


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
    - "commit", Pilot-Commit (arXiv 2605.26606): a group whose pass rate is within `band` is continued in the next batch
      that is drawn, at most `commits` of them in a step; the others wait for their turn, or are evicted at the age of
      `patience`. Groups outside the band do not train: those above are skipped, those below come again in the next
      epoch. The code excludes for good whatever passes every time, which is `retire: {above: 1, returns: null}`, and
      evicts all at the end of an epoch. Published for Qwen3-4B: N = 64, of which 16 are the pilot; three times as many
      pilots as groups that train (fill.policy=refill); and as many commits as the batch lacks, so set `commits` to
      fill.groups.

    Attributes:
        initial: number of rollouts of a pilot, below N.
        more: for "speed" and "commit": number of further rollouts; 0 = up to N in all.
        band: for "commit": the lowest and the highest pass rate of a pilot that is continued.
        commits: for "commit": largest number of groups continued in a step; 0 = all.
        patience: for "commit": a group that is more than so many steps old at the end of a step is evicted.
    """

    kind: Literal["speed", "hora", "commit"] = "speed"
    initial: int = 4
    more: int = 0
    band: tuple[float, float] = (0.125, 0.75)
    commits: int = 0
    patience: int = 4

    claims = frozenset({"rounds", "rollouts"})

    def __post_init__(self) -> None:
        least = 1 if self.kind == "hora" else 2
        require(self.initial >= least, "pilot.initial", self.initial, f"give at least {least}")
        require(self.more >= 0, "pilot.more", self.more, "give 0 (= up to N) or more")
        fits = self.more == 0 or self.kind != "hora"
        require(fits, "pilot.more", self.more, "kind=hora shares out what is left of N each; remove this, or use speed")
        low, high = self.band
        require(0 <= low <= high <= 1, "pilot.band", list(self.band), "give two pass rates, the lower one first")
        for name in ("commits", "patience"):
            require(vars(self)[name] >= 0, f"pilot.{name}", vars(self)[name], "give 0 or more")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"waits", "rollouts", "weights"} if self.kind == "commit" else {"rounds", "rollouts"})

    def init(self, problems: ProblemSet) -> PilotState:
        return PilotState()

    def propose(self, plan: Plan, state: PilotState, stream: Stream) -> tuple[Plan, PilotState]:
        """Raises UserError if a pilot would take all of N."""
        remedy = f"a pilot is below N, which is {plan.num_rollouts} (rollouts.num_rollouts)"
        require(self.initial < plan.num_rollouts, "pilot.initial", self.initial, remedy)
        new = [request.origin is not Origin.STORED for request in plan.undecided]
        plan = plan.decide([Verdict(True, PILOT, self.initial) if it else Verdict(True, "exempt") for it in new])
        ours = [group for group in plan.in_hand if group.request.decided_by(plan.member)]
        if self.kind == "commit":
            return self._commit(plan, ours), state
        pilots = [group for group in ours if group.request.ticket not in state.settled]
        more_G = self._more(pilots, plan.num_rollouts)
        for group, more in zip(pilots, more_G, strict=True):
            plan = plan.extend(group, more, "goes on") if more else plan
        return plan, replace(
            state,
            settled=(*state.settled, *(group.request.ticket for group in pilots)),
            pilots=state.pilots + len(pilots),
            continued=state.continued + sum(more > 0 for more in more_G),
        )

    def _commit(self, plan: Plan, ours: Sequence[Group]) -> Plan:
        """The plan with the groups that are continued next: those that have waited first."""
        extended = {request.extends for request in plan.requests}
        waiting = {group.request.ticket for group in plan.waiting}
        candidates = [
            group
            for group in ours
            if self._waits_for_turn(group)
            and group.request.ticket not in extended
            and (group.request.ticket in waiting or not group.waits)
        ]
        drawn = [r for r in plan.requests if r.extends and (not r.ticket or r.step == plan.step)]
        room = self.commits - sum(map(_committed, (*drawn, *(group.request for group in ours))))
        for group in candidates[: max(0, room) if self.commits else None]:
            plan = plan.extend(group, self.more or plan.num_rollouts - self.initial, COMMIT)
        return plan

    def _in_band(self, group: Group) -> bool:
        low, high = self.band
        return group.size > 0 and low <= group.pass_rate <= high

    def hold(self, groups: Sequence[Group], state: PilotState, step: int, stream: Stream) -> Sequence[bool]:
        return [self._waits_for_turn(group) and step - group.request.step <= self.patience for group in groups]

    def _waits_for_turn(self, group: Group) -> bool:
        undecided = _piloted(group.request) and not _committed(group.request)
        return self.kind == "commit" and undecided and self._in_band(group)

    def weigh(self, groups: Sequence[Group], state: PilotState, stream: Stream) -> Sequence[Group]:
        """Pilots that were not continued do not train."""
        if self.kind != "commit":
            return groups
        return [
            group.with_weights([0.0] * group.size)
            if _piloted(group.request) and not _committed(group.request)
            else group
            for group in groups
        ]

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
        state = replace(state, settled=tuple(ticket for ticket in state.settled if ticket not in whole))
        if self.kind != "commit":
            return state
        pilots = [group for group in groups if group.size and _piloted(group.request)]
        left = [group for group in pilots if not _committed(group.request)]
        return replace(
            state,
            pilots=state.pilots + len(pilots),
            continued=state.continued + len(pilots) - len(left),
            too_easy=state.too_easy + sum(group.pass_rate > self.band[1] for group in left),
            too_hard=state.too_hard + sum(group.pass_rate < self.band[0] for group in left),
            evicted=state.evicted + sum(map(self._in_band, left)),
        )

    def metrics(self, state: PilotState) -> Mapping[str, float]:
        """pilots: number judged so far; continued: how many of them got more rollouts; and, under "commit", too_easy,
        too_hard, evicted: see `PilotState`."""
        names = ("pilots", "continued", *(("too_easy", "too_hard", "evicted") if self.kind == "commit" else ()))
        return {name: float(getattr(state, name)) for name in names}


def _piloted(request: Request) -> bool:
    return any(decision.action == PILOT for decision in request.decisions)


def _committed(request: Request) -> bool:
    return any(decision.action == COMMIT for decision in request.decisions)
