"""Conformal stops: what calibrates, who stops when, and what the scripted rates get."""

from collections import Counter

import numpy as np
import pytest
from controller_harness import problem_set

from halfway.controllers.conformal import Conformal, ConformalState
from halfway.controllers.uniform import Uniform
from halfway.curriculum import UserError, chain
from halfway.curriculum.session import Session

PROBLEMS = problem_set(12)
SIZE = 8


def session_of(controller: Conformal, scores: tuple[tuple[float, ...], ...] = ()) -> Session:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("conformal", controller)), SIZE)
    session.state["conformal"] = ConformalState(PROBLEMS, scores)
    return session


def sizes_of(session: Session, passed_of: dict[str, list[int]], groups: int) -> dict[str, list[int]]:
    """Rollouts that were asked for, round by round; each problem has its list of successes, one for each round."""
    asked: dict[str, list[int]] = {}
    tickets = session.next_batch(groups)
    while tickets:
        for ticket in tickets:
            name, number = ticket.request.problem.id, ticket.request.num_rollouts
            asked.setdefault(name, []).append(number)
            session.record_counts(ticket.id, passed_of[name][len(asked[name]) - 1], number)
        tickets = session.next_batch(0)
    session.commit()
    return asked


def test_until_enough_groups_have_calibrated_no_group_stops() -> None:
    session = session_of(Conformal(least=12, share=1e-9))
    asked = sizes_of(session, {p.id: [2, 0, 2] for p in PROBLEMS}, 12)
    assert list(asked.values()) == [[2, 2, 4]] * 12
    # Of the first two both passed, of four and of eight half; the budgets 8 and 16 are not below N.
    assert session.state["conformal"].scores == ((0.0, 0.5, 0.5, 0.5, 0.5),) * 12
    asked = sizes_of(session, {p.id: [2] for p in PROBLEMS}, 12)
    assert list(asked.values()) == [[2]] * 12
    assert len(session.state["conformal"].scores) == 12, "who stops does not calibrate"


def test_a_group_stops_at_the_first_budget_at_which_enough_have_passed() -> None:
    # All solved, so that .05 may be missed: with these many scores the threshold is the largest at each budget.
    scores = ((0.5, 0.5, 0.5, 0.5, 0.5),) * 12
    controller = Conformal(least=1, share=1e-9)
    assert controller.thresholds(ConformalState(PROBLEMS, scores)) == [0.5] * 4
    names = [problem.id for problem in PROBLEMS]
    passed = {key: [0, 0, 0] for key in names} | {names[0]: [1, 0, 0], names[1]: [0, 2, 0], names[2]: [0, 1, 0]}
    asked = sizes_of(session_of(controller, scores), passed, 12)
    # Of two one has passed; of four two; never half: to the end.
    assert [asked[name] for name in names[:4]] == [[2], [2, 2], [2, 2, 4], [2, 2, 4]]


def test_problems_that_pass_seldom_get_more_rollouts_than_those_that_pass_often() -> None:
    generator, session = np.random.default_rng(0), session_of(Conformal(least=12, share=0.1))
    rates = {problem.id: i / 11 for i, problem in enumerate(PROBLEMS)}
    spent: Counter[str] = Counter()
    for step in range(60):
        tickets = session.next_batch(12)
        while tickets:
            for ticket in tickets:
                name, number = ticket.request.problem.id, ticket.request.num_rollouts
                session.record_counts(ticket.id, int(generator.binomial(number, rates[name])), number)
                spent[name] += number if step >= 10 else 0
            tickets = session.next_batch(0)
        session.commit()
    hard, easy = (sum(spent[p.id] for p in part) / (50 * 4) for part in (PROBLEMS[:4], PROBLEMS[-4:]))
    assert hard > 5.5 and easy < 3.5
    assert spent[PROBLEMS[0].id] == 50 * SIZE, "who never passes never stops"


def test_budgets_that_are_all_too_large_are_refused_in_one_line() -> None:
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("conformal", Conformal(budgets=(8,)))), 8)
    with pytest.raises(UserError, match=r"^conformal\.budgets: \[8\] .*below N, which is 8"):
        session.next_batch(2)
