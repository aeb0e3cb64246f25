"""Verifiers, and the helper processes in which they judge."""

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import says

from halfway.curriculum import Problem, UserError
from halfway.curriculum.support import extras
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.verifiers import helpers, symbolic
from halfway.curriculum.tasks.verifiers.exact_numeric import Lost
from halfway.curriculum.tasks.verifiers.helpers import Helpers, Unjudged, take_counts
from halfway.curriculum.tasks.verifiers.numbers import last_number, only_number, tidy
from halfway.curriculum.tasks.verifiers.symbolic import SYMBOLIC_TIMEOUT
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS, verify, verify_all


def problem(answer: str, verifier: str, prompt: str = "?") -> Problem:
    return Problem("p1", prompt, answer, "test", verifier)


@pytest.fixture
def register() -> Iterator[Callable[[str, Any], None]]:
    before = dict(VERIFIERS._added)
    yield VERIFIERS.add
    VERIFIERS._added.clear()
    VERIFIERS._added.update(before)


@pytest.mark.parametrize(("response", "passed"), [("42", True), (" 42\n", True), ("042", False), ("42.", False)])
def test_exact_compares_trimmed_text(response: str, passed: bool) -> None:
    assert verify(problem("42 ", "exact"), response) is passed


@pytest.mark.parametrize(
    ("response", "passed"),
    [
        ("The answer is 12. (See step 3.)", True),
        ("The answer is 13. (See step 12.)", False),
        ("Therefore, the answer is **12** (3 days x 4).", True),
        ("Answer: 12 apples (2 bags of 6)", True),
        ("The answer is 12 (mod 15)", True),
        ("The answer is 13 (not 12)", False),
        ("The answer is 13 (or 12)", False),
        ("The answer is (12)", True),
        ("The answer is the sum of the last row (12)", True),
        ("Answer: " + "1 " * 50_000 + "(", False),
    ],
)
def test_a_remark_in_brackets_is_not_the_answer(response: str, passed: bool) -> None:
    assert verify(problem("12", "numeric"), response) is passed


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
        ("3 1/2", Fraction(7, 2)),
        ("-3 1/2 cups", Fraction(-7, 2)),
        (r"1\frac{1}{2}", Fraction(3, 2)),
        ("2 3/2", Fraction(3, 2)),
        (r"x_1 \frac{1}{2}", Fraction(1, 2)),
        ("3 12/31/2020", Fraction(2020)),
        ("\u00bd", Fraction(1, 2)),
        ("3\u2153 cups", Fraction(10, 3)),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"-1.1\bar{6}", Fraction(-7, 6)),
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
        ("6", r"<think>\boxed{7}?</think> It is 6.", True),
        ("6", "<think>It is 6.</think> I do not know.", False),
        ("6", r"\boxed{6 dozen}", False),
        ("6", r"\boxed{6 squared}", False),
        ("1/3", "0.3333333", True),
        ("1/3", "0.3333", False),
        ("1/3", "0.333333", True),  # one part in a million
        ("1000000", "1000000.9", False),  # an integer is equal or not
        ("83810205", "83810245", False),
        ("1000003", "1000002", False),
        ("0.0000005", "0", False),
        ("0", "0.0000001", False),
        ("0.0000005", "5e-7", True),
        ("6.02e23", r"about 6.02 \times 10^{23}", True),
        ("25 cm^2", "the area is 25", True),
        ("25 cm^2", "the area is 30 cm^2", False),
        ("1000", "10^3", True),
        ("10", "2^10", False),
        ("18", r"\boxed{18} (3 days x 6)", True),
        ("18", "18 + 3 = 21\n#### 21", False),
        ("5", r"\boxed{4} or \boxed{5}", False),
        ("42", "certainly not 42", False),
        ("42", "42 is wrong", False),
        ("42", "not 41 but 42", True),
        ("1000", r"1\,000", True),
        (r"\$32,\!348", "32348 dollars", True),
        ("7", "#### Step 1: Add\n3 + 4 = 7\nSo the answer is **7**.", True),  # a heading in Markdown
        ("2", "#### 2. Compute\n3 + 4 = 7\nThe answer is 7.", False),
        ("42", r"\boxed{41 or 42}", False),
        ("42", r"\boxed{1,2,3,42}", False),
        ("42", r"\boxed{40+42}", False),
        ("42", r"\boxed{\neq 42}", False),
        ("42", r"\boxed{42 million}", False),
        ("42", "<answer>the sum is 42</answer>", True),
        ("12", "<answer>13 or 12</answer>", False),
        ("12", r"\boxed{13} and maybe \boxed{12}", False),
        ("7", "\\boxed{3}, \\boxed{7}\nSo the final answer is \\boxed{7}", True),
        ("-5", r"\boxed{- 5}", True),
        ("5", r"\boxed{- 5}", False),
        ("5", r"\boxed{5\text{ m s}^{-1}}", True),
        ("0.001", r"\boxed{10^{-3}}", True),
        ("4", "not **4**", False),
        ("5", "no idea", False),
        ("5", "-5", False),
        ("-5", "- 5", True),
        ("5", "- 5", False),
        ("3/2", "1 1/2", True),
        ("1/2", "1 1/2", False),
        ("5 meters", "5 feet", False),
        ("5 meters", "it is 5 meters long, by my count", True),
        ("5 meters", r"\boxed{5\text{ ft}}", False),
        ("5 kg", "5 a day", True),
        ("18", "version 18.0.0", False),
        ("18", "It is 18.0.", True),
        ("42", "<think>so 42", False),
        ("42", "42 <think>or 41", True),
    ],
)
def test_numeric(answer: str, response: str, passed: bool) -> None:
    assert verify(problem(answer, "numeric"), response) is passed


