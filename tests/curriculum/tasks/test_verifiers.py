"""Verifiers: known verdicts, and errors of one line."""

import logging
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.curriculum.problems import Problem
from halfway.curriculum.support import extras
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks import answers
from halfway.curriculum.tasks.answers import last_number
from halfway.curriculum.tasks.helpers import take_counts
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.verifiers import VERIFIERS, verify


def problem(answer: str, verifier: str, prompt: str = "?") -> Problem:
    return Problem("p1", prompt, answer, "test", verifier)


@pytest.fixture
def register() -> Iterator[Callable[[str, Any], None]]:
    before = dict(VERIFIERS._added)
    yield VERIFIERS.add
    VERIFIERS._added.clear()
    VERIFIERS._added.update(before)


@pytest.mark.parametrize(("response", "passed"), [("42", True), (" 42\n", True), ("042", False), ("42.", False)])
def test_exact(response: str, passed: bool) -> None:
    assert verify(problem("42 ", "exact"), response) is passed


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("it is 12.", Fraction(12)),
        ("first 3, then 4", Fraction(4)),
        ("-7", Fraction(-7)),
        ("x=-7", Fraction(-7)),
        ("\N{MINUS SIGN}7", Fraction(-7)),
        ("5-3", Fraction(3)),
        ("5 - 3", Fraction(3)),
        ("+8", Fraction(8)),
        ("1,234,567.50", Fraction(2469135, 2)),
        ("-$1,200", Fraction(-1200)),
        ("1,2,3", Fraction(3)),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{1}{8}", Fraction(-1, 8)),
        ("2.5e-3", Fraction(1, 400)),
        ("50%", Fraction(50)),
        ("12km", Fraction(12)),
        ("6 in x2", Fraction(6)),
        ("none", None),
        ("", None),
        ("1/0", None),
        ("1e999", Fraction(10**999)),
        ("1e999999999", None),
        ("9" * 5000, None),
    ],
)
def test_last_number(text: str, number: Fraction | None) -> None:
    assert last_number(text) == number


@given(st.fractions(), st.booleans())
def test_every_fraction_is_read_back(value: Fraction, words: bool) -> None:
    assert last_number(f"so 17 and then {value} apples" if words else str(value)) == value


@given(st.text())
def test_any_text_can_be_searched_for_a_number(text: str) -> None:
    assert last_number(text) is None or isinstance(last_number(text), Fraction)


@pytest.mark.parametrize(
    ("answer", "response", "passed"),
    [
        ("#### 1,000", "the total is 1000", True),
        ("1/3", "0.3333333", True),
        ("1/3", "0.3333", False),
        ("1000000", "1000000.9", True),  # one part in a million
        ("1000000", "1000001.1", False),
        ("5", "no idea", False),
        ("5", "-5", False),
    ],
)
def test_numeric(answer: str, response: str, passed: bool) -> None:
    assert verify(problem(answer, "numeric"), response) is passed


SYMBOLIC = [
    (r"\frac{1}{2}", "the answer is $0.5$", True),
    ("x+1", r"so \boxed{1+x}", True),
    ("x+1", r"so \boxed{x+2}", False),
    (r"$\sqrt{8}$", r"$2\sqrt{2}$", True),
    ("12", "it is 12", True),
    ("12", "no idea", False),
]


@pytest.mark.parametrize(("answer", "response", "passed"), SYMBOLIC)
def test_symbolic(answer: str, response: str, passed: bool) -> None:
    assert verify(problem(answer, "symbolic"), response) is passed


def off_the_main_thread(answer: str, response: str) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(verify, problem(answer, "symbolic"), response).result()


def test_symbolic_works_off_the_main_thread() -> None:
    verdicts = [off_the_main_thread(answer, response) for answer, response, _ in SYMBOLIC]
    assert verdicts == [passed for _, _, passed in SYMBOLIC]
    with pytest.raises(UserError, match="no expression"):
        off_the_main_thread("  ", "1")


