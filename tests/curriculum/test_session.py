"""A chain behind a session: the decisions of a plain fold, whatever the order of a trainer's calls."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from controller_harness import describe, problem_set, rolled_out, simulated
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from messages import says
from msgspec import structs

from halfway.controllers import CONTROLLERS
from halfway.controllers.uniform import Uniform
from halfway.curriculum import (
    Chain,
    Group,
    Origin,
    PassRateController,
    Plan,
    Problem,
    ProblemSet,
    Request,
    Rollout,
    Session,
    Stream,
    Ticket,
    UserError,
    Verdict,
    chain,
    hint_of,
    propose_until_full,
    save_state,
)
from halfway.curriculum.groups import ReplayCost
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.testing import SimulatedRollouts
from halfway.testing.controllers import trial_of

PROBLEMS = problem_set(60, generated=120)
PROVIDES = ALWAYS_PROVIDED | {"values"}


def chain_of(*names: str) -> Chain:
    return chain(*((name, CONTROLLERS.get(name)()) for name in names))


CHAINS: dict[str, Callable[[], Chain]] = {
    **{name: (lambda name=name: trial_of(CONTROLLERS.get(name)()).controller) for name in CONTROLLERS.names()},
    "full": lambda: chain_of("prefix_sampling", "uniform", "greso"),
    "nested": lambda: chain(("inner", chain_of("prefix_sampling", "uniform")), ("greso", CONTROLLERS.get("greso")())),
}


def through_json(session: Session) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(json.dumps(session.state_dict()))
    return saved


def roll_out(session: Session, tickets: Sequence[Ticket], step: int, seed: int = 0) -> None:
    requests = [ticket.request for ticket in tickets if ticket.request.stored is None]
    for group in simulated(step).run(requests, Stream(seed).at(step, "rollout")):
        session.record_group(group.request.ticket, group)


def fold(controller: Chain, steps: int) -> tuple[list[Any], Any]:
    """Plans and last state of a run without a session, at the addresses of one."""
    state, plans = controller.init(PROBLEMS), []
    for step in range(steps):
        plan = Plan(step, 16, 8)
        plan, state = propose_until_full(controller, plan, state, Stream(0).at(step, 0, "propose"))
        plans.append(describe(plan))
        state = controller.observe(state, rolled_out(plan, step), step)
    return plans, state


# A fold observes every group at once, so it is no measure of members that hold some.
FOLDED = {name: make for name, make in CHAINS.items() if "waits" not in make().needs}


@pytest.mark.parametrize("make", FOLDED.values(), ids=FOLDED)
def test_a_session_decides_as_a_plain_fold_does(make: Callable[[], Chain]) -> None:
    expected, state = fold(make(), 16)
    session, plans = Session(PROBLEMS, make(), 8, provides=PROVIDES), []
    for step in range(16):
        if step % 7 == 3:
            restored = Session(PROBLEMS, make(), 8, provides=PROVIDES)
            restored.load_state_dict(through_json(session))
            session = restored
        tickets = session.next_batch(16)
        requests = tuple(ticket.request for ticket in tickets)
        plans.append(describe(Plan(step, 16, 8, requests, tuple(skip for _, skip in session.skipped))))
        roll_out(session, tickets, step)
        session.commit()
    assert plans == expected
    assert save_state(session.state) == save_state(state)


class Interleaved(RuleBasedStateMachine):
    """Any order of draw, record in pieces, abandon, commit, save and restore; the test itself counts tickets."""

    def __init__(self) -> None:
        super().__init__()
        self.session = self.fresh()
        self.expected: dict[str, int] = {}  # rollouts that have not come back
        self.whole: list[str] = []  # complete and not observed
        self.observed: Counter[str] = Counter()

    @staticmethod
    def fresh() -> Session:
        return Session(PROBLEMS, chain_of("prefix_sampling", "uniform", "greso"), 4, provides=PROVIDES)

    @rule(wanted=st.integers(0, 9))
    def draw(self, wanted: int) -> None:
        flying = [self.session._groups[ticket].request for ticket in self.expected]
        tickets = self.session.next_batch(wanted)
        assert len(tickets) <= wanted
        assert not {ticket.id for ticket in tickets} & (self.expected.keys() | set(self.whole) | self.observed.keys())
        fresh = [t.request.problem.id for t in tickets if t.request.origin is Origin.FRESH]
        held = {request.problem.id for request in flying if request.origin is Origin.FRESH}
        # Requests with prefixes hold their problems too; once every problem is held, problems repeat.
        repeated = len(set(fresh)) < len(fresh) or held & set(fresh)
        assert not repeated or len(flying) + len(tickets) > len(PROBLEMS)
        self.expected |= {ticket.id: ticket.request.num_rollouts for ticket in tickets}

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def record(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.expected)))
        number = data.draw(st.integers(0, self.expected[ticket]))
        passed = data.draw(st.integers(0, number))
        made = simulated(0).run([self.session._groups[ticket].request], Stream(number))[0].rollouts[:number]
        self.session.record(ticket, [replace(rollout, success=i < passed) for i, rollout in enumerate(made)])
        self.came_back(ticket, number)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.expected)))
        self.session.abandon(ticket, "stale")
        self.came_back(ticket, self.expected[ticket])

    def came_back(self, ticket: str, number: int) -> None:
        self.expected[ticket] -= number
        if self.expected[ticket] == 0:
            del self.expected[ticket]
            self.whole.append(ticket)

    @rule()
    def commit(self) -> None:
        groups = self.session.commit()
        assert sorted(group.request.ticket for group in groups) == sorted(self.whole)
        assert all(group.size + sum(group.dropped.values()) == group.request.num_rollouts for group in groups)
        self.observed.update(self.whole)
        self.whole = []
        assert max(self.observed.values(), default=1) == 1

    @rule()
    def restore(self) -> None:
        saved = through_json(self.session)
        self.session = self.fresh()
        self.session.load_state_dict(saved)
        assert through_json(self.session) == saved

    @invariant()
    def nothing_is_lost(self) -> None:
        assert {t: g.missing for t, g in self.session._groups.items() if g.missing} == self.expected
        assert {t for t, g in self.session._groups.items() if not g.missing} == set(self.whole)


Interleaved.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInterleaved = Interleaved.TestCase


def test_tickets_that_a_trainer_lost_are_offered_again() -> None:
    session = Session(PROBLEMS, chain_of("uniform"), 4)
    first, second, third = session.next_batch(3)
    session.record_counts(first.id, 1, 4)
    session.record(second.id, [Rollout((), True)])
    resumed = Session(PROBLEMS, chain_of("uniform"), 4)
    resumed.load_state_dict(through_json(session), reissue=True)
    again = resumed.next_batch(3)
    assert [ticket.id for ticket in again[:2]] == [second.id, third.id] and len(again) == 3
    for ticket in again:
        resumed.record_counts(ticket.id, 2, 4)
    assert [group.num_passed for group in resumed.commit()] == [1, 2, 2, 2]


def test_a_ticket_offered_again_may_be_settled_before_it_is_drawn() -> None:
    """A trainer may still find lost rollouts, or give them up."""
    session = Session(PROBLEMS, chain_of("uniform"), 8)
    drawn = session.next_batch(4)
    resumed = Session(PROBLEMS, chain_of("uniform"), 8)
    resumed.load_state_dict(through_json(session), reissue=True)
    resumed.abandon(drawn[0].id, "stale")
    resumed.record_counts(drawn[2].id, 4, 8)
    resumed.load_state_dict(through_json(resumed))  # saved once more
    assert len(resumed.commit()) == 2
    again = resumed.next_batch(4)
    assert [ticket.id for ticket in again[:2]] == [drawn[1].id, drawn[3].id]
    assert len(again) == 4 and all(resumed.expects(ticket.id) for ticket in again)


def test_extensions_offered_again_use_up_no_slots() -> None:
    pilots = chain_of("uniform", "pilot")
    session = Session(PROBLEMS, pilots, 8, provides=PROVIDES)
    for ticket in session.next_batch(4):
        session.record_counts(ticket.id, 2, 4)
    extended = session.next_batch(0)
    resumed = Session(PROBLEMS, pilots, 8, provides=PROVIDES)
    resumed.load_state_dict(through_json(session), reissue=True)
    again = resumed.next_batch(4)
    assert [ticket.id for ticket in again[: len(extended)]] == [ticket.id for ticket in extended]
    assert sum(not ticket.request.extends for ticket in again) == 4


def test_a_damaged_state_changes_nothing() -> None:
    session = Session(PROBLEMS, chain_of("uniform", "greso"), 8)
    roll_out(session, session.next_batch(4), 0)
    session.commit()
    session.next_batch(4)
    other = Session(PROBLEMS, chain_of("uniform", "greso"), 8)
    before = json.dumps(other.state_dict())
    for name in ("skipped", "outcomes", "round"):
        with pytest.raises(Exception):  # noqa: B017 - whatever the reader of the damaged part raises
            other.load_state_dict({**through_json(session), name: [["x"]]})
        assert json.dumps(other.state_dict()) == before, name


def test_a_group_recorded_in_pieces_keeps_its_prompt_and_unit() -> None:
    session = Session(PROBLEMS, chain_of("uniform"), 8)
    prompt_P = np.array([1, 2], np.int32)
    for ticket, rest in zip(session.next_batch(3), ("lost", "abandoned", "failed"), strict=True):
        session.record(ticket.id, [Rollout((), True)] * 7, prompt_P, "steps")
        match rest:
            case "lost":
                session.record(ticket.id, (), lost={"crash": 1})
            case "abandoned":
                session.abandon(ticket.id, "stale")
            case _:
                session.fail(ticket.id)
    assert [(group.unit, group.prompt_tokens_P.tolist()) for group in session.commit()] == [("steps", [1, 2])] * 3


def test_a_group_that_failed_before_it_began_has_the_unit_of_its_extension() -> None:
    """A pilot whose worker raised, then rollouts of several turns."""
    pilot = CONTROLLERS.get("pilot")(kind="hora", initial=1)
    members = {name: CONTROLLERS.get(name)() for name in ("prefix_sampling", "uniform")}
    session = Session(PROBLEMS, chain(*members.items(), ("pilot", pilot)), 8, provides=PROVIDES)
    extended = 0
    for _ in range(3):
        for ticket in session.next_batch(8):
            session.fail(ticket.id)
        while more := session.next_batch(0):
            for ticket in more:
                [group] = SimulatedRollouts(skill=0, unit="steps").run([ticket.request], Stream(1).at(ticket.id))
                session.record_group(ticket.id, group)
                extended += 1
        assert all(group.unit == "steps" for group in session.commit() if group.rollouts[-1].turns)
    assert extended


def test_late_outcomes_are_observed_in_the_order_they_were_drawn() -> None:
    session = Session(PROBLEMS, chain_of("uniform"), 4)
    first, second = session.next_batch(2)
    session.record_counts(second.id, 3, 4)
    assert [group.request.ticket for group in session.commit()] == [second.id]
    later = session.next_batch(2)
    assert session.metrics()["in_flight"] == 3
    for ticket in (*later, first):
        session.record_counts(ticket.id, 0, 4)
    assert [group.request.ticket for group in session.commit()] == [first.id, *(ticket.id for ticket in later)]
    assert "in_flight" not in session.metrics()


@dataclass(frozen=True)
class Pilot(PassRateController[None]):
    """Two more rollouts, once, for every group in hand that is neither all passed nor all failed."""

    more: int = 2

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"rounds"})

    needs = claims

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        asked = {request.extends for request in plan.requests}
        for group in plan.in_hand:
            if not group.zero_variance and group.size == plan.num_rollouts and group.request.ticket not in asked:
                plan = plan.extend(group, self.more, "goes on")
        return plan, state


def piloted() -> Session:
    return Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot())), 4)


def test_an_extended_group_is_observed_whole_and_once() -> None:
    session = piloted()
    first, second, third = session.next_batch(3)
    for ticket, passed in ((first, 0), (second, 2), (third, 4)):
        session.record_counts(ticket.id, passed, 4)
    (more,) = session.next_batch(0)
    assert (more.request.extends, more.request.num_rollouts) == (second.id, 2)
    assert [group.request.ticket for group in session.in_hand()] == [first.id, third.id]
    resumed = piloted()
    resumed.load_state_dict(through_json(session))
    assert [group.size for group in resumed.commit()] == [4, 4]  # the group being extended has to wait
    resumed.record_counts(more.id, 1, 2)
    (whole,) = resumed.commit()
    assert (whole.request.ticket, whole.num_passed, whole.size, whole.request.num_rollouts) == (second.id, 3, 6, 6)
    assert [action for _, action in whole.request.decisions] == ["drawn", "goes on"]


def test_rollouts_lost_in_an_extension_are_lost_to_the_group() -> None:
    session = piloted()
    (ticket,) = session.next_batch(1)
    session.record_counts(ticket.id, 1, 4)
    (more,) = session.next_batch(0)
    session.record(more.id, [Rollout((), True)], lost={"stale": 1})
    (whole,) = session.commit()
    assert (whole.size, whole.num_passed, dict(whole.dropped)) == (5, 2, {"stale": 1})


def test_a_group_that_lost_its_rollouts_has_the_prompt_and_the_unit_of_its_extension() -> None:
    session = Session(PROBLEMS, chain_of("uniform", "rounds"), 4)
    (ticket,) = session.next_batch(1)
    session.abandon(ticket.id, "stale")
    (more,) = session.next_batch(0)
    session.record(more.id, [Rollout((), i < 2) for i in range(4)], np.array([5, 6], np.int32), "steps")
    (whole,) = session.commit()
    assert (whole.size, dict(whole.dropped)) == (4, {"stale": 4})
    assert (whole.prompt_tokens_P.tolist(), whole.unit) == ([5, 6], "steps")


def test_an_extension_with_another_start_than_its_group_is_lost() -> None:
    session = piloted()
    (ticket,) = session.next_batch(1)
    session.record_counts(ticket.id, 1, 4)
    (more,) = session.next_batch(0)
    [made] = simulated(0).run([more.request], Stream(0))
    begun_anew, cost = structs.replace(more.request, origin=Origin.PREFIX), ReplayCost(3, 0.5, 0.25)
    session.record_group(more.id, replace(made, request=begun_anew, replay_cost=cost))
    (whole,) = session.commit()
    assert (whole.size, whole.num_passed, dict(whole.dropped)) == (4, 1, {"diverged": 2})
    assert whole.replay_cost == cost  # what was spent on reaching the start is not lost


def test_a_neighbour_that_extends_groups_shifts_no_draw() -> None:
    alone, together = Session(PROBLEMS, chain_of("uniform"), 4), piloted()
    for _ in range(6):
        mine, others = alone.next_batch(5), together.next_batch(5)
        assert [t.request.problem.id for t in mine] == [t.request.problem.id for t in others]
        for ticket in mine:
            alone.record_counts(ticket.id, 1, 4)
        for ticket in others:
            together.record_counts(ticket.id, 1, 4)
        for ticket in together.next_batch(0):
            together.record_counts(ticket.id, 1, 2)
        assert together.next_batch(0) == []
        assert {group.size for group in together.commit()} == {6}
        alone.commit()


@dataclass(frozen=True)
class Weigher(PassRateController[None]):
    """One factor for all rollouts of a group."""

    factor: float

    def weigh(self, groups: Sequence[Group], state: None, stream: Stream) -> Sequence[Group]:
        return [group.with_weights(np.full(group.size, self.factor)) for group in groups]


def test_weights_compose_by_multiplication_and_change_nothing_by_default() -> None:
    group = simulated(0).run([Request(PROBLEMS[0], 4)], Stream(0))[0]
    plain = Session(PROBLEMS, chain_of("uniform", "greso"), 4).weigh([group])
    assert plain[0] is group and plain[0].weights is None
    several = chain(("a", Weigher(2.0)), ("inner", chain(("b", Weigher(0.25)))), ("uniform", Uniform()))
    (weighed,) = Session(PROBLEMS, several, 4).weigh([group])
    assert weighed.weights_N.tolist() == [0.5] * 4 and weighed.teaches == group.teaches


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
def test_weights_without_a_loss_are_refused(factor: float) -> None:
    group = simulated(0).run([Request(PROBLEMS[0], 4)], Stream(0))[0]
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("mine", Weigher(factor))), 4)
    with pytest.raises(UserError, match=says("controllers.mine", "'p0'", "finite", "at least 0")) as caught:
        session.weigh([group])
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Sized(PassRateController[None]):
    """Gives a request as many rollouts as its problem's number says."""

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        sizes = [1 + int(request.problem.id[1:]) % 3 for request in plan.undecided]
        return plan.decide([Verdict(True, f"{size}", num_rollouts=size) for size in sizes]), state