@pytest.mark.parametrize(
    "answer",
    [r"\sqrt{3}", r"2\sqrt{3}", "3 3/2", "4 or 5", r"5\pi", "none", "", "1/0", "10:30", "2x", "5!", ">5", "not 5"],
)
def test_numeric_refuses_an_answer_that_is_not_one_number(answer: str) -> None:
    with pytest.raises(UserError, match=f"verifier numeric.*{re.escape(repr(answer)[1:-1])}.*another verifier"):
        verify(problem(answer, "numeric"), "3")


@pytest.mark.parametrize(
    ("answer", "number"),
    [("25 cm^2", 25), (r"25\text{ cm}^2", 25), (r"90^\circ", 90), (r"50\%", 50), ("15 km/h", 15), ("x = 5", 5),
     (r"\$18.90", Fraction("18.9")), (r"so \boxed{7}", 7), ("3 + 4 = 7\n#### 7", 7), (r"\frac12", Fraction(1, 2))],
)  # fmt: skip
def test_the_number_of_an_answer_with_units_or_a_solution(answer: str, number: Fraction | int) -> None:
    assert only_number(answer) == number


def test_a_verifier_may_have_options() -> None:
    near = problem("3.14159", "numeric(tolerance=0.01)")
    assert verify(near, "3.15") and not verify(near, "3.2") and not verify(problem("3.14159", "numeric"), "3.15")
    for name, remedy in (
        ("numeric(tolerance=nan)", "0 or more"),
        ("numeric(tol=1)", "tolerance"),
        ("exact(x=1)", "none"),
        ("numeric(tolerance=a)", "number"),
    ):
        with pytest.raises(UserError, match=f"verifier {name.partition('(')[0]}.*{remedy}"):
            verify(problem("1", name), "1")


@pytest.mark.parametrize(
    ("verifier", "answer", "passing", "failing"),
    [
        ("any_of", '["4", "four"]', ("4", "four"), ("5", '["4", "four"]')),
        ("any_of(exact)", "4", ("4",), ("four",)),  # a text alone is the only answer
        ("any_of(numeric)", '["2", "-2"]', ("so 2", "#### -2"), ("4", "")),
        ("any_of(numeric(tolerance=0.1))", '["2.5"]', ("2.4",), ("2",)),
        ("any_of(symbolic)", r'["\\frac{1}{2}", "x+1"]', (r"\boxed{0.5}", r"\boxed{1+x}"), (r"\boxed{x}", "")),
    ],
)
def test_any_one_of_several_answers_passes(
    verifier: str, answer: str, passing: tuple[str, ...], failing: tuple[str, ...]
) -> None:
    mine = problem(answer, verifier)
    for response in (*passing, *failing):
        assert verify(mine, response) is (response in passing), response
    responses = [*passing, *failing]
    assert verify_all([mine] * len(responses), responses) == [each in passing for each in responses]


