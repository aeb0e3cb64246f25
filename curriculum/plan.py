"""What is about to be rolled out: requests, and the plan that controllers pass along."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from halfway.curriculum.prefix import Prefix
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Origin


class Decision(NamedTuple):
    """What one member of a chain did to a request, for the decision log."""

    member: str
    action: str


class Skip(NamedTuple):
    """A problem that a member refused to roll out."""

    problem_id: str
    member: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One problem, where to start from, and how often to try it. All rollouts of a request start from one state."""

    problem: Problem
    num_rollouts: int
    origin: Origin = Origin.FRESH
    prefix: Prefix | None = None
    decisions: tuple[Decision, ...] = ()

    def decided_by(self, member: str) -> bool:
        return any(decision.member == member for decision in self.decisions)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How many groups are wanted and which requests were chosen so far.

    A plan goes through the members of a chain in order, and through the whole chain again while requests are
    missing (a member may have dropped some). So `propose` must be idempotent: a member leaves alone what it
    has decided on already (`Request.decided_by`), and adds only while `missing` is positive.

    Attributes:
        step: the training step the plan is for, counted from 0.
        wanted: number of groups to roll out.
        num_rollouts: N, rollouts a group.
        requests: chosen so far.
        skipped: refused so far, with who and why.
        member: name of the chain member that holds the plan now; set by the chain, signed under each decision.
    """

    step: int
    wanted: int
    num_rollouts: int
    requests: tuple[Request, ...] = ()
    skipped: tuple[Skip, ...] = ()
    member: str = ""

    @property
    def missing(self) -> int:
        return max(0, self.wanted - len(self.requests))

    @property
    def undecided(self) -> tuple[Request, ...]:
        """Requests on which the member that holds the plan has not decided yet."""
        return tuple(request for request in self.requests if not request.decided_by(self.member))

    def add(self, requests: Sequence[Request], action: str) -> "Plan":
        """Append requests, each signed by the member that holds the plan."""
        return replace(self, requests=self.requests + tuple(self._signed(request, action) for request in requests))

    def decide(self, verdicts: "Sequence[Verdict]") -> "Plan":
        """Keep or drop the `undecided` requests.

        Args:
            verdicts: one for each of `undecided`, in that order.
        """
        verdict_of = {id(request): verdict for request, verdict in zip(self.undecided, verdicts, strict=True)}
        kept: list[Request] = []
        skipped: list[Skip] = []
        for request in self.requests:
            verdict = verdict_of.get(id(request))
            if verdict is None:
                kept.append(request)
            elif verdict.keep:
                kept.append(self._signed(request, verdict.action))
            else:
                skipped.append(Skip(request.problem.id, self.member, verdict.action))
        return replace(self, requests=tuple(kept), skipped=self.skipped + tuple(skipped))

    def _signed(self, request: Request, action: str) -> Request:
        return replace(request, decisions=(*request.decisions, Decision(self.member, action)))


class Verdict(NamedTuple):
    """Keep a request or drop it, and why (the reason is logged and counted)."""

    keep: bool
    action: str
