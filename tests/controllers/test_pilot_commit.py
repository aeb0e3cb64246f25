"""Pilot-Commit's band, against an independent statement of its loop on recorded outcomes."""

from typing import Any

import numpy as np
import pytest
from controller_harness import group, problem_set
from messages import says

from halfway.controllers.contrib.pilot import Pilot
from halfway.controllers.retire import Retire
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Session, Stream, UserError, chain

PROBLEMS = problem_set(120)
N, PILOT, WANTED = 16, 8, 6


def session_of(**options: Any) -> Session:
    pilot = Pilot(kind="commit", initial=PILOT, **options)
    retire = Retire(above=1.0, returns=None)
    return Session(PROBLEMS, chain(("uniform", Uniform()), ("retire", retire), ("pilot", pilot)), N)


def finish(session: Session, outcomes: dict[str, int], wanted: int) -> tuple[list[str], list[str]]:
    """Draw once and record. Returns the problems that were piloted, and those that were committed."""
    piloted, committed = [], []
    for ticket in session.next_batch(wanted):
        (committed if ticket.request.extends else piloted).append(ticket.request.problem.id)
        passed = 4 if ticket.request.extends else outcomes[ticket.request.problem.id]
        session.record_counts(ticket.id, passed, ticket.request.num_rollouts)
    return piloted, committed


@pytest.mark.parametrize(
    ("passed", "fate"),
    [(0, "too_hard"), (1, "continued"), (2, "continued"), (6, "continued"), (7, "too_easy"), (8, "too_easy")],
)
def test_the_band_of_the_paper(passed: int, fate: str) -> None:
    """Rates below .125 are deferred and rates above .75 skipped; both bounds are within."""
    session = session_of()
    finish(session, {problem.id: passed for problem in PROBLEMS}, 1)
    _, committed = finish(session, {problem.id: 0 for problem in PROBLEMS}, 1)
    assert bool(committed) is (fate == "continued")
    groups = session.commit()
    metrics = session.metrics()
    assert metrics[f"pilot/{fate}"] == 1 + (fate == "too_hard")  # as the second draw's pilot is
    assert groups[0].size == (N if committed else PILOT)


def test_pilots_that_are_not_committed_do_not_train() -> None:
    session = session_of()
    rates = dict(zip((problem.id for problem in PROBLEMS), [1, 4, 8, 0, 7] * 24, strict=True))
    finish(session, rates, 10)
    hand = {g.request.ticket: g for g in session.weigh(list(session.in_hand()))}
    assert not any(g.weights_N.any() for g in hand.values())
    finish(session, rates, 0)
    assert session.next_batch(0) == [] and not session.continues  # only draws that are wanted anyway go on


def published(outcomes: dict[str, int], epoch: list[str], steps: int, patience: int) -> list[tuple[str, int]]:
    """(problem, step) of what is committed, by the published loop: a buffer of pilots in the band, oldest first.

    The batch of each step is as many groups as are wanted: those of the buffer, and pilots in the remaining slots.
    """
    buffer: list[tuple[str, int]] = []
    found, place = [], 0
    for step in range(steps):
        chosen, buffer = buffer[:2], buffer[2:]
        found += [(problem, step) for problem, _ in chosen]
        for _ in range(WANTED - len(chosen)):
            problem, place = epoch[place], place + 1
            if 0.125 <= outcomes[problem] / PILOT <= 0.75:
                buffer.append((problem, step))
        buffer = [(problem, added) for problem, added in buffer if step - added <= patience]
    return found


@pytest.mark.parametrize("patience", [0, 1, 4])
def test_problems_are_committed_as_in_the_published_buffer(patience: int) -> None:
    draw = np.random.default_rng(patience)
    outcomes = {problem.id: int(draw.integers(0, 9)) for problem in PROBLEMS}
    session = session_of(commits=2, patience=patience)
    epoch, found = [], []
    evicted: list[Group] = []
    steps = 26
    for step in range(steps):
        piloted, committed = finish(session, outcomes, WANTED)
        assert len(piloted) + len(committed) == WANTED
        epoch += piloted
        found += [(problem, step) for problem in committed]
        evicted += [g for g in session.commit() if g.size == PILOT and 1 <= g.num_passed <= 6]
    assert len(set(epoch)) == len(epoch)
    assert found == published(outcomes, epoch, steps, patience)
    assert session.metrics()["pilot/evicted"] == len(evicted) > 0


def test_retire_evicts_problems_that_pass_every_time_for_good() -> None:
    session = session_of()
    always = {problem.id: 8 if int(problem.id[1:]) % 2 else 3 for problem in PROBLEMS}
    seen: list[str] = []
    for _ in range(80):
        piloted, _ = finish(session, always, WANTED)
        seen += piloted
        session.commit()
    odd = [problem for problem in seen if int(problem[1:]) % 2]
    assert len(odd) == len(set(odd)) and len(seen) > 2 * len(PROBLEMS)


def test_a_lost_pilot_is_neither_committed_nor_waits() -> None:
    session = session_of()
    for ticket in session.next_batch(3):
        session.abandon(ticket.id, "stale")
    assert len(session.commit()) == 3 and session.metrics()["pilot/pilots"] == 0.0


def test_other_kinds_do_not_hold() -> None:
    for kind in ("speed", "hora"):
        pilot = Pilot(kind=kind)  # type: ignore[arg-type]
        assert pilot.hold([group(PROBLEMS[0], 2, 4)], pilot.init(PROBLEMS), 0, Stream(0)) == [False]


def test_its_options_are_refused_in_one_line() -> None:
    for options, words in (
        ({"band": (0.8, 0.2)}, ("pilot.band", "0.8", "lower")),
        ({"commits": -1}, ("pilot.commits", -1, "0")),
        ({"patience": -1}, ("pilot.patience", -1, "0")),
        ({"initial": 1}, ("pilot.initial", 1, "2")),
    ):
        with pytest.raises(UserError, match=says(*words)):
            Pilot(kind="commit", **options)  # type: ignore[arg-type]
