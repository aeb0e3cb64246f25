"""The contract between members of a chain, checked on a simulated learner that loses, delays and cuts rollouts."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfway.controllers import CONTROLLERS
from halfway.controllers.chains import Member, check_chain
from halfway.curriculum import (
    Chain,
    Group,
    Origin,
    PassRateController,
    Rollout,
    Session,
    Stream,
    Ticket,
    Unit,
    UserError,
)
from halfway.curriculum.controller import NEEDS
from halfway.testing.controllers import sample_problems
from halfway.testing.simulator import SimulatedRollouts

OWN = (Origin.FRESH, Origin.HINTED)


@dataclass(frozen=True)
class Conduct:
    """The conditions of a chain's trial, all drawn from the seed.

    Attributes:
        size: N, rollouts of a group.
        wanted: groups of a step.
        problems, generated: how many there are of each.
        skill: the policy's, in logits.
        late, lost, pieces: chance that a ticket is recorded in a later round or step, loses rollouts, or is recorded
            bit by bit.
        cut, overdue: chance that a failed rollout was cut by a limit, or had not ended in time.
        partial: whether rewards lie between 0 and 1, those of successes above those of failures.
        trains_truncated: whether the learner trains on rollouts that were cut.
        resumes: steps before which a second session takes over from the saved state of the first.
    """

    seed: int = 0
    steps: int = 8
    size: int = 8
    wanted: int = 8
    problems: int = 40
    generated: int = 40
    skill: float = 0.0
    unit: Unit = "tokens"
    late: float = 0.0
    lost: float = 0.0
    pieces: float = 0.0
    cut: float = 0.0
    overdue: float = 0.0
    partial: bool = False
    trains_truncated: bool = True
    resumes: frozenset[int] = frozenset()


CONDUCTS = (
    Conduct(resumes=frozenset({3})),
    Conduct(1, size=6, wanted=5, problems=16, late=0.4, lost=0.3, pieces=0.5, resumes=frozenset({2, 6})),
    Conduct(2, skill=-1.5, cut=0.5, overdue=0.2, partial=True, trains_truncated=False, pieces=0.3),
)


def check_pairs(controller: PassRateController[Any], conducts: Sequence[Conduct] = CONDUCTS) -> list[str]:
    """Put a controller into a chain with every member of this package that may share one, and run each.

    Returns:
        The members that it was tried with, in an order that is accepted; the others claim the same as it does.

    Raises:
        AssertionError: naming the chain and the law that is broken.
    """
    own = Member("tried", controller, "tried")
    company = [Member(name, CONTROLLERS.get(name)(), name) for name in CONTROLLERS.names()]
    uniform = next(member for member in company if member.name == "uniform")
    tried = []
    for other in company:
        choosing = any("problems" in member.part.claims for member in (own, other))
        chain = arranged([own, other] if choosing else [own, other, uniform])
        if chain is not None:
            for conduct in conducts:
                check_together(chain, conduct)
            tried.append(other.name)
    return tried


def arranged(members: Sequence[Member]) -> Chain | None:
    """The members in an order that is accepted, found by following each refusal; None if they share a claim.

    Raises:
        AssertionError: if a refusal does not name the order that works.
    """
    listed = list(members)
    for _ in range(len(listed) ** 2):
        try:
            return check_chain(listed)
        except UserError as error:
            words = str(error).rpartition("; list ")[2].split()
            if " own the " in str(error) or " divides the batch among " in str(error):
                return None
            assert len(words) == 3 and words[1] in ("before", "after"), f"a refusal without a remedy: {error}"
            moved, anchor = (next(m for m in listed if m.label == label) for label in (words[0], words[2]))
            listed.remove(moved)
            listed.insert(listed.index(anchor) + (words[1] == "after"), moved)
    raise AssertionError(f"refusals contradict each other: {[member.label for member in listed]}")


def check_together(chain: Chain, conduct: Conduct) -> int:
    """Run a chain and check what its members promise each other.

    Returns:
        The number of groups that were observed.

    Raises:
        AssertionError: naming the law, the step, and the chain.
        UserError: if the chain cannot run with these numbers, for example a pilot of N rollouts.
    """
    try:
        return _Run(chain, conduct).play()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{chain!r}\n{conduct!r}") from error


class _Run:
    """One run, and its twin: a session that took over from a saved state and has to decide the same."""

    def __init__(self, chain: Chain, conduct: Conduct):
        self.chain, self.conduct = chain, conduct
        self.problems = sample_problems(conduct.problems, conduct.generated)
        self.ids = {problem.id for problem in self.problems}
        self.random = np.random.default_rng(conduct.seed)
        self.session, self.twin = self.begin(), None  # type: Session, Session | None
        self.learner = SimulatedRollouts(skill=conduct.skill, unit=conduct.unit, length=6)
        self.outstanding: dict[str, tuple[Group, list[Rollout]]] = {}
        self.seen: set[str] = set()
        self.observed: set[str] = set()
        self.brought: Counter[str] = Counter()  # rollouts recorded so far for each group
        self.step = 0

    def begin(self) -> Session:
        seed, trains = self.conduct.seed, self.conduct.trains_truncated
        return Session(self.problems, self.chain, self.conduct.size, seed, NEEDS, trains_truncated=trains)

    def both(self, call: str, *arguments: Any) -> Any:
        """Call a method of the session, and of its twin."""
        result = getattr(self.session, call)(*arguments)
        if self.twin is not None:
            other = getattr(self.twin, call)(*arguments)
            if call == "next_batch":
                same = [*map(_described, result)] == [*map(_described, other)]
                self.require(same, "a restored session decides differently")
        return result

    def require(self, kept: bool, law: str) -> None:
        assert kept, f"step {self.step}: {law}"

    def play(self) -> int:
        observed = 0
        for step in range(self.conduct.steps):
            self.step = step
            if self.step in self.conduct.resumes:
                self.take_over()
            if "measured" in self.chain.needs and self.step % 3 == 0:
                self.both("inform", self.random.random(len(self.problems)))
            self.learner.sync(self.step)
            self.fill()
            self.both("age", self.step + 1)
            self.weigh()
            observed += self.observe()
            self.measure()
        return observed

    def observe(self) -> int:
        """End the step. Every rollout that came back is in a group that is observed once, whole."""
        groups = self.both("commit")
        for group in groups:
            ticket = group.request.ticket
            self.require(ticket not in self.observed, "a group was observed twice")
            self.observed.add(ticket)
            brought = self.brought.pop(ticket, 0)
            self.require(group.size == brought, f"a group has {group.size} rollouts, but {brought} were recorded")
        return len(groups)

    def take_over(self) -> None:
        saved = json.dumps(self.session.state_dict())
        self.twin = self.begin()
        self.twin.load_state_dict(json.loads(saved))
        self.require(json.dumps(self.twin.state_dict()) == saved, "a state changes when it is saved and restored")

    def fill(self) -> None:
        """The rounds of a step."""
        wanted = self.conduct.wanted
        for round_ in range(6):
            flying = [ticket.request for ticket in self.session.tickets_in_flight()]
            hand = {group.request.ticket: group for group in self.session.in_hand()}
            tickets = self.both("next_batch", wanted)
            self.check_batch(tickets, wanted, flying, hand)
            asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
            for group in self.learner.run(asked, Stream(self.conduct.seed).at(self.step, round_)):
                rollouts = [self.spoil(rollout) for rollout in group.rollouts]
                self.outstanding[group.request.ticket] = group, rollouts
            self.deliver()
            wanted = 0
            if not self.session.continues or (round_ and not tickets):
                break

    def check_batch(
        self, tickets: Sequence[Ticket], wanted: int, flying: Sequence[Any], hand: Mapping[str, Group]
    ) -> None:
        ids = [ticket.id for ticket in tickets]
        self.require(len(set(ids)) == len(ids) and self.seen.isdisjoint(ids), "a ticket was drawn twice")
        self.seen.update(ids)
        requests = [ticket.request for ticket in tickets]
        own = [request for request in requests if not request.extends]
        again = [request for request in own if any(decision.action == "again" for decision in request.decisions)]
        waiting = {ticket for ticket, group in hand.items() if group.waits}
        continued = [request for request in requests if request.extends in waiting]
        proposed = len(own) - len(again) + len(continued)
        self.require(proposed == wanted, f"{proposed} of {wanted} groups were proposed or continued")
        for request in requests:
            begun = {Origin.PREFIX: request.prefix, Origin.HINTED: request.hint, Origin.STORED: request.stored}
            started = {origin for origin, start in begun.items() if start is not None}
            self.require(started == ({request.origin} & begun.keys()), f"{request.origin} does not start as it says")
            self.require(request.num_rollouts >= 1, "a request asks for no rollout")
            if request.origin is not Origin.STORED:
                own_set = request.problem.id in self.ids
                self.require(own_set is (request.origin is not Origin.GENERATED), "a problem is not of its set")
            if request.extends:
                first = hand[request.extends].request
                self.require(
                    (first.origin, first.problem) == (request.origin, request.problem), "extends another group"
                )
        for request in again:
            tried = [g for g in hand.values() if g.request.problem.id == request.problem.id]
            self.require(any(g.request.origin in OWN for g in tried), "a retry answers a group of another origin")
        held = [r.problem.id for r in flying if r.origin in OWN]
        chosen = [r.problem.id for r in own if r.origin in OWN]
        taken = [r for r in (*flying, *own, *continued) if r.origin is not Origin.GENERATED]
        if len(taken) <= len(self.problems):
            self.require(len({*held, *chosen}) == len({*held}) + len(chosen), "a problem in flight was proposed again")

    def spoil(self, rollout: Rollout) -> Rollout:
        conduct, draw = self.conduct, self.random.random(3)
        cut = not rollout.success and draw[0] < conduct.cut
        overdue = not rollout.success and draw[1] < conduct.overdue
        reward = float(rollout.success / 2 + draw[2] * 0.49) if conduct.partial else None
        return replace(rollout, truncated=cut or overdue, late=overdue, reward=reward)

    def deliver(self) -> None:
        """Record what comes back now: whole tickets, pieces, and what was lost."""
        conduct = self.conduct
        for ticket, (group, left) in list(self.outstanding.items()):
            late, lost, piece = self.random.random(3) < (conduct.late, conduct.lost, conduct.pieces)
            if late:
                continue
            fields = (group.prompt_tokens_P, group.unit)
            whole = group.request.extends or ticket
            if piece and len(left) > 1:
                part = int(self.random.integers(1, len(left)))
                self.both("record", ticket, left[:part], *fields)
                self.brought[whole] += part
                self.outstanding[ticket] = group, left[part:]
                continue
            del self.outstanding[ticket]
            gone = int(self.random.integers(0, len(left) + 1)) if lost else 0
            if lost and gone == len(left):
                self.both("abandon", ticket, "lost") if gone % 2 else self.both("fail", ticket)
                self.brought[whole] += 0 if gone % 2 else gone
            else:
                self.both("record", ticket, left[gone:], *fields, {"lost": gone} if gone else None)
                self.brought[whole] += len(left) - gone

    def weigh(self) -> None:
        hand = list(self.session.in_hand())
        weighed = self.session.weigh(hand)
        if self.twin is not None:
            others = self.twin.weigh(list(self.twin.in_hand()))
            same = [g.weights_N.tolist() for g in weighed] == [g.weights_N.tolist() for g in others]
            self.require(same, "a restored session weighs differently")
        for before, after in zip(hand, weighed, strict=True):
            passed_N = np.array([rollout.success for rollout in before.rollouts], np.bool_)
            mixed = len({*passed_N[before.trainable_N].tolist()}) == 2
            if mixed and after.weights_N.any():
                trains = {*passed_N[after.trainable_N].tolist()}
                self.require(len(trains) == 2, "only one outcome of a mixed group trains")

    def measure(self) -> None:
        values = self.session.metrics()
        for name, value in values.items():
            self.require(isinstance(value, float) and math.isfinite(value), f"{name} is {value!r}")
        if self.twin is not None:
            self.require(self.twin.metrics() == values, "a restored session measures differently")


def _described(ticket: Ticket) -> tuple[Any, ...]:
    request = ticket.request
    prefix = request.prefix and (request.prefix.length, [turn.tokens_T.tolist() for turn in request.prefix.turns])
    stored = request.stored and [rollout.success for rollout in request.stored.rollouts]
    fields = (
        request.problem.id,
        request.origin,
        request.num_rollouts,
        request.hint,
        request.extends,
        request.decisions,
    )
    return (ticket.id, *fields, prefix, stored)