@pytest.mark.parametrize("judge", [off_the_main_thread, lambda a, r: verify(problem(a, "symbolic"), r)])
def test_symbolic_gives_up_in_time(monkeypatch: pytest.MonkeyPatch, judge: Callable[[str, str], bool]) -> None:
    off_the_main_thread("1", "1")  # its process has started
    monkeypatch.setattr(answers, "SYMBOLIC_TIMEOUT", 1)
    began = time.monotonic()
    assert judge("7", r"$\sum_{k=1}^{10000000} \frac{1}{k^{k}}$") is False
    assert time.monotonic() - began < 20  # without a limit: minutes


def test_running_sums_marks_by_the_prompt() -> None:
    sheet, flawless = sums.Sheet(start=7, operands=(5, 8, 3), allowed=0), sums.SumsTeacher(forget=0.0, slip=0.0)
    right = sums.demonstrate(sheet, flawless, random.Random(0))
    marked = problem("", "running_sums", sums.render(sheet))
    assert verify(marked, right)
    assert not verify(marked, right[:-1] + str((int(right[-1]) + 1) % 10))
    assert not verify(marked, right[:-1])


@pytest.mark.parametrize(
    ("answer", "verifier", "complaint"),
    [
        ("many", "numeric", "'many' holds no number"),
        ("  ", "symbolic", "no expression"),
        ("x", "running_sums", "not a running-sums prompt"),
        ("x", "operator_sheets", "not an operator-sheet prompt"),
        ("not an entry", "reasoning_gym", "SyntaxError"),
    ],
)
def test_an_unreadable_answer_is_one_line(answer: str, verifier: str, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        verify(problem(answer, verifier), "5")
    message = str(error.value)
    assert message.startswith(f"verifier {verifier}: raised ")
    assert complaint in message and "'p1'" in message and "\n" not in message


def test_a_verifier_that_raises_is_one_line(register: Callable[[str, Any], None]) -> None:
    def broken(problem: Problem, response: str) -> bool:
        raise KeyError("first line\nsecond line")

    register("broken", broken)
    with pytest.raises(UserError) as error:
        verify(problem("1", "broken"), "1")
    assert str(error.value) == (
        r"verifier broken: raised KeyError: 'first line\nsecond line' on problem 'p1'; "
        "correct that problem's answer, or give it another verifier"
    )


def test_a_response_on_which_a_verifier_raises_has_failed_and_is_counted(register: Callable[[str, Any], None]) -> None:
    def brittle(problem: Problem, response: str) -> bool:
        return len(response) == 0 or 1 / int(response) > 0

    register("brittle", brittle)
    take_counts()
    assert [verify(problem("1", "brittle"), response) for response in ("1", "0", "x", "9" * 5000)] == [True] + [
        False
    ] * 3
    assert take_counts() == {"raised": 3}


def test_a_score_is_not_a_verdict(register: Callable[[str, Any], None]) -> None:
    register("partial", lambda problem, response: 0.3)
    with pytest.raises(UserError, match=r"verifier partial: returned 0\.3 for problem 'p1'"):
        verify(problem("1", "partial"), "1")


def test_an_unknown_verifier_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown name 'numerik'; did you mean 'numeric'"):
        verify(problem("1", "numerik"), "1")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(UserError, match=r"needs the package math_verify; pip install 'halfway\[tasks\]'"):
        verify(problem("1", "symbolic"), "1")


def test_a_reference_that_was_not_read_in_time_is_no_mistake_of_the_data_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import math_verify

    def late(*_: Any, **__: Any) -> list[Any]:
        logging.getLogger("math_verify.parser").warning("Timeout during parsing")
        return []

    with monkeypatch.context() as patch:
        patch.setattr(math_verify, "parse", late)
        assert answers.symbolically("2/4", r"\boxed{1/2}", 5) is None
    assert answers.symbolically("2/4", r"\boxed{1/2}", 5) is True
    monkeypatch.setattr(math_verify, "parse", lambda *_, **__: [])
    with pytest.raises(ValueError, match="finds no expression"):
        answers.symbolically("3/4", "1", 5)
