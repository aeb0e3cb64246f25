"""Operator sheets that a generator writes: what is valid, which problems they are, and what the lab's author writes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks.lab import operators
from halfway.curriculum.tasks.lab.operators import OPERATORS, STRATA, OperatorOptions, OperatorTeacher, Sheet
from halfway.curriculum.tasks.lab.sources import OperatorSheets
from halfway.curriculum.tasks.verifiers import verify
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.operators import (
    BEGIN,
    SHEETS,
    OperatorAuthor,
    Operators,
    on_frontier,
    spoil,
    write_sheet,
)

SHORT = OperatorOptions(min_lines=2, max_lines=3, min_allowed=0, max_allowed=2)


def test_a_valid_sheet_is_the_solvers_prompt() -> None:
    (candidate,) = read(Operators(SHORT), ["^3/1aBbKcB="])
    assert candidate.invalid is not None and candidate.invalid.reason == "operators of no window"
    (candidate,) = read(Operators(SHORT), ["^3/1aBbHcB="])
    assert candidate.valid and candidate.task == Sheet(3, "BHB", 1) and candidate.topic == "A-D/1"
    problem = candidate.problem
    assert problem is not None and problem.prompt == "^3/1aBbHcB=" and problem.source == "operators"
    assert problem.features["stratum"] == "A-D" and problem.features["lines"] == 3
    assert not problem.solution and verify(problem, operators.solve(Sheet(3, "BHB", 1)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unreadable"),
        ("^3/1aBbC", "unreadable"),
        ("^8/1aBbC=", "unreadable"),
        ("^3/1aBbC=$", "unreadable"),
        ("^3/1bBaC=", "labels out of order"),
        ("^3/1aBaC=", "labels out of order"),
        ("^3/\N{ARABIC-INDIC DIGIT ONE}aBbC=", "labels out of order"),
        ("^3/0aB=", "number of lines"),
        ("^3/0aBbBcBdB=", "number of lines"),
        ("^3/3aBbBcB=", "allowed wrong lines"),
        ("^3/2aBbB=", "passes without an answer"),
        ("^3/1aAbH=", "operators of no window"),
    ],
)
def test_an_invalid_sheet_has_its_reason(text: str, reason: str) -> None:
    (candidate,) = read(Operators(SHORT), [text])
    assert candidate.invalid is not None and candidate.invalid.reason == reason and not candidate.valid


@given(st.integers(0, 10**9), st.sets(st.sampled_from(range(len(STRATA))), min_size=1), st.integers(0, 5))
def test_what_the_lab_draws_is_valid_and_the_same_problem(seed: int, strata: set[int], spread: int) -> None:
    bounds = {"spread": spread, "strata": tuple(strata)}
    (drawn,) = OperatorSheets(**bounds).load(1, Stream(seed)).problems  # type: ignore[arg-type]
    (candidate,) = read(Operators(OperatorOptions(**bounds)), [drawn.prompt])  # type: ignore[arg-type]
    assert candidate.problem is not None and candidate.problem.id == drawn.id


@given(st.text(OPERATORS, min_size=1, max_size=7), st.integers(0, 6), st.sets(st.sampled_from(range(6)), min_size=1))
def test_a_sheet_is_valid_where_an_operator_reaches_all_of_its_own(names: str, spread: int, strata: set[int]) -> None:
    places = [OPERATORS.index(name) for name in names]
    reached = [
        OPERATORS[centre]
        for centre in range(len(OPERATORS))
        if centre // 4 in strata and all(abs(centre - place) <= spread for place in places)
    ]
    options = OperatorOptions(spread=spread, strata=tuple(strata))
    assert operators.centres(Sheet(0, names, 0), options) == "".join(reached)


@given(st.text(alphabet="^/=abcABCWX01234567", max_size=24))
def test_any_text_is_read_and_no_valid_sheet_passes_empty(text: str) -> None:
    (candidate,) = read(Operators(SHORT), [text])
    assert candidate.valid != (candidate.invalid is not None)
    if candidate.problem is not None:
        assert not verify(candidate.problem, "")


def test_the_stratum_is_the_median_operators() -> None:
    found = [operators.stratum_of(Sheet(0, names, 0)) for names in ("A", "DE", "FED", "GXEAF", "XXW")]
    assert found == [0, 0, 1, 1, 5]
    assert [operators.stratum_name(stratum) for stratum in (0, 5)] == ["A-D", "U-X"]


def test_the_generators_prompt_begins_no_sheet() -> None:
    assert Operators().prompt(Stream(0)) == Operators().prompt(Stream(1)) == BEGIN
    with pytest.raises(UserError, match="operators: begin '\\^' is not acceptable"):
        Operators(begin="^")


def test_the_author_writes_valid_sheets_and_one_in_seven_that_is_not() -> None:
    rng, domain = random.Random(0), Operators(SHEETS)
    texts = [write_sheet(OperatorAuthor(), rng) for _ in range(600)]
    assert 0.82 < sum(candidate.valid for candidate in read(domain, texts)) / 600 < 0.90
    flawless = [write_sheet(OperatorAuthor(flawed=0), rng) for _ in range(300)]
    assert all(candidate.valid for candidate in read(domain, flawless))
    spoilt = [spoil(operators.parse(text), rng) for text in flawless]
    assert not any(candidate.valid for candidate in read(domain, spoilt))


def test_the_author_avoids_the_frontier() -> None:
    rng, drawn = random.Random(0), [operators.make_sheet(SHEETS, k % 6, random.Random(k)) for k in range(2000)]
    there = sum(map(on_frontier, drawn)) / 2000
    kept = [operators.parse(write_sheet(OperatorAuthor(kept=0.25, flawed=0), rng)) for _ in range(2000)]
    expected = 0.25 * there / (1 - 0.75 * there)
    assert sum(map(on_frontier, kept)) / 2000 == pytest.approx(expected, abs=4 * (expected / 2000) ** 0.5)
    never = [operators.parse(write_sheet(OperatorAuthor(kept=0.0, flawed=0), rng)) for _ in range(200)]
    assert not any(map(on_frontier, never))
    assert not on_frontier(Sheet(0, "AAAA", 3)) and not on_frontier(Sheet(0, "XXXX", 0))
    assert 0.05 < operators.chance(Sheet(0, "LLLL", 1), OperatorTeacher()) < 0.6 and on_frontier(Sheet(0, "LLLL", 1))
