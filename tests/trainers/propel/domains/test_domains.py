"""Domains of generated tasks: what they read, what they refuse and why, and which problems they make."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.lab.sources import RunningSums
from halfway.curriculum.tasks.lab.sums import Sheet, SumsOptions, SumsTeacher
from halfway.curriculum.tasks.verifiers import verify
from halfway.trainers.propel.domains import DOMAINS
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.sums import Sums

SHORT = SumsOptions(min_lines=2, max_lines=3, min_allowed=0, max_allowed=2)


def test_every_built_in_domain_resolves() -> None:
    names = ["function_induction", "maths", "operators", "sums"]
    assert [DOMAINS.get(name)().name for name in DOMAINS.names()] == names


def test_a_valid_sum_is_the_solvers_prompt() -> None:
    domain = Sums(SHORT)
    (candidate,) = read(domain, ["^4/1a3b1="])
    assert candidate.valid and candidate.task == Sheet(4, (3, 1), 1) and candidate.topic == "2/1"
    problem = candidate.problem
    assert problem is not None and problem.prompt == "^4/1a3b1=" and problem.source == "sums"
    assert problem.features == {"lines": 2, "allowed": 1, "wraps": 1, "topic": "2/1"}
    assert verify(problem, "a31b12") and verify(problem, "a31b10") and not verify(problem, "a30b10")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unreadable"),
        ("^4/1a3b1", "unreadable"),
        (" ^4/1a3b1=", "unreadable"),
        ("^4/1a3b1=$", "unreadable"),
        ("^44/1a3b1=", "unreadable"),
        ("^4/1b3a1=", "labels out of order"),
        ("^4/1a3a1=", "labels out of order"),
        ("^4/1a3b\N{ARABIC-INDIC DIGIT ONE}=", "labels out of order"),
        ("^4/1" + "a1" * 21 + "=", "labels out of order"),
        ("^6/1a3b1=", "start out of range"),
        ("^4/1a0b1=", "operand out of range"),
        ("^4/1a5b1=", "operand out of range"),
        ("^4/1a1=", "number of lines"),
        ("^4/1a1b1c1d1=", "number of lines"),
        ("^4/3a1b1c1=", "allowed wrong lines"),
        ("^4/2a1b1=", "passes without an answer"),
    ],
)
def test_an_invalid_sum_has_its_reason(text: str, reason: str) -> None:
    (candidate,) = read(Sums(SHORT), [text])
    assert candidate.invalid is not None and candidate.invalid.reason == reason and not candidate.valid


@given(st.integers(0, 10**9))
def test_what_the_lab_draws_is_valid_and_the_same_problem(seed: int) -> None:
    (drawn,) = RunningSums().load(1, Stream(seed)).problems
    (candidate,) = read(Sums(), [drawn.prompt])
    assert candidate.problem is not None and candidate.problem.id == drawn.id


@given(st.text(alphabet="^/=abc0123456789", max_size=30))
def test_any_text_is_read_and_no_valid_sum_passes_empty(text: str) -> None:
    (candidate,) = read(Sums(SHORT), [text])
    assert candidate.valid != (candidate.invalid is not None)
    if candidate.problem is not None:
        assert not verify(candidate.problem, "")
        flawless = sums.demonstrate(sums.parse(text), SumsTeacher(forget=0.0, slip=0.0), random.Random(0))
        assert verify(candidate.problem, flawless)


def test_reading_keeps_the_order_and_counts_reasons() -> None:
    texts = ["no", "^4/1a3b1=", "^4/2a1b1=", "^4/1a1=", "nor this", "^1/0a1b1="]
    candidates = read(Sums(SHORT), texts)
    assert [c.text for c in candidates] == texts
    assert [c.valid for c in candidates] == [False, True, False, False, False, True]
    assert [c.topic for c in candidates] == ["", "2/1", "2/2", "1/1", "", "2/0"]
    assert Counter(one.invalid.reason for one in candidates if one.invalid) == {
        "unreadable": 2,
        "passes without an answer": 1,
        "number of lines": 1,
    }


def test_the_generators_prompt_of_sums_begins_no_sheet() -> None:
    assert Sums().prompt(Stream(0)) == Sums().prompt(Stream(1)) == "!"
    with pytest.raises(UserError, match="sums: begin '\\^' is not acceptable"):
        Sums(begin="^")


def test_a_check_sees_only_what_parses() -> None:
    seen: list[int] = []

    class Counting(Sums):
        def check(self, tasks: object) -> list[Sheet | Invalid]:
            seen.append(len(tasks))  # type: ignore[arg-type]
            return super().check(tasks)  # type: ignore[arg-type]

    make: Callable[[], Sums] = Counting
    read(make(), ["no", "^4/1a3b1=", "^4/2a1b1="])
    assert seen == [2]
