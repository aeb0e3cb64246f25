"""Variants: whose problems get one, that its answer is right, and that ids stay unique."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from halfway.controllers.uniform import Uniform
from halfway.controllers.variants import Variants
from halfway.curriculum import Origin, Problem, ProblemSet, Stream, UserError, chain
from halfway.curriculum.session import Session
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.lab.sources import OperatorSheets, RunningSums
from halfway.curriculum.tasks.sources import Source, split
from halfway.curriculum.tasks.variations import VARIATIONS
from halfway.curriculum.tasks.verifiers import VERIFIERS

SUMS = ProblemSet(RunningSums().load(12, Stream(0)).problems)


@pytest.mark.parametrize("source", [RunningSums(), OperatorSheets()])
def test_a_variation_is_another_problem_that_its_answer_solves(source: Source) -> None:
    for i, problem in enumerate(source.load(40, Stream(0)).problems):
        varied = VARIATIONS.get(problem.verifier)(problem, Stream(i))
        assert varied.prompt != problem.prompt and varied.id != problem.id
        assert sorted(varied.answer[1::3]) == sorted(problem.answer[1::3])  # the same operations
        assert VERIFIERS.get(varied.verifier)(varied, varied.answer)
        assert varied.solution == (varied.answer if problem.solution else "")
        assert set(varied.features) == set(problem.features)
        again = VARIATIONS.get(problem.verifier)(problem, Stream(i))
        assert again == varied


def test_the_features_of_a_varied_sum_are_its_own() -> None:
    for i, problem in enumerate(SUMS):
        varied = VARIATIONS.get("running_sums")(problem, Stream(i))
        sheet = sums.parse(varied.prompt)
        assert varied.features == {"lines": len(sheet.operands), "allowed": sheet.allowed, "wraps": sums.wraps(sheet)}


def session_of(**options: Any) -> Session:
    return Session(SUMS, chain(("variants", Variants(**options)), ("uniform", Uniform())), 8)


def play(session: Session, steps: int, seed: int = 0) -> list[Problem]:
    """The new problems of some steps, in which every group passes as its ticket says."""
    new = []
    for _ in range(steps):
        for ticket in session.next_batch(8):
            if ticket.request.origin is Origin.GENERATED:
                new.append(ticket.request.problem)
            session.record_counts(ticket.id, random.Random(f"{seed} {ticket.id}").randrange(9), 8)
        session.commit()
    return new


def test_only_problems_in_the_band_get_a_variation_which_is_proposed_at_once() -> None:
    session = session_of()
    tickets = session.next_batch(8)
    assert all(ticket.request.origin is Origin.FRESH for ticket in tickets)
    for ticket, passed in zip(tickets, (0, 8, 5, 3, 0, 8, 8, 8), strict=True):
        session.record_counts(ticket.id, passed, 8)
    session.commit()
    (new,) = [t.request for t in session.next_batch(8) if t.request.origin is Origin.GENERATED]
    assert sorted(sums.parse(new.problem.prompt).operands) == sorted(
        sums.parse(tickets[3].request.problem.prompt).operands
    )
    assert session.problems.generated == (new.problem,)


def test_variations_take_their_share_and_no_id_repeats_after_a_resume() -> None:
    session, resumed = session_of(share=0.5), session_of(share=0.5)
    before = play(session, 10)
    resumed.load_state_dict(json.loads(json.dumps(session.state_dict())))
    after = play(resumed, 20)
    assert play(session, 20) == after  # like the run that was never stopped
    ids = [problem.id for problem in before + after]
    assert len(ids) == len(set(ids)) > 25
    assert [problem.id for problem in resumed.problems.generated] == ids
    assert resumed.metrics()["variants/written"] == len(ids)


def test_no_new_problem_is_held_out() -> None:
    free = play(session_of(share=0.5), 12)
    held_out = {problem.prompt for problem in free}
    problems = ProblemSet(tuple(SUMS), reserved=held_out)
    session = Session(problems, chain(("variants", Variants(share=0.5)), ("uniform", Uniform())), 8)
    made = play(session, 12)  # the same draws, until the first variation that is held out
    assert made and held_out.isdisjoint(problem.prompt for problem in made)
    assert session.metrics()["variants/reserved"] > 0
    resumed = Session(problems, session.controller, 8)
    resumed.load_state_dict(json.loads(json.dumps(session.state_dict())))
    assert held_out.isdisjoint(problem.prompt for problem in play(resumed, 12))
    with pytest.raises(UserError, match=r"is generated and has the prompt of a held-out problem"):
        session.grow([free[0]])


def test_the_held_out_problems_of_a_source_are_reserved() -> None:
    parts = split(RunningSums(), 10, 6, Stream(0))
    assert parts.train.reserved == {problem.prompt for problem in parts.heldout}
    assert parts.train.grown([replace(SUMS[0], id="new", prompt="new")]).reserved == parts.train.reserved


def test_the_number_of_new_problems_is_bounded() -> None:
    session = session_of(share=0.5, most=5)
    assert len(play(session, 30)) == 5 == len(session.problems.generated)


def test_problems_without_variations_are_refused_in_one_line() -> None:
    plain = ProblemSet([replace(problem, verifier="exact") for problem in SUMS])
    with pytest.raises(UserError, match=r"^variants: problems have the verifier exact, .*running_sums") as caught:
        Variants().init(plain)
    assert "\n" not in str(caught.value)