def test_any_of_has_a_known_verifier_and_reads_each_answer() -> None:
    with pytest.raises(UserError, match=r"verifier: unknown name 'oracle'; choose one of any_of, "):
        verify(problem("1", "any_of(oracle)"), "1")
    with pytest.raises(UserError, match=r"verifier any_of\(numeric\): raised ValueError: the answer 'two' holds no"):
        verify(problem('["2", "two"]', "any_of(numeric)"), "3")


def test_a_lost_verdict_counts_unless_another_passes(register: Callable[[str, Any], None]) -> None:
    said = {"a": True, "b": Lost("down"), "c": False}
    register("judge", lambda problem, response: said[problem.answer])
    assert verify(problem('["b", "a"]', "any_of(judge)"), "x") is True
    assert verify(problem('["c", "b", "c"]', "any_of(judge)"), "x") == Lost("down")
    assert verify(problem('["c", "c"]', "any_of(judge)"), "x") is False


@pytest.mark.parametrize(("text", "tidied"), [("1.5e-3", "0.0015"), ("6.02E23", "602" + 21 * "0"), ("x2e3", "x2e3")])
def test_scientific_notation_in_digits(text: str, tidied: str) -> None:
    assert tidy(text) == tidied


# answer, and boxes that pass or fail by both verifiers
NOTATIONS: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("1234567", ("1.234.567", "1'234'567", "1_234_567", "1~234~567"), ("1.234.568", "1.234")),
    ("12", ("12",), ("1'2", "1'200")),
    ("1234567.8", ("1.234.567,8", "1'234'567.8"), ("1.234.667,8",)),
    ("0.125", ("0{,}125", r"\frac 18", r"\frac1{8}", r"\frac{-1}{-8}"), ("125", "0{,}0125")),
    ("7/3", (r"7 \div 3", "7 \u00f7 3", "7\u22153"), (r"3 \div 7",)),
    ("12.5", ("12{,}5", r"12\frac12"), ("125", "12")),
    ("-1/2", (r"\frac{1}{-2}", r"-\frac{-1}{-2}"), (r"\frac{-1}{-2}",)),
    (
        "18",
        ("\u20ac18", "18 \u20ac", "\u00a318", r"\pounds 18", "18~m", r"\textcolor{red}{18}", r"\color{blue} 18"),
        ("\u20ac180",),
    ),
]


@pytest.mark.parametrize("verifier", ["symbolic", "numeric"])
@pytest.mark.parametrize(("answer", "passing", "failing"), NOTATIONS)
def test_notations_of_numbers(verifier: str, answer: str, passing: tuple[str, ...], failing: tuple[str, ...]) -> None:
    for text in (*passing, *failing):
        assert verify(problem(answer, verifier), f"It is \\boxed{{{text}}}.") is (text in passing), text


@pytest.mark.parametrize("verifier", ["symbolic", "numeric"])
@pytest.mark.parametrize(
    ("response", "passed"),
    [
        (r"so \boxed{42", True),
        (r"so $\boxed{42$ as stated in step 3", True),
        (r"so \boxed{42}, and once more \boxed{", False),
        (r"so \boxed{42}, no, \boxed{4", False),
    ],
)
def test_a_box_that_is_cut_off_is_the_last_one(verifier: str, response: str, passed: bool) -> None:
    assert verify(problem("42", verifier), response) is passed


