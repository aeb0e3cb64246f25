"""The plan of a step's rollouts, which controllers pass along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from halfway.curriculum.groups import Decision, Group, Request
from halfway.curriculum.prefix import Hint
from halfway.curriculum.rollouts import Origin


class Skip(NamedTuple):
    """A problem that a member refused to roll out."""

    problem_id: str
    member: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The number of groups wanted and the requests chosen so far.

    A plan goes through the members of a chain in order, and through the whole chain again while requests are missing (a
    member may have dropped some). So `propose` must be idempotent: a member leaves alone the requests on which it has
    decided (`Request.decided_by`), and adds only while `missing` is positive.

    Attributes:
        step: the training step the plan is for, counted from 0.
        wanted: number of groups to roll out, including those in flight.
        num_rollouts: N, rollouts per group.
        requests: requests chosen so far. A plan may begin with requests in flight, decided by the members that chose
            them.
        skipped: problems refused so far, with the member and its reason.
        refused: how many of those each member refused, as `decide` counts them.
        member: name of the chain member that holds the plan now; set by the chain, signed under each decision.
        in_hand: the step's groups so far, and those that have waited, in the order they were asked for. They are
            complete, have not been observed and may be extended.
        reserved: slots for groups that wait: for all of them at first, and from the second time on that the plan goes
            through the chain for those that are continued.
        quotas: what part of its own share, from 0 to 1, a member may take for requests of an origin; all of it if the
            origin is not named. See `halfway.controllers.laws.slots.slots_left`.
    """

    step: int
    wanted: int
    num_rollouts: int
    requests: tuple[Request, ...] = ()
    skipped: tuple[Skip, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    member: str = ""
    in_hand: tuple[Group, ...] = ()
    reserved: int = 0
    quotas: Mapping[Origin, float] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Number of groups still to be chosen. A request that extends a group in hand adds no group, unless that has
        waited."""
        return max(0, self.open - self.reserved)

    @property
    def open(self) -> int:
        """Number of groups that the requests leave to be chosen or continued."""
        return self.wanted - sum(not request.extends for request in self.requests)

    @property
    def waiting(self) -> tuple[Group, ...]:
        """Groups of earlier steps that may be continued in this one: as many as slots are open, the oldest first."""
        return tuple(group for group in self.in_hand if group.waits)[: max(0, self.open)]

    @property
    def budget(self) -> int:
        """Number of rollouts that the wanted groups may have together: N each."""
        return self.wanted * self.num_rollouts

    @property
    def undecided(self) -> tuple[Request, ...]:
        """Requests on which the member that holds the plan has not decided yet."""
        return tuple(request for request in self.requests if not request.decided_by(self.member))

    @property
    def decided(self) -> tuple[Request, ...]:
        """Requests for groups of their own on which the member that holds the plan has decided."""
        return tuple(request for request in self.requests if request.decided_by(self.member) and not request.extends)

    def free(self) -> "Plan":
        """The plan without reserved slots for groups that wait and that no request continues."""
        extended = {request.extends for request in self.requests}
        return replace(self, reserved=sum(g.waits and g.request.ticket in extended for g in self.in_hand))

    def add(self, requests: Sequence[Request], action: str | Sequence[str]) -> "Plan":
        """Append requests, each signed by the member that holds the plan.

        Args:
            action: of all of them, or of each.
        """
        actions = [action] * len(requests) if isinstance(action, str) else action
        signed = tuple(self._sign(request, why) for request, why in zip(requests, actions, strict=True))
        return replace(self, requests=self.requests + signed)

    def extend(self, group: Group, num_rollouts: int, action: str) -> "Plan":
        """Ask for more rollouts of a group in hand, from the same start. They become part of it."""
        asked = group.request
        more = replace(asked, num_rollouts=num_rollouts, ticket="", extends=asked.ticket)
        return replace(self, requests=(*self.requests, self._sign(more, action)))

    def decide(self, verdicts: "Sequence[Verdict]") -> "Plan":
        """Keep, change or drop the `undecided` requests.

        Args:
            verdicts: one for each of `undecided`, in that order.
        """
        remaining: list[Request] = []
        skipped: list[Skip] = []
        given = iter(verdicts)
        for request in self.requests:
            if request.decided_by(self.member):
                remaining.append(request)
                continue
            verdict = next(given)
            if verdict.keep:
                remaining.append(self._sign(verdict.apply(request), verdict.action))
            else:
                skipped.append(Skip(request.problem.id, self.member, verdict.action))
        refused = {**self.refused, self.member: self.refused.get(self.member, 0) + len(skipped)}
        return replace(self, requests=tuple(remaining), skipped=self.skipped + tuple(skipped), refused=refused)

    def _sign(self, request: Request, action: str) -> Request:
        return replace(request, decisions=(*request.decisions, Decision(self.member, action)))


class Verdict(NamedTuple):
    """Keep a request or drop it, and why (the reason is logged and counted).

    Attributes:
        num_rollouts: how many rollouts a kept request gets; None = as many as it has.
        hint: the part of the reference solution that its rollouts are given; None = unchanged.
    """

    keep: bool
    action: str
    num_rollouts: int | None = None
    hint: Hint | None = None

    def apply(self, request: Request) -> Request:
        """The request as this verdict changes it."""
        if self.num_rollouts is not None:
            request = replace(request, num_rollouts=self.num_rollouts)
        if self.hint is not None:
            request = replace(request, hint=self.hint, origin=Origin.HINTED)
        return request
