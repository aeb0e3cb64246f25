"""Runs a chain in any trainer: requests go out, outcomes come in, and once per step the chain observes.

The trainer draws tickets, rolls out their requests, records the outcomes (in any order, also in pieces), and commits
once per training step:

    session = Session(problems, chain(("uniform", Uniform()), ("greso", Greso())), num_rollouts=8, seed=0)
    for ticket in session.next_batch(64):
        session.record_counts(ticket.id, passed=..., size=8)
    session.commit()

Halfway's own loop does the same.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from halfway.curriculum.controller import NEEDS, PassRateController, belief_errors, members_of, propose_until_full
from halfway.curriculum.groups import Group, Request
from halfway.curriculum.plan import Plan, Skip
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.rollouts import NO_TOKENS, IntArray, Rollout, Unit
from halfway.curriculum.states import Get, Put, from_plain, require_savable, restore_state, save_state, to_plain
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError

ALWAYS_PROVIDED = frozenset(NEEDS) - {"values", "generated", "solutions", "measured"}
"""Needs that Halfway's own loop always meets. The others depend on the problems, on a critic, or on rollouts outside
the budget."""

PASSED, FAILED = Rollout((), success=True), Rollout((), success=False)
"""Rollouts of which only the outcome is known."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that the trainer has drawn."""

    request: Request

    @property
    def id(self) -> str:
        """Id to keep with the row and return with the rewards."""
        return self.request.ticket