SYMBOLIC = [
    ("72", "#### 72 clips", True),
    ("72", r"\boxed{72 red apples}", True),
    ("72", r"\boxed{72 percent}", True),
    ("72", r"\boxed{72 million}", False),
    ("72", r"\boxed{72 or more}", False),
    ("72", r"\boxed{72 \text{ or more}}", False),
    ("AB", r"\boxed{A and B}", True),
    ("72", r"\boxed{72 abc}", False),
    (r"[2,\infty)", "\\boxed{[2,\u221e)}", True),
    (r"-\infty", "\\boxed{\u221e}", False),
    ("(1,2,3)", r"\boxed{\langle 1,2,3\rangle}", True),
    ("ACD", r"\boxed{A, C \text{ and } D}", True),
    ("ACD", "The answer is (A), (C), (D).", True),
    ("ACD", r"\boxed{A, C}", False),
    ("A, C", r"\boxed{AC}", True),
    ("BAD", r"\boxed{ABD}", False),
    ("x+1", r"It is not \boxed{x+1} but \boxed{x+2", False),
    ("May 17, 2024", r"\boxed{\text{May 17, 2024}}", True),
    ("May 17, 2024", "The answer is May 17, 2024.", True),
    ("May 17, 2024", r"\boxed{\text{May 18, 2024}}", False),
    ("12:30", r"\boxed{12{:}30}", True),
    ("May 1 2", r"\boxed{May 12}", False),
    (r"\binom{5}{2}", r"\boxed{\binom52}", True),
    ("42", "\u7b54\u6848\uff1a42\u3002", True),
    ("42", "\u7b54\u6848\uff1a43", False),
    ("1.5e-3", r"\boxed{0.0015}", True),
    ("1.5e-3", r"\boxed{1.0774}", False),
    ("6.02e23", "The answer is 6.02e23", True),
    ("0.00005", r"\boxed{5\times 10^{-5}}", True),
    (r"\$18.90", r"\boxed{18.9}", True),
    (r"\$32,\!348", "the price is $32348$", True),
    ("1000", r"\boxed{1\,000}", True),
    (r"6.63\times 10^{-34}", r"\boxed{6.63\times 10^{-33}}", False),
    (r"1.6\times 10^{-19}", r"\boxed{0}", False),
    (r"\frac{1}{2^{99}}", r"\boxed{\frac{1}{2^{98}}}", False),
    (r"\frac{1}{2^{99}}", r"\boxed{2^{-99}}", True),
    ("BAC", r"\boxed{ABC}", False),
    ("xy", r"\boxed{yx}", True),
    (r"\text{post}", r"\boxed{\text{stop}}", False),
    (r"\text{East}", r"\boxed{\text{east}}", True),
    (r"5 \text{ feet}", r"\boxed{5\text{ meters}}", False),
    (r"5 \text{ feet}", r"\boxed{5\text{ ft}}", True),
    ("5", r"\boxed{4=5}", False),
    ("5", r"\boxed{2+3=5}", True),
    ("5", r"\boxed{4} or \boxed{5}", False),
    ("42", "it is certainly not 42", False),
    (r"7.41\%", r"\boxed{7.41\%}", True),
    ("5", "<answer>6 apples</answer> $5$", False),
    (r"\sqrt{2}", r"<answer>\sqrt{3}</answer> $\sqrt{2}$", False),
    (r"\sqrt{2}", r"<answer>\sqrt2</answer>", True),
    ("42", r"\boxed{41} or perhaps \boxed{42}", False),
    ("3", r"\boxed{\neq 3}", False),
    ("x+1", "certainly not $x+1$", False),
    ("5 J", r"\boxed{5\text{ kJ}}", False),
    ("3", r"\fbox{3}", True),
    (r"\frac{1}{2}", "the answer is $0.5$", True),
    ("x+1", r"so \boxed{1+x}", True),
    ("x+1", r"so \boxed{x+2}", False),
    (r"$\sqrt{8}$", r"$2\sqrt{2}$", True),
    ("12", "it is 12", True),
    ("12", "no idea", False),
    ("5", r"\boxed{2+2=5}", False),
    ("5", "so $2+2=5$", False),
    ("5", r"\boxed{x = 2+2 = 5}", False),
    ("3", r"\boxed{\log_2 9 = 3}", False),
    ("3", r"\boxed{\log_2 8 = 3}", True),
    ("4", r"\boxed{x^2=4}", False),
    ("4", r"$2x=4$", False),
    ("4", r"\boxed{\frac{x}{2}=4}", False),
    ("x+1", r"\boxed{2x=x+1}", False),
    ("x^2=4", r"\boxed{x^2=4}", True),
    ("4", r"\boxed{a+b=4}", True),
    ("5", r"\boxed{f(2)=5}", True),
    ("5", r"\boxed{f^{-1}(2)=5}", True),
    (r"\frac12", r"\boxed{\sin\theta=\frac12}", True),
    ("cat", r"\boxed{act}", False),
    ("act", r"\boxed{cat}", False),
    ("cat", "$act$", False),
    ("cat", r"\boxed{\text{Cat.}}", True),
    ("no", r"\boxed{on}", False),
    ("abc", r"\boxed{bca}", True),
    ("ABC", r"\boxed{A \cdot C \cdot B}", True),
    ("the derivative", r"\boxed{derivative}", True),
    ("yes", "Yes.", True),
    ("yes", "No.", False),
    ("A", "A", True),
    ("A", "(a)", True),
    ("A", "B", False),
    ("A", "The answer is **(A)**.", True),
    ("A", "The answer is not A", False),
    ("C", "The answer is A, B, C, or D.", False),
    ("A", r"\boxed{B} or \boxed{A}", False),
    ("A", r"\boxed{\textbf{(A) }12}", True),
    ("B", r"\boxed{\textbf{(A) }12}", False),
    ("12", r"\boxed{\textbf{(A) }12}", True),
    ("13", r"\boxed{\textbf{(A) }12}", False),
    (r"\textbf{(A) }12", r"\boxed{A}", True),
    (r"\textbf{(A) }12", r"\boxed{12}", True),
    (r"\textbf{(A) }12", r"\boxed{(A) 13}", False),
    (r"\textbf{(A) }12", r"\boxed{\textbf{(B) }12}", False),
    (r"A\cap B", r"\boxed{A\cap B}", True),
    (r"0.\overline{3}", r"\boxed{\frac13}", True),
    (r"\frac13", r"\boxed{0.\overline{4}}", False),
    ("\u00bd", r"\boxed{0.5}", True),
    ("3/2", "1 1/2", True),
    (r"\pi", "\u03c0", True),
    ("-5", "- 5", True),
    ("6", r"<think>\boxed{7}, or is it?</think> The answer is 6.", True),  # thoughts are no answers
    ("6", r"<think>\boxed{6}</think> I do not know.", False),
    (r"\sqrt2", r"<think>\boxed{\sqrt2}</think>", False),
    ("1010_2", r"\boxed{1010_{2}}", True),
    ("1010_2", r"\boxed{1010}", True),
    ("1010_2", r"\boxed{1010_3}", False),
    ("10", r"\boxed{10_2}", False),
    ("10", r"\boxed{10_{10}}", True),
    ("4", r"$4\sqrt(2)$", False),
    (r"4\sqrt{2}", r"$4\sqrt(2)$", True),
    (r"\emptyset", r"\boxed{\varnothing}", True),
    ("C", "The answer is (C) 12.", True),
    ("C", "The answer is (B) 12", False),
    ("12", "The answer is (C) 12", True),
    ("C", "The answer is (C) 12 or (D) 13", False),
    ("C", "Answer: C) 12", True),
    ("C", "The answer is not C) 12", False),
    ("2024-01-02", r"\boxed{2024-1-2}", True),
    ("2024-01-02", "It was 2024-01-02.", True),
    ("2024-01-02", "It wasn't 2024-01-02.", False),
    ("2024-01-02", r"\boxed{2024-02-01}", False),
    ("2024-01-02", r"\boxed{2021}", False),
    ("02/01/2024", r"\boxed{04/02/2024}", False),
    ("555-0123", r"\boxed{432}", False),
    ("3-1", r"\boxed{2}", False),
    ("3-1", "It ended 3\N{EN DASH}1.", True),
    ("2", r"\boxed{3-1}", True),
    ("90", "90\N{DEGREE SIGN}", True),
    ("90\N{DEGREE SIGN}", r"\boxed{90^\circ}", True),
    ("90\N{DEGREE SIGN}", r"\boxed{91\degree}", False),
    ("1.5e-3", "1.5\N{MIDDLE DOT}10^{-3}", True),
    ("-1", "\N{EN DASH}1", True),
    ("sin(x)", r"\boxed{\sin x}", True),
    ("sin(x)", r"\boxed{\cos x}", False),
    ("Tuesday", "The answer is Tuesday.", True),
    ("Tuesday", r"The answer is $\text{Tuesday}$.", True),
    ("Tuesday", "The answer is not Tuesday.", False),
    ("Tuesday", "I don't think the answer is Tuesday.", False),
    ("Tuesday", "The answer is Monday or Tuesday.", False),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", True),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}", False),
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
    monkeypatch.setattr(symbolic, "SYMBOLIC_TIMEOUT", 1)
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
    told = says("verifier broken", r"KeyError: 'first line\nsecond line'", "'p1'", "answer", "another verifier")
    with pytest.raises(UserError, match=told):
        verify(problem("1", "broken"), "1")


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
    with pytest.raises(UserError, match=says("verifier", "partial", "0.3", "'p1'")):
        verify(problem("1", "partial"), "1")


