"""Compares expressions by math-verify, with guards where it finds different answers equal."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import permutations, product
from typing import Any

from halfway.curriculum import Problem
from halfway.curriculum.support.extras import load_extra
from halfway.curriculum.tasks import helpers
from halfway.curriculum.tasks.answers import Batched
from halfway.curriculum.tasks.numbers import close, denies, final_answer, hedges, plain_number, tidy

SYMBOLIC_TIMEOUT = 5
"""Seconds that math-verify may take for one parse or comparison."""

MOST = 8
"""Time limits that one answer can reach, after which its process is ended: two texts with two readings each."""

TOLERANCE = 1e-6
"""Relative difference up to which two numbers that are not integers are equal, as math-verify rounds."""


def _judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool]:
    """Whether the final expression equals the answer: plain numbers exactly, all else by math-verify.

    An integer is equal or not; other plain numbers may differ by a millionth of the answer. Where math-verify says
    "equal", these still fail: numbers with different leading digits below 1e-6, letters in another order (BAC, ABC),
    known units that differ (feet, meters), a chain of equations with two values (4=5), and an answer that the response
    denies outside a box. Each parse and comparison may take `SYMBOLIC_TIMEOUT` seconds.

    Raises:
        ValueError: if math-verify finds no expression in an answer.
    """
    load_extra("math_verify", "the symbolic verifier")
    tasks = [
        (problem.answer, response, SYMBOLIC_TIMEOUT) for problem, response in zip(problems, responses, strict=True)
    ]
    verdicts = helpers.get_helpers(__name__, "math_verify").map(
        f"{__name__}:symbolically", tasks, MOST * SYMBOLIC_TIMEOUT
    )
    for verdict in verdicts:
        if verdict is None:
            helpers.count(helpers.Unjudged("time"))
    return [verdict is True for verdict in verdicts]


symbolic = Batched(_judge)
"""The verifier `symbolic`: see `_judge`."""


def symbolically(answer: str, response: str, seconds: int) -> bool | None:
    """The verdict, inside a helper's process: None if a time-out kept math-verify from finding the texts equal."""
    final = final_answer(response)
    reference, given = plain_number(final_answer(answer) or answer), plain_number(response if final is None else final)
    if reference is not None and given is not None and not hedges(response):
        return close(given, reference, TOLERANCE)
    if reference is not None and not response:  # as when answers are checked: it can be read
        return False
    math_verify = load_extra("math_verify", "the symbolic verifier")
    with _time_outs() as late:
        parsed = _symbolic_reference(answer, seconds)
        if not parsed:
            _symbolic_reference.cache_clear()  # a busy machine's time-out is not for ever
            if late:
                return None
            raise ValueError(f"math-verify finds no expression in the answer {answer!r}")
        text = response
        if final is not None and "\\boxed" not in _spell_out(response):  # between tags, which math-verify ignores
            prose = re.search(r"[^\W\d_]{2,} [^\W\d_]{2,}|[^$]\$|\\[(\[]", final)
            text = final if prose else f"\\boxed{{{final.strip().strip('$')}}}"
        found = math_verify.parse(_spell_out(text), parsing_timeout=seconds)
        equal = bool(math_verify.verify(list(parsed), found, timeout_seconds=seconds))
    if equal:
        return not (
            (reference is not None and hedges(response))
            or _numbers_apart(parsed, found)
            or _words_apart(answer, response if final is None else final)
            or _units_apart(answer, response if final is None else final)
            or (_self_contradicting(final) if final is not None else denies(response))
            or (reference is not None and final is not None and _RELATION.search(final))
        )
    return None if late else False


def equivalent(answers: Sequence[str]) -> bool | None:
    """Whether final answers, each as it would stand in a box, are all mathematically equal to each other.

    math-verify's comparison is not symmetric, so both directions have to hold.

    Returns:
        None if one of them cannot be read as an expression.
    """
    load_extra("math_verify", "the comparison of answers")
    seconds = MOST * SYMBOLIC_TIMEOUT * max(1, len(answers))
    task = [list(answers), SYMBOLIC_TIMEOUT]
    [found] = helpers.get_helpers(__name__, "math_verify").map(f"{__name__}:equivalently", [task], seconds)
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
    text = _spell_out(answer)
    delimited = text.count("$") >= 2 or any(mark in text for mark in ("\\boxed", "\\(", "\\["))
    if not delimited:
        text = f"\\boxed{{{text.replace('$', '')}}}"
    return tuple(load_extra("math_verify", "the symbolic verifier").parse(text, parsing_timeout=seconds))


