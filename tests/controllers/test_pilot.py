"""Pilots: which groups go on, by how much, and within which budget."""

import pytest
from controller_harness import problem_set

from halfway.controllers.pilot import Pilot
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, UserError, chain
from halfway.curriculum.session import Session

PROBLEMS = problem_set(12)


def played(pilot: Pilot, passed: list[int], size: int = 8, passed_later: int = 0) -> tuple[list[int], list[Group]]:
    """Further rollouts of each pilot, and the groups that are observed in the end."""
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", pilot)), size)
    tickets = session.next_batch(len(passed))
    assert [ticket.request.num_rollouts for ticket in tickets] == [pilot.initial] * len(passed)
    for ticket, k in zip(tickets, passed, strict=True):
        session.record_counts(ticket.id, k, pilot.initial)
    more = {ticket.request.extends: ticket for ticket in session.next_batch(0)}
    for ticket in more.values():
        session.record_counts(ticket.id, min(passed_later, ticket.request.num_rollouts), ticket.request.num_rollouts)
    assert session.next_batch(0) == []
    assert session.continues
    return [more[t.id].request.num_rollouts if t.id in more else 0 for t in tickets], session.commit()


def test_speed_continues_groups_with_signal_and_trains_both_parts() -> None:
    more, groups = played(Pilot(), [0, 1, 3, 4], passed_later=2)
    assert more == [0, 4, 4, 0]
    assert [(g.num_passed, g.size) for g in groups] == [(0, 4), (3, 8), (5, 8), (4, 4)]
    assert played(Pilot(more=20), [0, 1, 3, 4])[0] == [0, 20, 20, 0]
    assert played(Pilot(initial=2), [1, 2], size=16)[0] == [14, 0]


def test_hora_spends_what_the_pilots_leave_and_most_on_those_with_few_successes() -> None:
    more, groups = played(Pilot(kind="hora"), [0, 1, 2, 4])
    assert sum(more) == 4 * 4 and sum(g.size for g in groups) == 4 * 8
    # The sixteen largest gains: 1/6, 5/42, ... for none of four, 1/3, 4/21, ... for one, and so on.
    assert more == [5, 5, 4, 2]


def test_a_pilot_is_judged_once_and_the_next_step_begins_anew() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot(kind="hora"))), 8)
    for _ in range(3):
        spent = 0
        tickets = session.next_batch(4)
        while tickets:
            for ticket in tickets:
                session.record_counts(ticket.id, 1, ticket.request.num_rollouts)
                spent += ticket.request.num_rollouts
            tickets = session.next_batch(0)
        assert spent == 4 * 8
        session.commit()
        assert session.state["pilot"].settled == ()


def test_a_pilot_that_lost_its_rollouts_ends() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot())), 8)
    for ticket in session.next_batch(2):
        session.abandon(ticket.id, "stale")
    assert session.next_batch(0) == []


def test_a_pilot_as_large_as_the_group_is_refused_in_one_line() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot(initial=8))), 8)
    with pytest.raises(UserError, match=r"^pilot\.initial: 8 .*below N, which is 8") as caught:
        session.next_batch(2)
    assert "\n" not in str(caught.value)