def test_an_unknown_verifier_names_the_nearest() -> None:
    with pytest.raises(UserError, match=says("'numerik'", "'numeric'")):
        verify(problem("1", "numerik"), "1")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(UserError, match=says("math_verify", "pip install 'halfway[tasks]'")):
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
        assert symbolic.symbolically("2x", r"\boxed{x+x}", 5) is None
    assert symbolic.symbolically("2x", r"\boxed{x+x}", 5) is True
    monkeypatch.setattr(math_verify, "parse", lambda *_, **__: [])
    with pytest.raises(ValueError, match="finds no expression"):
        symbolic.symbolically("x/4", "1", 5)


HALF = Problem("p", "?", r"\frac{1}{2}", "test", "symbolic")
HOSTILE = (
    *("[" * 50_000, "\\boxed{" * 3000, r"\boxed{9^{9^{9^{9}}}}", r"$10^{10^{10}}!$", "\x00\ud800" * 99, "$" * 9999),
    *(r"\boxed{\frac{1}{0}}", "=" * 10_000, r"$\int" * 500 + "$", "1" * 100_000, r"\boxed{__import__('os').abort()}"),
)


@pytest.fixture(autouse=True)
def counts_of_this_test_only() -> Iterator[None]:
    take_counts()
    yield
    take_counts()


