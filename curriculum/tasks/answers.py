"""What a verifier is, and those that compare a response with an answer: as texts, as numbers, as expressions."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any

from halfway.curriculum.problems import Problem
from halfway.curriculum.support.extras import load_extra
from halfway.curriculum.tasks import helpers

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


NUMERIC_TOLERANCE = Fraction(1, 10**6)
"""Two numbers are equal if they differ by at most this share of the larger of 1 and the reference."""

SYMBOLIC_TIMEOUT = 5
"""Seconds that math-verify may take for one parse or comparison."""

MOST = 8
"""Time limits that one answer can reach, after which its process is ended: two texts with two readings each."""


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


def _judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool]:
    """Whether the expressions are equal by math-verify, with each parse and comparison within `SYMBOLIC_TIMEOUT`.

    Raises:
        ValueError: if math-verify finds no expression in an answer.
    """
    load_extra("math_verify", "the symbolic verifier")
    tasks = [
        (problem.answer, response, SYMBOLIC_TIMEOUT) for problem, response in zip(problems, responses, strict=True)
    ]
    verdicts = helpers.shared(__name__, "math_verify").map(f"{__name__}:symbolically", tasks, MOST * SYMBOLIC_TIMEOUT)
    for verdict in verdicts:
        if verdict is None:
            helpers.counted(helpers.Unjudged("time"))
    return [verdict is True for verdict in verdicts]


symbolic = Batched(_judge)
"""The verifier `symbolic`: see `_judge`."""


def symbolically(answer: str, response: str, seconds: int) -> bool | None:
    """The verdict, inside a helper's process: None if a time-out kept math-verify from finding the texts equal."""
    math_verify = load_extra("math_verify", "the symbolic verifier")
    with _time_outs() as late:
        reference = _symbolic_reference(answer, seconds)
        if not reference:
            _symbolic_reference.cache_clear()  # a busy machine's time-out is not for ever
            if late:
                return None
            raise ValueError(f"math-verify finds no expression in the answer {answer!r}")
        found = math_verify.parse(response, parsing_timeout=seconds)
        equal = bool(math_verify.verify(list(reference), found, timeout_seconds=seconds))
    return None if late and not equal else equal


def equivalent(answers: Sequence[str]) -> bool | None:
    """Whether final answers, each as it would stand in a box, are all mathematically equal to each other.

    math-verify's comparison is not symmetric, so both directions have to hold.

    Returns:
        None if one of them cannot be read as an expression.
    """
    load_extra("math_verify", "the comparison of answers")
    seconds = MOST * SYMBOLIC_TIMEOUT * max(1, len(answers))
    task = [list(answers), SYMBOLIC_TIMEOUT]
    [found] = helpers.shared(__name__, "math_verify").map(f"{__name__}:equivalently", [task], seconds)
    return found if isinstance(found, bool) else None


def equivalently(answers: Sequence[str], seconds: int) -> bool | None:
    """`equivalent`, inside a helper's process."""
    math_verify = load_extra("math_verify", "the comparison of answers")
    parsed = [_symbolic_reference(f"\\boxed{{{answer}}}", seconds) for answer in answers]
    if any(all(isinstance(part, str) for part in parts) for parts in parsed):
        return None
    return all(
        math_verify.verify(list(left), list(right), timeout_seconds=seconds) for left, right in permutations(parsed, 2)
    )


@contextmanager
def _time_outs() -> Iterator[list[str]]:
    """What math-verify reports of its own time-outs meanwhile, which it takes for answers that are not equal."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.msg)  # type: ignore[method-assign]
    logger = logging.getLogger("math_verify")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


@lru_cache(maxsize=4096)
def _symbolic_reference(answer: str, seconds: int) -> tuple[Any, ...]:
    # math-verify looks for LaTeX only between delimiters, and a bare x+1 is an expression to the reader of a data set.
    delimited = any(mark in answer for mark in ("$", "\\boxed", "\\(", "\\["))
    text = answer if delimited else f"\\boxed{{{answer}}}"
    return tuple(load_extra("math_verify", "the symbolic verifier").parse(text, parsing_timeout=seconds))