def test_a_verdict_changes_how_many_rollouts_a_request_gets() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("sized", Sized())), 8)
    tickets = session.next_batch(12)
    assert {(int(t.request.problem.id[1:]) % 3 + 1, t.request.num_rollouts) for t in tickets} == {
        (1, 1),
        (2, 2),
        (3, 3),
    }
    assert Plan(0, 12, 8).budget == 96


@dataclass(frozen=True)
class Needy(PassRateController[None]):
    """Needs the given names."""

    wants: str

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.wants})


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ("tokens", "controllers.needy: needs the tokens of rollouts, which TRL does not have"),
        ("solutions", "needs a reference solution of every problem"),
        ("feature:grade", "controllers.needy: needs 'grade' of every problem; problems: 'p0' has no feature"),
        ("generated", "needs generated problems"),
    ],
)
def test_a_chain_that_needs_what_the_trainer_lacks_is_refused_at_the_start(need: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        problems = problem_set(3, solution="")
        Session(problems, chain(("uniform", Uniform()), ("needy", Needy(need))), 4, provides=(), host="TRL")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@dataclass(frozen=True)
class Nested:
    problems: ProblemSet


@dataclass(frozen=True)
class Remembers:
    """A state with a field that may hold anything."""

    memory: Any


@dataclass(frozen=True)
class Gathers:
    """A state with a field that is empty at first, and later holds what cannot be saved."""

    others: Mapping[str, Nested] = field(default_factory=dict)


@dataclass(frozen=True)
class Keeper(PassRateController[Any]):
    """Begins with the given state."""

    state: Any

    def init(self, problems: ProblemSet) -> Any:
        return self.state


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            Remembers(Nested(PROBLEMS)),
            r"controllers\.outer\.keeper: .*'memory'.*ProblemSet",
        ),
        (Remembers(object()), r"controllers\.outer\.keeper: .*'memory'.*object"),
        (
            Gathers(),
            r"controllers\.outer\.keeper: .*'others'.*ProblemSet",
        ),
        ([1, 2], r"controllers\.outer\.keeper: .*list.*dataclass"),
    ],
)
def test_a_state_that_could_not_be_saved_is_refused_before_the_first_step(state: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        Session(PROBLEMS, chain(("uniform", Uniform()), ("outer", chain(("keeper", Keeper(state))))), 4)
    assert "\n" not in str(caught.value)


def test_mistakes_with_tickets_are_refused_in_one_line_and_change_nothing() -> None:
    session = Session(PROBLEMS, chain_of("uniform"), 4)
    (ticket,) = session.next_batch(1)
    session.record(ticket.id, [Rollout((), True)] * 2)
    before = through_json(session)
    for wrong, words in (
        (lambda: session.record_counts("9.9.9", 1, 4), "never drawn"),
        (lambda: session.abandon("9.9.9", "x"), "never drawn"),
        (lambda: session.record_counts(ticket.id, 1, 4), "2 more"),
        (lambda: session.record_counts(ticket.id, 5, 4), "5 of 4 passed"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            wrong()
        assert "\n" not in str(caught.value) and through_json(session) == before
    session.record_counts(ticket.id, 0, 2)
    with pytest.raises(UserError, match=says("all its rollouts")):
        session.record_counts(ticket.id, 0, 1)


def test_a_session_of_other_problems_or_another_chain_is_refused_and_stays_as_it_is() -> None:
    session = Session(PROBLEMS, chain_of("uniform", "greso"), 4)
    session.next_batch(3)
    saved = through_json(session)
    for other in (Session(problem_set(59), chain_of("uniform", "greso"), 4), Session(PROBLEMS, chain_of("uniform"), 4)):
        before = through_json(other)
        with pytest.raises(UserError, match=r"differ from the saved session's|resume with the configuration"):
            other.load_state_dict(saved)
        assert through_json(other) == before


@dataclass(frozen=True)
class Impatient(Pilot):
    """Extends a group that is not in hand."""

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        if plan.requests and not any(request.extends for request in plan.requests):
            odd = structs.replace(plan.requests[0], extends="7.7.7")
            return plan.add([odd], "too early"), state
        return plan, state


def test_extending_what_is_not_in_hand_is_refused() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("hasty", Impatient())), 4)
    with pytest.raises(UserError, match=says("controllers.hasty", "'7.7.7'")):
        session.next_batch(2)


def test_a_hint_needs_a_reference() -> None:
    assert hint_of(Problem("a", "1+1=", "2", solution="one and one is 2"), 8).text == "one and "
    with pytest.raises(UserError, match=says("'a'", "reference solution")):
        hint_of(Problem("a", "1+1=", "2"), 1)
    with pytest.raises(ValueError, match=r"outside 1\.\.3"):
        hint_of(Problem("a", "1+1=", "2", solution="abc"), 4)


def test_missing_rollouts_that_failed_are_in_the_pass_rate_and_abandoned_ones_are_not() -> None:
    session = Session(problem_set(4), chain_of("uniform"), 4)
    first, second = session.next_batch(2)
    for ticket in (first, second):
        session.record(ticket.id, [Rollout((), success=True)])
    session.fail(first.id)
    session.abandon(second.id, "stale")
    failed, abandoned = session.commit()
    assert (failed.size, failed.pass_rate, failed.dropped) == (4, 0.25, {})
    assert (abandoned.size, abandoned.pass_rate, abandoned.dropped) == (1, 1.0, {"stale": 3})


def test_groups_in_hand_get_their_lag() -> None:
    session = Session(problem_set(4), chain_of("uniform"), 4)
    tickets = session.next_batch(2)
    [group] = simulated(3).run([tickets[0].request], Stream(0))
    session.record_group(tickets[0].id, group)
    session.age(5)
    session.record_counts(tickets[1].id, 1, 4)
    assert [group.lag for group in session.commit()] == [2, 0]


@pytest.mark.parametrize("change", ["more", "fewer", "other"])
def test_a_session_whose_features_have_changed_is_refused_if_the_chain_reads_them(change: str) -> None:
    known = problem_set(20)
    names = {"more": lambda i: f"c{i % 7}", "fewer": lambda i: f"c{i // 10}", "other": lambda i: f"c{(i + 1) % 5}"}[
        change
    ]
    others = ProblemSet(
        [
            structs.replace(problem, features={**problem.features, "category": names(i)})
            for i, problem in enumerate(known)
        ]
    )
    before, after = (Session(problems, chain_of("bandit"), 8) for problems in (known, others))
    state = json.dumps(after.state_dict())
    with pytest.raises(UserError, match=r"'category' differs .*; resume with the data that wrote it"):
        after.load_state_dict(through_json(before))
    assert json.dumps(after.state_dict()) == state
    unread, anyway = (Session(problems, chain_of("mopps"), 8) for problems in (known, others))
    anyway.load_state_dict(through_json(unread))


def test_a_reissued_ticket_that_is_settled_after_all_is_not_offered_again() -> None:
    session, resumed = (Session(PROBLEMS, chain_of("uniform"), 8) for _ in range(2))
    session.next_batch(4)
    resumed.load_state_dict(through_json(session), reissue=True)
    first, second, *_ = resumed.tickets_in_flight()
    resumed.record_counts(first.id, 4, 8)
    resumed.abandon(second.id, "stale")
    resumed.commit()
    again = resumed.next_batch(4)
    assert len({ticket.id for ticket in again}) == 4 and {first.id, second.id}.isdisjoint(t.id for t in again)


def test_reissued_extensions_take_no_slot_and_need_none() -> None:
    session, resumed = (Session(PROBLEMS, chain_of("uniform", "pilot"), 8, provides=PROVIDES) for _ in range(2))
    for ticket in session.next_batch(4):
        session.record_counts(ticket.id, 2, 4)
    extensions = session.next_batch(0)
    resumed.load_state_dict(through_json(session), reissue=True)
    assert [t.id for t in resumed.next_batch(0)] == [t.id for t in extensions] and len(extensions) == 4
    resumed.load_state_dict(through_json(session), reissue=True)
    batch = resumed.next_batch(4)
    assert sum(bool(t.request.extends) for t in batch) == sum(not t.request.extends for t in batch) == 4


@pytest.mark.parametrize("extended", [False, True])
def test_rollouts_that_never_came_erase_neither_prompt_nor_unit(extended: bool) -> None:
    session = Session(PROBLEMS, chain_of("uniform", "pilot"), 8, provides=PROVIDES)
    (ticket,) = session.next_batch(1)
    if extended:
        session.record_counts(ticket.id, 2, 4)
        (ticket,) = session.next_batch(0)
    (made,) = SimulatedRollouts(unit="steps").run([ticket.request], Stream(0))
    session.record(ticket.id, made.rollouts[:2], made.prompt_tokens_P, "steps")
    session.record(ticket.id, (), lost={"crash": 2})
    (whole,) = session.in_hand()
    assert (whole.unit, len(whole.prompt_tokens_P)) == ("steps", len(made.prompt_tokens_P))