@pytest.fixture(scope="module")
def two() -> Helpers:
    return Helpers(2, memory_mib=256)


def test_values_come_in_order_and_unreadable_references_are_refused(two: Helpers) -> None:
    assert two.map("builtins:len", [["a" * n] for n in range(9)], 60) == list(range(9))
    with pytest.raises(ValueError, match="invalid literal"):
        two.map("builtins:int", [["1"], ["x"]], 60)


def test_a_verdict_comes_from_a_replaced_process_after_it_was_killed() -> None:
    """As by a kernel short of memory."""
    assert verify(HALF, "it is $0.5$")
    for process in children():
        os.kill(process, signal.SIGKILL)
    assert verify_all([HALF] * 6, ["it is $0.5$", "it is $0.4$"] * 3) == [True, False] * 3
    assert take_counts() == {}


def test_a_process_that_is_killed_as_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    deaths = tmp_path / "deaths"
    (tmp_path / "dying.py").write_text(
        "import os, signal\n"
        f"with open({str(deaths)!r}, 'a') as file: file.write('x')\n"
        f"if len(open({str(deaths)!r}).read()) != 2: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert Helpers(1, modules=["dying"]).map("builtins:len", [["ab"]], 60) == [2]
    deaths.write_text("xx")  # so that it dies each time
    with pytest.raises(UserError, match=r"does not start \(it was killed, .*\); .*resume"):
        Helpers(1, modules=["dying"]).map("builtins:len", [["ab"]], 60)


def children() -> list[int]:
    """Processes of helpers that this process has started."""
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "helper_process"], capture_output=True, text=True)
    return [int(number) for number in found.stdout.split()]


def test_an_answer_that_ends_its_process_twice_is_counted_and_disturbs_no_other(two: Helpers) -> None:
    assert two.map("os:_exit", [[1]], 60) == [Unjudged("died")]
    assert two.map("builtins:len", [["ab"]], 60) == [2]
    assert take_counts() == {"died": 1}


def test_memory_is_limited(two: Helpers) -> None:
    assert two.map("operator:mul", [["x", 2**32], ["x", 2**10]], 60) == [Unjudged("died"), "x" * 2**10]


def test_slow_checks_are_stopped_and_counted_separately(two: Helpers) -> None:
    two.map("builtins:len", [["a"]] * 4, 60)  # both run
    began = time.monotonic()
    assert two.map("time:sleep", [[600]], 0.2) == [Unjudged("time")]
    assert time.monotonic() - began < 60 and take_counts() == {"time": 1}


