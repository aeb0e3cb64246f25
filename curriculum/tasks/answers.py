"""What a verifier is, and those that compare a response with an answer: as texts, as numbers, as expressions."""

import multiprocessing
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any, TypeVar

from halfway.curriculum.problems import Problem
from halfway.curriculum.support.extras import load_extra

Verifier = Callable[[Problem, str], bool]


@dataclass(frozen=True)
class Batched:
    """A verifier that judges many responses together in less time than one after the other.

    Attributes:
        judge: the verdict on each response, in order.
    """

    judge: Callable[[Sequence[Problem], Sequence[str]], list[bool]]

    def __call__(self, problem: Problem, response: str) -> bool:
        return self.judge([problem], [response])[0]


Returned = TypeVar("Returned")

NUMERIC_TOLERANCE = Fraction(1, 10**6)
"""Two numbers are equal if they differ by at most this share of the larger of 1 and the reference."""

SYMBOLIC_TIMEOUT = 5
"""Seconds that math-verify may take for one parse or comparison."""


def exact(problem: Problem, response: str) -> bool:
    """Whether the texts are equal, apart from white space at both ends."""
    return response.strip() == problem.answer.strip()


# A sign belongs to the number unless it stands between two operands, as in 5-3.
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?:(?<![\w).])[+-](?:\\?\$)?)?(?<![\w.])(?:\\[dt]?frac\{{(?P<n>-?\d+)\}}\{{(?P<d>\d+)\}}"
    rf"|(?P<p>{_UNSIGNED})(?:\s?/\s?(?P<q>{_UNSIGNED}))?)"
)
_LONG_EXPONENT = re.compile(r"[eE][+-]?\d{4}")


def last_number(text: str) -> Fraction | None:
    """The last number in a text, exactly, or None.

    Reads signs, thousands commas, decimals, exponents of up to three digits, and fractions (3/4 or a LaTeX frac), but
    no mixed numbers. A number that directly follows a letter, as in x2, is part of a name.
    """
    matches = list(_NUMBER.finditer(text.replace("\N{MINUS SIGN}", "-")))
    if not matches:
        return None
    found = matches[-1]
    sign = -1 if found[0].startswith("-") else 1
    over, under = (found["n"], found["d"]) if found["n"] else (found["p"], found["q"] or "1")
    if _LONG_EXPONENT.search(found[0]):  # a short text for an integer of any size
        return None
    try:
        return sign * Fraction(over.replace(",", "")) / Fraction(under.replace(",", ""))
    except (ValueError, ZeroDivisionError):  # more digits than Python converts, or a division by zero
        return None


def numeric(problem: Problem, response: str) -> bool:
    """Whether the last number of the response equals the last number of the answer, up to `NUMERIC_TOLERANCE`.

    Raises:
        ValueError: if the answer holds no number.
    """
    reference = last_number(problem.answer)
    if reference is None:
        raise ValueError(f"the answer {problem.answer!r} holds no number")
    number = last_number(response)
    return number is not None and abs(number - reference) <= NUMERIC_TOLERANCE * max(Fraction(1), abs(reference))


def symbolic(problem: Problem, response: str) -> bool:
    """Whether the expressions are equal by math-verify, with each parse and comparison within `SYMBOLIC_TIMEOUT`.

    Raises:
        ValueError: if math-verify finds no expression in the answer.
    """
    return _in_time(_symbolic, problem.answer, response)


def _symbolic(answer: str, response: str, seconds: int) -> bool:
    math_verify = load_extra("math_verify", "the symbolic verifier")
    reference = _symbolic_reference(answer, seconds)
    if not reference:
        raise ValueError(f"math-verify finds no expression in the answer {answer!r}")
    found = math_verify.parse(response, parsing_timeout=seconds)
    return bool(math_verify.verify(list(reference), found, timeout_seconds=seconds))


def equivalent(answers: Sequence[str]) -> bool | None:
    """Whether final answers, each as it would stand in a box, are all mathematically equal to each other.

    math-verify's comparison is not symmetric, so both directions have to hold.

    Returns:
        None if math-verify cannot read one of them as an expression.
    """
    return _in_time(_equivalent, answers)


def _equivalent(answers: Sequence[str], seconds: int) -> bool | None:
    math_verify = load_extra("math_verify", "the comparison of answers")
    parsed = [_symbolic_reference(f"\\boxed{{{answer}}}", seconds) for answer in answers]
    if any(all(isinstance(part, str) for part in parts) for parts in parsed):
        return None
    return all(
        math_verify.verify(list(left), list(right), timeout_seconds=seconds) for left, right in permutations(parsed, 2)
    )


def _in_time(function: Callable[..., Returned], *arguments: Any) -> Returned:
    """`function` with a limit in seconds as its last argument.

    math-verify interrupts a long computation by a signal, which Python allows only on the main thread. Other threads
    have the computation done on the main thread of a helper process.
    """
    if threading.current_thread() is threading.main_thread():
        return function(*arguments, SYMBOLIC_TIMEOUT)
    return _helper().submit(function, *arguments, SYMBOLIC_TIMEOUT).result()


@lru_cache(maxsize=1)
def _helper() -> ProcessPoolExecutor:
    # Not forked: this process has threads, and often a device.
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _end_with_parent)


def _end_with_parent() -> None:
    """End this process when its parent ends; an executor's process would otherwise outlive a parent that was killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@lru_cache(maxsize=4096)
def _symbolic_reference(answer: str, seconds: int) -> tuple[Any, ...]:
    # math-verify looks for LaTeX only between delimiters, and a bare x+1 is an expression to the reader of a data set.
    delimited = any(mark in answer for mark in ("$", "\\boxed", "\\(", "\\["))
    text = answer if delimited else f"\\boxed{{{answer}}}"
    return tuple(load_extra("math_verify", "the symbolic verifier").parse(text, parsing_timeout=seconds))