class Session:
    """Drives a chain through a run.

    Every random draw is addressed by the number of commits so far and of batches drawn since the last. So trainers that
    record everything before they commit get the same decisions for the same outcomes; a trainer that records late gets
    the same decisions for the same order of events.

    Requests in flight come first in the next plan, marked as decided by the members that chose them, so no member
    chooses them twice. An extended group is observed when it is complete, and a held group (`PassRateController.hold`)
    when no member holds it any more.

    Attributes:
        state: the controller's state.
        step: number of commits so far.
        round: number of batches drawn since the last commit.
        skipped: problems refused since the last commit, each with its round.
    """

    def __init__(
        self,
        problems: ProblemSet,
        controller: PassRateController[Any],
        num_rollouts: int,
        seed: int = 0,
        provides: Collection[str] = ALWAYS_PROVIDED,
        host: str = "this trainer",
        trains_truncated: bool = True,
    ):
        """
        Args:
            num_rollouts: N, rollouts per group unless a controller says otherwise.
            provides: the `NEEDS` that the trainer meets. Generated problems, reference solutions and features are
                looked up in `problems`.
            host: name of the trainer, for messages.
            trains_truncated: true = the learner trains on truncated rollouts; for members that choose rollouts.

        Raises:
            UserError: if the trainer or the problems lack something that a controller needs, or a state cannot be
                saved.
        """
        require_needs(controller, problems, provides, host)
        self._fingerprint = problems.fingerprint()
        features = {need.removeprefix("feature:") for need in controller.needs if need.startswith("feature:")}
        self._features = {feature: problems.feature_fingerprint(feature) for feature in sorted(features)}
        self.problems, self.controller, self.num_rollouts = problems, controller, num_rollouts
        self.state: Any = controller.init(problems)
        require_savable(self.state)
        self._errors: dict[str, float] = {}
        self.step = self.round = 0
        self.skipped: list[tuple[int, Skip]] = []
        self._stream = Stream(seed)
        self._trains_truncated = trains_truncated
        self._groups: dict[str, Group] = {}  # what has come back for each ticket, in the order they were drawn
        self._reissued: list[str] = []

    @property
    def continues(self) -> bool:
        """True if the chain may request more rollouts of groups in hand even when no more groups are wanted."""
        return "rounds" in self.controller.needs

    def next_batch(self, wanted: int) -> list[Ticket]:
        """Requests for up to `wanted` more groups, and for more rollouts of groups in hand.

        The list is shorter if the chain has no more to propose. Tickets of an interrupted run that are still in flight
        come first. A request with `stored` is not rolled out: its group trains again, and nothing is recorded for it.
        """
        again = []
        while self._reissued and (wanted or not self._takes_slot(self._reissued[0])):
            ticket = self._reissued.pop(0)
            again.append(Ticket(self._groups[ticket].request))
            wanted -= self._takes_slot(ticket)
        if wanted == 0 and (again or not self.continues):
            return again
        address = self._stream.at(self.step, self.round, "propose")
        flying = [group.request for group in self._groups_in_flight()]
        in_flight = sum(not request.extends for request in flying)
        hand = tuple(self.in_hand())
        reserved = sum(group.waits for group in hand)
        plan = Plan(self.step, wanted + in_flight, self.num_rollouts, tuple(flying), in_hand=hand, reserved=reserved)
        plan, self.state = propose_until_full(self.controller, plan, self.state, address)
        self.skipped += [(self.round, skip) for skip in plan.skipped]
        tickets = self._issue([request for request in plan.requests if not request.ticket])
        self.round += 1
        return again + tickets

    def record(
        self,
        ticket: str,
        rollouts: Sequence[Rollout],
        prompt_tokens_P: IntArray = NO_TOKENS,
        unit: Unit | None = None,
        lost: Mapping[str, int] | None = None,
    ) -> None:
        """Record a ticket's outcomes, all at once or in pieces; tickets may come in any order.

        Args:
            prompt_tokens_P: token ids of the prompt as the policy read it; empty = as recorded before.
            unit: unit of prefixes of these rollouts; None = as recorded before, initially tokens.
            lost: reason -> rollouts that will never come.

        Raises:
            UserError: if the ticket was never drawn, or already has all its rollouts.
        """
        self._record(ticket, self._find_group(ticket), rollouts, prompt_tokens_P, unit, lost)

    def _record(
        self,
        ticket: str,
        group: Group,
        rollouts: Sequence[Rollout],
        prompt_tokens_P: IntArray = NO_TOKENS,
        unit: Unit | None = None,
        lost: Mapping[str, int] | None = None,
        **known: Any,
    ) -> None:
        """Do `record`, with further fields of the group."""
        after = replace(
            group,
            **known,
            rollouts=group.rollouts + tuple(rollouts),
            dropped=_add_counts(group.dropped, lost or {}),
            prompt_tokens_P=prompt_tokens_P if len(prompt_tokens_P) else group.prompt_tokens_P,
            unit=unit or group.unit,
            in_pieces=group.in_pieces or bool(rollouts and group.rollouts),
        )
        missing = after.missing
        if missing < 0:
            raise UserError(
                f"ticket: {ticket!r} asks for {group.request.num_rollouts} rollouts but got "
                f"{-missing} more; record each rollout once"
            )
        self._groups[ticket] = after
        if missing == 0 and ticket in self._reissued:
            self._reissued.remove(ticket)
        if missing == 0 and after.request.extends:
            self._join(ticket)

    def record_group(self, ticket: str, group: Group) -> None:
        """Record the whole outcome of a ticket as a group.

        A group whose starting point could not be replayed is recorded and observed as a fresh group. If it should have
        extended a group that did reach that point, its rollouts are lost as "diverged".
        """
        expected = self._find_group(ticket)
        begun_anew = group.request.origin is not expected.request.origin
        if begun_anew and expected.request.extends:
            lost = {"diverged": expected.missing}
            return self._record(ticket, expected, (), lost=lost, replay_cost=group.replay_cost)
        known: dict[str, Any] = {"request": group.request if begun_anew else expected.request, "lag": group.lag}
        outcome = group.rollouts, group.prompt_tokens_P, group.unit, group.dropped
        self._record(ticket, expected, *outcome, replay_cost=group.replay_cost, **known)

    def record_counts(self, ticket: str, passed: int, size: int) -> None:
        """Record the outcome of a ticket as counts, for chains that need no tokens.

        Raises:
            UserError: unless 0 <= passed <= size, and as for `record`.
        """
        if not 0 <= passed <= size:
            raise UserError(f"ticket: {ticket!r} has {passed} of {size} passed; give 0 to {size}")
        self.record(ticket, [PASSED] * passed + [FAILED] * (size - passed))

    def abandon(self, ticket: str, reason: str) -> None:
        """Count the missing rollouts of a ticket as lost, for example because they are stale, cancelled or filtered.

        Raises:
            UserError: if the ticket was never drawn, or already has all its rollouts.
        """
        self.record(ticket, (), lost={reason: self._find_group(ticket).missing})

    def fail(self, ticket: str) -> None:
        """Count the missing rollouts of a ticket as failed; unlike abandoned rollouts, they count in its pass rate.

        Raises:
            UserError: if the ticket was never drawn, or already has all its rollouts.
        """
        self.record(ticket, [Rollout((), success=False, truncated=True)] * self._find_group(ticket).missing)

    def tickets_in_flight(self) -> list[Ticket]:
        """Tickets with rollouts still missing, in the order they were drawn."""
        return [Ticket(group.request) for group in self._groups_in_flight()]

    def expects(self, ticket: str) -> bool:
        """True if the ticket is in flight: some of its rollouts are still missing."""
        return ticket in self._groups and self._groups[ticket].missing > 0

    def ticket(self, ticket: str) -> Ticket:
        """A ticket in flight, by its id, for a trainer that saved only the ids.

        Raises:
            UserError: if it was never drawn, or has all its rollouts already.
        """
        return Ticket(self._find_group(ticket).request)

    def in_hand(self) -> Iterator[Group]:
        """Complete groups that the chain has not yet observed, in the order they were drawn."""
        extended, complete = set[str](), list[Group]()
        for group in self._groups.values():
            if group.missing:
                extended.add(group.request.extends)
            else:
                complete.append(group)
        return (group for group in complete if group.request.ticket not in extended)

    def age(self, version: int) -> None:
        """Set the lag of the groups in hand behind these weights, if the versions that sampled them are known."""
        for group in list(self.in_hand()):
            lag = version - group.policy_version if group.policy_versions else 0
            self._groups[group.request.ticket] = replace(group, lag=max(lag, group.lag, 0))

    def weigh(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups with weights and advantages from the chain. This changes no state."""
        return self.controller.weigh(groups, self.state, self._stream.at(self.step, self.round, "weigh"))

    def commit(self) -> list[Group]:
        """End a training step: the chain observes the complete groups that no member holds. Returns them in draw
        order."""
        hand = list(self.in_hand())
        held = self.controller.hold(hand, self.state, self.step, self._stream.at(self.step, self.round, "hold"))
        groups = [group for group, waits in zip(hand, held, strict=True) if not waits]
        self._errors = belief_errors(self.controller, self.state, groups)
        self.state = self.controller.observe(self.state, groups, self.step)
        whole = {group.request.ticket for group in groups}
        left = {ticket: group for ticket, group in self._groups.items() if ticket not in whole}
        if "waits" in self.controller.needs:
            left = {ticket: group if group.missing else group.kept() for ticket, group in left.items()}
        self._groups = left
        self.step, self.round, self.skipped = self.step + 1, 0, []
        return groups

    def inform(self, rates_P: NDArray[np.float64]) -> None:
        """Give the chain the measured pass rate of every problem of the data set, by position."""
        assert len(rates_P) == len(self.problems), f"{len(rates_P)} pass rates for {len(self.problems)} problems"
        self.state = self.controller.inform(self.state, rates_P)

    def metrics(self) -> dict[str, float]:
        """Numbers to plot, as `MEMBER/QUANTITY`, with the `belief_errors` of the last commit, and the numbers of
        tickets in flight and of waiting groups."""
        numbers = {"in_flight": sum(1 for _ in self._groups_in_flight())}
        numbers["waiting"] = sum(group.earlier > 0 and not group.missing for group in self._groups.values())
        counted = {name: float(number) for name, number in numbers.items() if number}
        return {**self.controller.metrics(self.state), **self._errors, **counted}

    def snapshot(self) -> "Session":
        """A copy of the session in its current state."""
        other = copy.copy(self)
        other.skipped, other._groups, other._reissued = list(self.skipped), dict(self._groups), list(self._reissued)
        return other

    def state_dict(self, put: Put | None = None) -> dict[str, Any]:
        """The whole state as plain JSON data, including tickets in flight and their rollouts so far.

        Args:
            put: stores the arrays, see `halfway.curriculum.states.to_plain`; None = they are in the data.
        """
        return {
            "problems": self._fingerprint,
            "features": self._features,
            "step": self.step,
            "round": self.round,
            "skipped": to_plain(self.skipped),
            "controller": save_state(self.state, put),
            "outcomes": to_plain(self._groups, put),
            "reissued": list(self._reissued),
        }

    def load_state_dict(self, saved: Mapping[str, Any], reissue: bool = False, get: Get | None = None) -> None:
        """Continue from what `state_dict` returned.

        Args:
            reissue: true = offer the tickets in flight again, for a trainer that has lost them; their rollouts so far
                are dropped.
            get: finds the arrays that `state_dict` stored.

        Raises:
            UserError: if the state belongs to other problems or another chain; nothing is changed then.
        """
        if saved["problems"] != self._fingerprint:
            raise UserError(
                f"problems: the {len(self.problems)} training problems differ from the saved session's; resume "
                "with the data and problem options that wrote it, or begin a new run"
            )
        known = saved.get("features", {})
        changed = [name for name in known.keys() & self._features if known[name] != self._features[name]]
        if changed:
            raise UserError(
                f"problems: their feature {min(changed)!r} differs from the saved session's, from which the chain has "
                "learned; resume with the data that wrote it, or begin a new run"
            )
        state = restore_state(self.controller.init(self.problems), saved["controller"], get)
        step, rounds = int(saved["step"]), int(saved["round"])
        skipped = from_plain(list[tuple[int, Skip]], saved["skipped"])
        groups = from_plain(dict[str, Group], saved["outcomes"], get)
        reissued = [ticket for ticket in saved["reissued"] if groups[ticket].missing]
        if reissue:
            reissued = [ticket for ticket, group in groups.items() if group.missing]
            groups |= {ticket: self._start_group(groups[ticket].request) for ticket in reissued}
        self.state, self.step, self.round, self.skipped = state, step, rounds, skipped
        self._groups, self._reissued = groups, reissued

    def _takes_slot(self, ticket: str) -> bool:
        """True if a ticket in flight is for a new group, or continues a group that has waited."""
        extends = self._groups[ticket].request.extends
        return not extends or self._groups[extends].earlier > 0

    def _groups_in_flight(self) -> Iterator[Group]:
        return (group for group in self._groups.values() if group.missing)

    def _issue(self, requests: Sequence[Request]) -> list[Ticket]:
        """Issue tickets for new requests. A stored group is already complete, so nothing is expected for it."""
        extending = [request for request in requests if request.extends]
        in_hand = Counter(group.request.ticket for group in self.in_hand()) if extending else Counter[str]()
        in_hand.subtract(request.extends for request in extending)
        for request in extending:
            if in_hand[request.extends] < 0:
                raise UserError(
                    f"controllers.{request.decisions[-1].member}: a request extends the group {request.extends!r}, "
                    "which is not in hand; extend groups of Plan.in_hand only, each once in a round"
                )
        issued = [
            structs.replace(request, ticket=f"{self.step}.{self.round}.{i}", step=self.step, round=self.round)
            for i, request in enumerate(requests)
        ]
        self._groups |= {request.ticket: self._start_group(request) for request in issued if request.stored is None}
        return [Ticket(request) for request in issued]

    def _start_group(self, request: Request) -> Group:
        return start_group(request, self._trains_truncated)

    def _join(self, ticket: str) -> None:
        """Make a complete extension part of the group that it extends."""
        more = self._groups.pop(ticket)
        self._groups[more.request.extends] = join_group(self._groups[more.request.extends], more)

    def _find_group(self, ticket: str) -> Group:
        if ticket not in self._groups:
            raise UserError(f"ticket: {ticket!r} was never drawn, or was observed already; record each ticket once")
        if self._groups[ticket].missing == 0:
            raise UserError(f"ticket: {ticket!r} has all its rollouts already; record each ticket once")
        return self._groups[ticket]


def start_group(request: Request, trains_truncated: bool = True) -> Group:
    """The empty group of a new request."""
    return Group(request, NO_TOKENS, (), trains_truncated=trains_truncated)


def join_group(group: Group, more: Group) -> Group:
    """Join the rollouts of an extending request to its group."""
    asked = structs.replace(
        group.request,
        num_rollouts=group.request.num_rollouts + more.request.num_rollouts,
        decisions=more.request.decisions,
    )
    cost = more.replay_cost if group.replay_cost is None else group.replay_cost.plus(more.replay_cost)
    dropped = _add_counts(group.dropped, more.dropped)
    # If all rollouts were lost or failed before they began, the prompt tokens are unknown.
    known = group if any(rollout.turns for rollout in group.rollouts) else more
    return replace(
        group,
        request=asked,
        prompt_tokens_P=known.prompt_tokens_P,
        rollouts=group.rollouts + more.rollouts,
        unit=known.unit,
        dropped=dropped,
        replay_cost=cost,
        lag=max(group.lag, more.lag),
        in_pieces=group.in_pieces or more.in_pieces,
    )


def _add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {reason: one.get(reason, 0) + other.get(reason, 0) for reason in {**one, **other}}


def require_needs(
    controller: PassRateController[Any], problems: ProblemSet, provides: Collection[str], host: str
) -> None:
    """Refuse a chain with a need that is not met here.

    Raises:
        UserError: names the member, the need, and the trainer or data that lacks it.
    """
    for name, member in members_of(controller).items():
        for need in sorted(member.needs):
            feature = need.removeprefix("feature:")
            if feature != need:
                try:
                    problems.column(feature)
                except UserError as error:
                    raise UserError(f"controllers.{name}: needs {feature!r} of every problem; {error}") from None
            elif need == "solutions":
                if not any(problem.solution for problem in problems):
                    raise UserError(
                        f"controllers.{name}: needs {NEEDS[need]}; name the file's column of solutions in "
                        "problems.source, or leave the controller out"
                    )
            elif need == "generated":
                if not problems.generated and "generated" not in provides:
                    raise UserError(f"controllers.{name}: needs {NEEDS[need]}; give some, or leave the controller out")
            elif need not in provides:
                raise UserError(
                    f"controllers.{name}: needs {NEEDS.get(need, need)}, which {host} does not have; leave it out"
                )
