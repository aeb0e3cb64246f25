"""The plan of the rollouts of a step, which controllers fill in turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from msgspec import structs

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

    A plan passes through the members of a chain in order, and through the whole chain again while requests are missing
    (a member may have dropped some). So `propose` must be idempotent: a member does not change requests on which it has
    decided (`Request.decided_by`), and adds only while `missing` is positive.

    Attributes:
        step: training step of the plan, from 0.
        wanted: number of groups to roll out, including those in flight.
        num_rollouts: N, rollouts per group.
        requests: requests chosen so far. A plan may begin with requests in flight, marked as decided by the members
            that chose them.
        skipped: problems refused so far, with the member and its reason.
        refused: number of problems that each member refused, as counted by `decide`.
        member: name of the chain member that currently holds the plan; set by the chain, recorded with each decision.
        in_hand: groups of the step so far, and groups that have waited, in the order of their requests. They are
            complete, not yet observed, and may be extended.
        reserved: slots for groups that wait: for all of them in the first pass through the chain, and for the continued
            ones in later passes.
        quotas: origin -> part of its share, from 0 to 1, that a member may use for requests of that origin; default 1.
            See `halfway.controllers.laws.slots.slots_left`.
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
        """Number of groups still to be chosen. A request that extends a group in hand adds none, unless the group has
        waited."""
        return max(0, self.open - self.reserved)

    @property
    def open(self) -> int:
        """Number of groups still to be chosen or continued."""
        return self.wanted - sum(not request.extends for request in self.requests)

    @property
    def waiting(self) -> tuple[Group, ...]:
        """Groups of earlier steps that may be continued in this one: as many as there are open slots, oldest first."""
        return tuple(group for group in self.in_hand if group.waits)[: max(0, self.open)]

    @property
    def budget(self) -> int:
        """Total rollouts of the wanted groups: N each."""
        return self.wanted * self.num_rollouts

    @property
    def undecided(self) -> tuple[Request, ...]:
        """Requests on which the current member has not decided yet."""
        return tuple(request for request in self.requests if not request.decided_by(self.member))

    @property
    def decided(self) -> tuple[Request, ...]:
        """Requests for new groups on which the current member has decided."""
        return tuple(request for request in self.requests if request.decided_by(self.member) and not request.extends)

    def free(self) -> "Plan":
        """Release the slots reserved for waiting groups that no request continues."""
        extended = {request.extends for request in self.requests}
        return replace(self, reserved=sum(g.waits and g.request.ticket in extended for g in self.in_hand))

    def add(self, requests: Sequence[Request], action: str | Sequence[str]) -> "Plan":
        """Append requests, each with a decision of the current member.

        Args:
            action: one for all requests, or one for each.
        """
        actions = [action] * len(requests) if isinstance(action, str) else action
        signed = tuple(self._sign(request, why) for request, why in zip(requests, actions, strict=True))
        return replace(self, requests=self.requests + signed)

    def extend(self, group: Group, num_rollouts: int, action: str) -> "Plan":
        """Request more rollouts of a group in hand, from the same start, which become part of it."""
        asked = group.request
        more = self._sign(asked, action, num_rollouts=num_rollouts, ticket="", extends=asked.ticket)
        return replace(self, requests=(*self.requests, more))

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
                remaining.append(self._sign(request, verdict.action, **verdict.changes))
            else:
                skipped.append(Skip(request.problem.id, self.member, verdict.action))
        refused = {**self.refused, self.member: self.refused.get(self.member, 0) + len(skipped)}
        return replace(self, requests=tuple(remaining), skipped=self.skipped + tuple(skipped), refused=refused)

    def _sign(self, request: Request, action: str, **changes: Any) -> Request:
        return structs.replace(request, decisions=(*request.decisions, Decision(self.member, action)), **changes)


class Verdict(NamedTuple):
    """Keep a request or drop it, and why (the reason is logged and counted).

    Attributes:
        num_rollouts: number of rollouts of a kept request; None = unchanged.
        hint: part of the reference solution that the policy is given; None = unchanged.
    """

    keep: bool
    action: str
    num_rollouts: int | None = None
    hint: Hint | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the request that this verdict changes."""
        changes: dict[str, Any] = {} if self.num_rollouts is None else {"num_rollouts": self.num_rollouts}
        return changes if self.hint is None else {**changes, "hint": self.hint, "origin": Origin.HINTED}