def _spell_out(text: str) -> str:
    """The text as math-verify can read it: money without its escaped sign, numbers `tidy`, one kind of box."""
    return tidy(re.sub(r"\\\$\s?(?=[\d.])", "", text)).replace("\\fbox", "\\boxed")


def _numbers_apart(references: Sequence[Any], given: Sequence[Any]) -> bool:
    """Whether all pairs of parsed numbers differ by more than one part in ten thousand.

    math-verify rounds to six decimals or so, and so takes all small numbers for equal.
    """
    lefts, rights = ([_value(part) for part in parts] for parts in (references, given))
    pairs = [(left, right) for left, right in product(lefts, rights) if left is not None and right is not None]
    return bool(pairs) and all(abs(left) < 1e-6 and abs(left - right) > 1e-4 * abs(left) for left, right in pairs)


def _value(part: Any) -> complex | None:
    """The value of a parsed number; None for other expressions."""
    try:
        return complex(part.evalf()) if part.is_number else None
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None


def _words_apart(answer: str, final: str) -> bool:
    """Whether the answer is letters that are no product (capitals, text, or four and more), and the final one differs.

    math-verify multiplies letters, so BAC and ABC are equal to it.
    """
    word, other = _letters(answer), _letters(final)
    named = "\\text" in answer or word.isupper() or len(word) >= 4
    return len(word) >= 2 and word.isalpha() and other.isalpha() and named and word.lower() != other.lower()


def _letters(text: str) -> str:
    return re.sub(r"\\(?:text|mathrm|textbf|operatorname)|[\s${}\\.]", "", final_answer(text) or text)


_UNITS = {
    alias: names.split()[0]
    for names in (
        "m meter meters metre metres",
        "cm centimeter centimeters centimetre centimetres",
        "mm millimeter millimeters millimetre millimetres",
        "km kilometer kilometers kilometre kilometres",
        "inch inches",
        "ft foot feet",
        "yd yard yards",
        "mi mile miles",
        "s sec second seconds",
        "min minute minutes",
        "h hr hour hours",
        "day days",
        "week weeks",
        "year years",
        "g gram grams",
        "kg kilogram kilograms",
        "lb lbs pound pounds",
        "l liter liters litre litres",
        "ml milliliter milliliters",
        "cent cents",
        "dollar dollars",
        "n newton newtons",
        "j joule joules",
        "kj kilojoule kilojoules",
        "w watt watts",
        "kw kilowatt kilowatts",
        "v volt volts",
        "a amp amps ampere amperes",
        "ma milliamp milliamps milliampere milliamperes",
        "pa pascal pascals",
        "kpa kilopascal kilopascals",
        "hz hertz",
        "khz kilohertz",
        "mol mole moles",
        "degree degrees",
        "radian radians",
    )
    for alias in names.split()
}
_LAST_WORD = re.compile(r"\d[^=]*?([A-Za-z]+)\}?(?:\^\{?(\d)\}?)?[\s.$}]*$")


def _units_apart(answer: str, final: str) -> bool:
    """Whether both end in a number with a known unit, and the units differ. math-verify drops units."""
    found = [_LAST_WORD.search(text[-60:]) for text in (answer, final)]
    units = [_UNITS.get(one[1].lower()) if one else None for one in found]
    powers = {one[2] for one in found if one and one[2]}
    return None not in units and (units[0] != units[1] or len(powers) > 1)


_RELATION = re.compile(r"\\(?:neq?|leq?|geq?|lt|gt|not)(?![a-zA-Z])|\\text\s*\{\s*not\b|[<>\u2260\u2264\u2265]")


def _self_contradicting(final: str) -> bool:
    """Whether a final answer is a chain of equations with two different numbers, such as 4=5."""
    numbers = {number for side in final.split("=") if (number := plain_number(side)) is not None}
    return len(numbers) > 1