def test_an_answer_whose_check_raises_has_failed(two: Helpers) -> None:
    assert two.map("operator:truediv", [[1, 0], [4, 2]], 60) == [Unjudged("raised"), 2.0]
    assert take_counts() == {"raised": 1}


def test_several_work_at_once(two: Helpers) -> None:
    assert len(set(two.map("os:getpid", [[]] * 400, 60))) == 2 <= helpers.PROCESSES


def test_no_text_finds_a_secret_in_a_helper(two: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert Helpers(1).map("os:getenv", [["HF_TOKEN"]], 60) == [None]


def test_a_helper_ends_with_a_killed_parent() -> None:
    program = (
        "import os, signal\n"
        "from halfway.curriculum.tasks.verifiers.helpers import Helpers\n"
        "print(Helpers(1).map('os:getpid', [[]], 60)[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while Path(f"/proc/{killed.stdout.strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_scripts_without_a_guard_may_judge(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from halfway.curriculum.problems import Problem\n"
        "from halfway.curriculum.tasks.verifiers.verify import verify\n"
        "print(verify(Problem('p', '?', '1/2', '', 'symbolic'), '$0.5$'))\n"
    )
    assert subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120).stdout == "True\n"


def test_hostile_answers_end_in_a_verdict_or_are_counted() -> None:
    began = time.monotonic()
    wanted = [f"{text} so $0.5$" if i % 2 else text for i, text in enumerate(HOSTILE)]
    verdicts = verify_all([HALF] * (len(wanted) + 1), [*wanted, "it is $0.5$"])
    assert verdicts[-1] and not any(verdicts[: len(HOSTILE) : 2])
    assert time.monotonic() - began < 8 * SYMBOLIC_TIMEOUT * len(HOSTILE)
    assert set(take_counts()) <= {"time", "died"}


def test_a_reply_is_json_and_never_an_object() -> None:
    """A process that a text has taken over could otherwise run code on this side."""
    [reply] = Helpers(1).map("json:loads", [[json.dumps({"value": ["a", {"b": None}]})]], 60)
    assert reply == {"value": ["a", {"b": None}]}


@pytest.mark.parametrize(
    ("answer", "same", "others"),
    [
        ("-1", (r"e^{i\pi}", r"e^{i\pi} = -1"), (r"e^{2i\pi}", "i")),
        ("i", (r"e^{i\pi/2}",), ("-i", "2i", "1")),
        ("2<x<5", ("5>x>2", r"5 \gt x \gt 2"), (r"5 \ge x > 2", "5>x>1", "2>x>5", "5>y>2", "x>2")),
        (r"\frac{1}{2} \geq x > 0", (r"0 < x \leq \frac{1}{2}",), (r"0 \leq x \leq \frac{1}{2}",)),
    ],
)
def test_powers_of_i_and_chains_of_inequalities(answer: str, same: tuple[str, ...], others: tuple[str, ...]) -> None:
    pytest.importorskip("math_verify", reason="math-verify is not installed (extra train)")
    texts = [*same, *others]
    problem = Problem("p", "?", answer, "s", "symbolic")
    found = verify_all([problem] * len(texts), [f"\\boxed{{{text}}}" for text in texts])
    assert dict(zip(texts, found, strict=True)) == {text: text in same for text in texts}


@pytest.mark.parametrize(
    ("response", "passed"),
    [
        ("The answer is 12. I hope that this helps, and I have 2 more questions!", True),
        ("Answer: **12**. Let me know if 3 steps need more words", True),
        ("The answer is 12 apples. Ask me 3 others!", True),
        ("The answer is 12. Wait, 13 of them", False),
        ("The answer is 12. No, 13 of them", False),
        ("The answer is 12. 13.", False),
        ("The answer is 12. The answer is 13. Ask me 3 others!", False),
        ("If the answer is 12. Ask me 3 others!", False),
        ("The answer is not 12. Ask me 3 others!", False),
        ("The answer is 12 or 13. Ask me 3 others!", False),
    ],
)
def test_an_answer_counts_more_than_a_number_in_the_chatter_after_it(response: str, passed: bool) -> None:
    assert verify(Problem("p", "?", "12", "s", "numeric"), response) is passed
