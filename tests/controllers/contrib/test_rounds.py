"""Controllers that extend groups round by round: `rounds` and `pilot`."""

from dataclasses import dataclass

import numpy as np
import pytest
from controller_harness import group, problem_set
from messages import says

from halfway.controllers.contrib.pilot import Pilot
from halfway.controllers.contrib.rounds import Rounds
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, PassRateController, Plan, Session, Stream, UserError, Verdict, chain
from halfway.trainers.learner.batch import group_advantages
from halfway.trainers.learner.learner_options import LearnerOptions

PROBLEMS = problem_set(12)


def played(rounds: Rounds, script: list[int], size: int = 4) -> Group:
    """One group whose rounds end with so many successes each."""
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("rounds", rounds)), size)
    tickets = session.next_batch(1)
    for passed in [*script, 0, 0, 0, 0]:
        if not tickets:
            break
        session.record_counts(tickets[0].id, passed, tickets[0].request.num_rollouts)
        tickets = session.next_batch(0)
    (whole,) = session.commit()
    return whole


@pytest.mark.parametrize(
    ("rounds", "script", "size"),
    [
        (Rounds(), [2], 4),  # two of each
        (Rounds(), [1, 0, 1], 12),
        (Rounds(), [4, 4, 4, 3], 16),  # one failure is not enough, and four rounds are the most
        (Rounds(), [4, 2], 8),
        (Rounds(stop="positive"), [1], 4),
        (Rounds(stop="positive"), [4], 4),
        (Rounds(stop="positive"), [0, 0, 1], 12),
        (Rounds(stop="positive", rounds=2), [0, 0, 1], 8),
        (Rounds(size=3), [1, 1], 6),
    ],
)
def test_rounds_stop_at_enough_signal(rounds: Rounds, script: list[int], size: int) -> None:
    assert played(rounds, script).size == size


def test_a_balanced_part_trains_and_the_baseline_is_that_of_all() -> None:
    whole = group(PROBLEMS[0], 2, 16)
    rounds = Rounds()
    (weighed,) = rounds.weigh([whole], rounds.init(PROBLEMS), Stream(0))
    chosen = np.flatnonzero(weighed.weights_N)
    assert chosen.tolist() == [0, 1, 14, 15]  # the two successes are the last
    advantages_N = group_advantages(weighed, LearnerOptions(advantage="mean", divide_by_std=False))
    assert advantages_N[chosen] == pytest.approx([-1 / 8, -1 / 8, 7 / 8, 7 / 8])


def test_small_groups_and_all_of_ar3po_train_whole() -> None:
    for rounds, whole in ((Rounds(), group(PROBLEMS[0], 2, 4)), (Rounds(keep=0), group(PROBLEMS[0], 2, 16))):
        (weighed,) = rounds.weigh([whole], rounds.init(PROBLEMS), Stream(0))
        assert weighed is whole


def test_groups_that_never_get_signal_are_counted() -> None:
    rounds = Rounds()
    state = rounds.observe(rounds.init(PROBLEMS), [group(PROBLEMS[0], 0, 16), group(PROBLEMS[1], 2, 4)], 0)
    assert rounds.metrics(state) == {"rollouts": 10.0, "given_up": 0.5}


def piloted(pilot: Pilot, passed: list[int], size: int = 8, passed_later: int = 0) -> tuple[list[int], list[Group]]:
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
    more, groups = piloted(Pilot(), [0, 1, 3, 4], passed_later=2)
    assert more == [0, 4, 4, 0]
    assert [(g.num_passed, g.size) for g in groups] == [(0, 4), (3, 8), (5, 8), (4, 4)]
    assert piloted(Pilot(more=20), [0, 1, 3, 4])[0] == [0, 20, 20, 0]
    assert piloted(Pilot(initial=2), [1, 2], size=16)[0] == [14, 0]


def test_hora_spends_what_the_pilots_leave_and_most_on_those_with_few_successes() -> None:
    more, groups = piloted(Pilot(kind="hora"), [0, 1, 2, 4])
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


@dataclass(frozen=True)
class OddOnes(PassRateController[None]):
    """Refuses every other problem."""

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        odd = [int(request.problem.id[1:]) % 2 == 1 for request in plan.undecided]
        return plan.decide([Verdict(it, "odd" if it else "even") for it in odd]), state


def test_pilots_that_a_later_member_drops_are_not_counted() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot()), ("odd", OddOnes())), 8)
    tickets = session.next_batch(6)
    for ticket, passed in zip(tickets, (0, 1, 4, 4, 4, 4), strict=True):
        session.record_counts(ticket.id, passed, 4)
    assert len(session.next_batch(0)) == 1
    metrics = session.metrics()
    assert (metrics["pilot/pilots"], metrics["pilot/continued"]) == (6.0, 1.0)


def test_a_pilot_that_lost_its_rollouts_ends() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot())), 8)
    for ticket in session.next_batch(2):
        session.abandon(ticket.id, "stale")
    assert session.next_batch(0) == []


def test_a_pilot_as_large_as_the_group_is_refused_in_one_line() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("pilot", Pilot(initial=8))), 8)
    with pytest.raises(UserError, match=says("pilot.initial", 8, "N")) as caught:
        session.next_batch(2)
    assert "\n" not in str(caught.value)
