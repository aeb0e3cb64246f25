"""Pilot groups of a few rollouts, of which the promising are continued: SPEED, HORA and Pilot-Commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from halfway.controllers.laws.rollout_budget import allocate, hit_gain
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, Verdict, require

PILOT, COMMIT = "pilot", "commit"


@dataclass(frozen=True, slots=True)
class PilotState:
    """Which pilot groups have been judged.

    Attributes:
        settled: tickets of groups that were judged but not yet observed.
        pilots, continued: numbers of pilot groups judged so far, and of those continued.
        too_easy, too_hard, evicted: under "commit", numbers of pilots above and below the band, and of pilots in the
            band that waited too long.
    """

    settled: tuple[str, ...] = ()
    pilots: int = 0
    continued: int = 0
    too_easy: int = 0
    too_hard: int = 0
    evicted: int = 0


@dataclass(frozen=True)
class Pilot(PassRateController[PilotState]):
    """Starts every group with a few rollouts; their outcomes decide how many more it gets.

    - "speed", SPEED (arXiv 2506.09016): mixed groups are continued, others are not. Both parts train. In the published
      code the second part waits for the next generation batch, so two policies sample one group, and a restart loses
      the groups that wait; here it follows in the same step. The paper's 7B script samples 4 + 20 rollouts, and the
      code's default is 12 more; here the rest of N follows.
    - "hora", HORA (arXiv 2605.07114): the rest of the N rollouts per group goes to the groups in which a success is
      most likely (`hit_utility`), by the posterior under a uniform prior. Greedy allocation is optimal, since gains
      fall. No code is published.
    - "commit", Pilot-Commit (arXiv 2605.26606): groups with a pass rate within `band` are continued in the next batch,
      at most `commits` per step, oldest first; the others wait, and are evicted when older than `patience`. Groups
      outside the band do not train: those above are skipped, those below are tried again in the next epoch. The
      published code draws the waiting groups at random and beside the pilots (here a group that waited takes a pilot's
      place), evicts all of them at the end of an epoch, and excludes all-passed problems for good, here `retire:
      {above: 1, returns: null}`. Published for Qwen3-4B: N = 64, 16 of them the pilot; three pilots per group that
      trains (fill.policy=refill); and as many commits as the batch lacks, so set `commits` to fill.groups.

    Attributes:
        initial: rollouts of a pilot, below N.
        more: for "speed" and "commit": further rollouts; 0 = up to N in total.
        band: for "commit": lowest and highest pass rate of a continued pilot.
        commits: for "commit": maximum number of groups continued per step; 0 = all.
        patience: for "commit": a waiting group older than this many steps at the end of a step is evicted.
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
        require(fits, "pilot.more", self.more, "kind=hora has no limit; remove this, or use kind=speed")
        low, high = self.band
        require(0 <= low <= high <= 1, "pilot.band", list(self.band), "give two pass rates, the lower one first")
        for name in ("commits", "patience"):
            require(vars(self)[name] >= 0, f"pilot.{name}", vars(self)[name], "give 0 or more")
        default = {option.name: option.default for option in fields(self)}
        for name in ("band", "commits", "patience"):
            apt = self.kind == "commit" or vars(self)[name] == default[name]
            remedy = "it belongs to kind=commit; set that kind, or remove the option"
            require(apt, f"pilot.{name}", vars(self)[name], remedy)

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
        """Add the groups that are continued next to the plan, those that waited longest first."""
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
        room = self.commits - sum(
            _has_decision(COMMIT, request) for request in (*drawn, *(group.request for group in ours))
        )
        for group in candidates[: max(0, room) if self.commits else None]:
            plan = plan.extend(group, self.more or plan.num_rollouts - self.initial, COMMIT)
        return plan

    def _in_band(self, group: Group) -> bool:
        low, high = self.band
        return group.size > 0 and low <= group.pass_rate <= high

    def hold(self, groups: Sequence[Group], state: PilotState, step: int, stream: Stream) -> Sequence[bool]:
        return [self._waits_for_turn(group) and step - group.request.step <= self.patience for group in groups]

    def _waits_for_turn(self, group: Group) -> bool:
        undecided = _has_decision(PILOT, group.request) and not _has_decision(COMMIT, group.request)
        return self.kind == "commit" and undecided and self._in_band(group)

    def weigh(self, groups: Sequence[Group], state: PilotState, stream: Stream) -> Sequence[Group]:
        """Pilots that were not continued do not train."""
        if self.kind != "commit":
            return groups
        return [
            group.with_weights([0.0] * group.size)
            if _has_decision(PILOT, group.request) and not _has_decision(COMMIT, group.request)
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
        pilots = [group for group in groups if group.size and _has_decision(PILOT, group.request)]
        left = [group for group in pilots if not _has_decision(COMMIT, group.request)]
        return replace(
            state,
            pilots=state.pilots + len(pilots),
            continued=state.continued + len(pilots) - len(left),
            too_easy=state.too_easy + sum(group.pass_rate > self.band[1] for group in left),
            too_hard=state.too_hard + sum(group.pass_rate < self.band[0] for group in left),
            evicted=state.evicted + sum(map(self._in_band, left)),
        )

    def metrics(self, state: PilotState) -> Mapping[str, float]:
        """pilots, continued and, under "commit", too_easy, too_hard, evicted: see `PilotState`."""
        names = ("pilots", "continued", *(("too_easy", "too_hard", "evicted") if self.kind == "commit" else ()))
        return self.shown(state, *names)


def _has_decision(action: str, request: Request) -> bool:
    return any(decision.action == action for decision in request.decisions)
