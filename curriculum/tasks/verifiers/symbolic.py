"""Compares expressions by math-verify, with guards against false equality."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise, permutations, product
from typing import Any

from halfway.curriculum import Problem
from halfway.curriculum.support.extras import load_extra
from halfway.curriculum.tasks.verifiers import helpers
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched
from halfway.curriculum.tasks.verifiers.numbers import (
    PROSE,
    after_thoughts,
    bases_differ,
    close,
    denies,
    final_answer,
    hedges,
    is_to_be_solved,
    only_denied,
    plain_number,
    tidy,
)
from halfway.curriculum.tasks.verifiers.words import (
    denies_code,
    is_word,
    last_code,
    read_choice,
    read_choices,
    read_code,
    read_words,
    stated_choice,
    stated_words,
    units_differ,
    without_unit,
)

SYMBOLIC_TIMEOUT = 5
"""Seconds that math-verify may take for one parse or comparison."""

MOST = 8
"""Time limits per answer after which its process ends: two texts with two readings each."""

TOLERANCE = 1e-6
"""Relative tolerance for numbers that are not integers, as math-verify rounds."""


def _judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool]:
    """Compare final expressions with answers: plain numbers exactly, words as text, all else by math-verify.

    Integers must be equal; other plain numbers may differ by a millionth of the answer. Words ignore case and articles.
    Options are equal by letter or, as in (A) 12, by content; several, as in ACD or A, C and D, as a set. Dates and
    scores such as 3-1 are not subtractions. Even if math-verify says "equal", these fail: numbers with different
    leading digits below 1e-6, different known units (feet, meters), different bases (1010_2, 1010_3), a chain of
    equations with two values (2+2=5), an equation to solve instead of a value (x^2=4 for 4), and an answer that the
    response denies outside a box.

    Text before </think> does not count. A response in one line without words is its own final expression, and so is the
    text after "answer is" or "answer:" at the end of an unmarked response. In other unmarked text with several numbers
    the final one is unclear, so a refusal that names the answer may pass: ask for a box. Each parse and comparison may
    take `SYMBOLIC_TIMEOUT` seconds.

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
    """Judge one response in a helper's process; None if a time-out stopped math-verify."""
    response = after_thoughts(response)
    final = _unbold(final_answer(response))
    expected = final_answer(answer) or answer
    if (verdict := _judge_text(expected, response, final, seconds)) is not None:
        return verdict
    if final is None and _is_bare(response):
        final = response.strip().removesuffix(".")
    if final is None and (said := _find_stated(response)) and _is_bare(said):
        final = _unbold(said)
    reference, given = plain_number(expected), plain_number(response if final is None else final)
    if reference is not None and given is None and final is not None:
        given = plain_number(without_unit(final))
    if reference is not None and given is not None and not hedges(response):
        return close(given, reference, TOLERANCE)
    if reference is not None and not response:  # a check of answers: this one is readable
        return False
    math_verify = load_extra("math_verify", "the symbolic verifier")
    with _time_outs() as late:
        parsed = _symbolic_reference(answer, seconds)
        if not parsed:
            _symbolic_reference.cache_clear()  # do not cache a busy machine's time-out
            if late:
                return None
            raise ValueError(f"math-verify finds no expression in the answer {answer!r}")
        if final is not None and not final.strip("\\ ~,;:!"):
            return False
        text = response
        if final is not None and "\\boxed" not in _spell_out(response):  # between tags, which math-verify ignores
            prose = PROSE.search(final) or re.search(r"[^$]\$|\\[(\[]", final)
            text = final if prose else f"\\boxed{{{final.strip().strip('$')}}}"
        found = math_verify.parse(_spell_out(text), parsing_timeout=seconds)
        equal = math_verify.verify(list(parsed), found, timeout_seconds=seconds) or _equal_if_imaginary(parsed, found)
        formula = _FORMULA.findall(response)[-1:] if final is None else [final]
        stated = formula[0] if formula else ""
        if equal:
            return not (
                (reference is not None and hedges(response))
                or _numbers_apart(parsed, found)
                or _lists_apart(expected, stated)
                or (is_word(expected) and read_words(stated) not in (None, read_words(expected)))  # act for cat
                or units_differ(answer, response if final is None else final)
                or bases_differ(expected, stated)
                or {_kind(expected), _kind(stated)} == {"set", "tuple"}
                or (final is None and denies(response))
                or (final is None and reference is not None and only_denied(response, reference))
                or _contradicts_itself(stated, seconds)
                or ("=" not in expected and is_to_be_solved(stated))
                or (reference is not None and final is not None and _RELATION.search(final))
            )
    return None if late else False


def _unbold(final: str | None) -> str | None:
    return final and re.sub(r"^\s*\*\*(.*?)\*\*\s*$", r"\1", final)


_END = 300
"""Characters at the end of a response in which to search for "answer is"."""
_SAID = re.compile(
    "(?:\\banswer(?: is|:)\\s+|\u7b54\u6848[\u662f\u4e3a:\uff1a]+\\s*)(\\S[^\\n]*?)[.\u3002]?\\s*$", re.I
)


def _find_stated(response: str) -> str:
    """The text after "answer is" or "answer:" at the end of a response; "" if there is none."""
    found = _SAID.search(response.rstrip()[-_END:])
    return found[1] if found else ""


_FORMULA = re.compile(r"(?:\$|\\\()([^$]+?)(?:\$|\\\))")
_BARE_WORD = re.compile(r"(?<!\\)(?<![^\W\d_])(?!(?:sqrt|log|ln|exp|sin|cos|tan|pi)(?![^\W\d_]))[^\W\d_]{2,}")


def _is_bare(response: str) -> bool:
    """True if an unmarked response is one expression: a line without words or delimiters."""
    line = response.strip()
    delimited = "$" in line or "\\(" in line or "\\[" in line
    return 0 < len(line) <= 100 and "\n" not in line and not delimited and not _BARE_WORD.search(_unwrap(line))


def _unwrap(text: str) -> str:
    """Remove LaTeX commands from a text."""
    return re.sub(r"\\(?:begin|end)\{\w+\*?\}|\\[a-zA-Z]+", " ", text)


def _judge_text(expected: str, response: str, final: str | None, seconds: int) -> bool | None:
    """Compare words or options; None if answer and response must be compared as expressions."""
    if (code := read_code(expected)) is not None:
        given_code = last_code(response) if final is None else read_code(final)
        return given_code == code and not hedges(response) and not (final is None and denies_code(response))
    options = read_choices(expected)
    right = read_choice(expected)
    given = stated_choice(response) if final is None else read_choice(final)
    if right is not None and final is not None and given is None:  # "Answer: D" below a box with a formula
        below = _ANSWER_BELOW.search(response.rpartition("\\boxed")[2])
        given = read_choice(below[1]) if below else None
    words = read_words(stated_words(response) if final is None else final) if is_word(expected) else None
    if expected.strip().islower():  # a variable
        right = None
    if right is not None and given is not None:
        same = right.letter == given.letter and (
            not (right.rest and given.rest) or _is_same(right.rest, given.rest, seconds)
        )
    elif right is not None and right.rest and final is not None:
        same = _is_same(right.rest, final, seconds)
    elif given is not None and given.rest and _is_same(expected, given.rest, seconds):
        same = True
    elif options and (given_options := read_choices(stated_words(response) if final is None else final)):
        same = given_options == options
    elif words is not None:
        same = words == read_words(expected)
    elif (stated := _find_stated(response) if final is None else final) and _letters(stated) == _letters(expected):
        same = True
    else:
        return None
    return same and not hedges(response)


_ANSWER_BELOW = re.compile(r"\n[*_\s]*(?:final\s+)?answer[*_\s]*:[*_\s]*(\S{1,20}?)[*_\s.]*$", re.I)


def _is_same(expected: str, given: str, seconds: int) -> bool:
    """True if two texts are the same expression, or the same text if the first is not an expression."""
    try:
        return symbolically(expected, _box(given), seconds) is True
    except ValueError:
        return expected.strip() == given.strip()


def _box(text: str) -> str:
    return f"\\boxed{{{text.strip().strip('$')}}}"


def equivalent(answers: Sequence[str]) -> bool | None:
    """Compare final answers, each as in a box: True if all are mathematically equal.

    math-verify's comparison is not symmetric, so both directions must hold.

    Returns:
        None if one of them is not an expression.
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
    """Collect math-verify's reports of its own time-outs, after which it calls answers unequal."""
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
    # math-verify reads LaTeX only between delimiters, but data sets have bare expressions such as x+1.
    text = _spell_out(answer)
    delimited = text.count("$") >= 2 or any(mark in text for mark in ("\\boxed", "\\(", "\\["))
    if not delimited:
        text = f"\\boxed{{{text.replace('$', '')}}}"
    return tuple(load_extra("math_verify", "the symbolic verifier").parse(text, parsing_timeout=seconds))


_TERM = r"(?:\\[dt]?frac\s?\{[\w\\]+\}\s?\{[\w\\]+\}|\\sqrt\s?\{\w+\}|\\(?:pi|infty)(?![a-zA-Z])|[\w.+-])++"
_ABOVE = r"(>|\\g(?:eq?|t)(?![a-zA-Z])|\u2265)"
_DESCENDING = re.compile(rf"(?<![\w.+\\}}-])({_TERM})\s*{_ABOVE}\s*({_TERM})\s*{_ABOVE}\s*({_TERM})(?!\s*[<>=\\])")
"""A chain such as 5>x>2, which math-verify does not compare with 2<x<5."""
_DEGREES = re.compile(r"\s?\N{DEGREE SIGN}|\\degree(?![a-zA-Z])")
_SPELLINGS = {
    "\\fbox": "\\boxed",
    "\\varnothing": "\\emptyset",
    "\N{INFINITY}": "\\infty ",
    "\\langle": "(",
    "\\rangle": ")",
}
_PRODUCT = re.compile("[\N{MIDDLE DOT}\N{DOT OPERATOR}]")
_FUNCTION = re.compile(r"(?<![\\a-zA-Z])(sin|cos|tan|log|ln|exp)(?=\s?\()")


def _spell_out(text: str) -> str:
    """Rewrite a text for math-verify: signs of degrees, products and functions in LaTeX, numbers `tidy`."""
    text = _FUNCTION.sub(r"\\\1", _DEGREES.sub(r"^{\\circ}", _PRODUCT.sub(r" \\cdot ", text)))
    text = re.sub(r"(?<=[\w)}])( ?)\*\*\1(?=[\d({])", "^", text)  # x**2
    text = re.sub(r"(?<![a-zA-Z\\])sqrt\s?\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<=\w)\s?\*\s?(?=[\w(\\])", r" \\cdot ", text)
    text = re.sub(r"(?<![a-zA-Z\\])pi(?![a-zA-Z])|\N{GREEK SMALL LETTER PI}", r"\\pi ", text)
    text = re.sub(r"\N{SQUARE ROOT}\s?(\d+|[a-z])", r"\\sqrt{\1}", text)
    text = _DESCENDING.sub(_ascending, re.sub(r"\\[bB]igg?[lr](?![a-zA-Z])", "", text))
    text = re.sub(r"(\\[dt]?binom)\s?(\d)\s?(\d)", r"\1{\2}{\3}", text)
    text = re.sub(r"\\(?:mathrm|operatorname)\s*\{\s*([ei])\s*\}", r" \1", text)  # upright constants
    braced = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)  # otherwise it reads only the factor before it
    plain = tidy(re.sub(r"\\\$\s?(?=[\d.])", "", braced))
    for written, usual in _SPELLINGS.items():
        plain = plain.replace(written, usual)
    return plain


def _ascending(found: "re.Match[str]") -> str:
    first, above, middle, then_above, last = found.groups()
    signs = ["<" if sign in (">", "\\gt") else r" \leq " for sign in (then_above, above)]
    return f"{last}{signs[0]}{middle}{signs[1]}{first}"


def _numbers_apart(references: Sequence[Any], given: Sequence[Any]) -> bool:
    """True if one of two parsed numbers is below 1e-6 in all pairs, and they differ by one part in ten thousand.

    math-verify rounds to about six decimals, so all small numbers are equal to it.
    """
    lefts, rights = ([_evaluate(part) for part in parts] for parts in (references, given))
    pairs = [(left, right) for left, right in product(lefts, rights) if left is not None and right is not None]
    return bool(pairs) and all(
        min(abs(left), abs(right)) < 1e-6 and abs(left - right) > 1e-4 * abs(left) for left, right in pairs
    )


def _equal_if_imaginary(references: Sequence[Any], given: Sequence[Any]) -> bool:
    """True if two parsed expressions are one number as soon as i, which math-verify reads as a name, is the unit."""
    if not references or not given:
        return False
    sympy = load_extra("sympy", "the symbolic verifier")
    parts = [part for part in (references[0], given[0]) if isinstance(part, sympy.Expr)]
    names = {name: sympy.I for part in parts for name in part.free_symbols if name.name == "i"}
    if len(parts) < 2 or not names:
        return False
    left, right = (_value(part.subs(names)) for part in parts)
    return left is not None and right is not None and abs(left - right) <= 1e-9 * abs(left)


_TEXT = re.compile(r"\\(?:text|mathrm|operatorname)[a-z]*\s*\{([^{}]*)\}")
_MORE = re.compile(r"[,:;]\s*(?:\\[lc]?dots(?![a-zA-Z])|\.\.\.|\u2026)")


def _lists_apart(expected: str, stated: str) -> bool:
    """True if one of two texts is a list with an ellipsis, which math-verify does not read, and the other differs."""
    listed = _MORE.search(expected) or _MORE.search(stated)
    return listed is not None and _letters(expected) != _letters(stated)


def _letters(text: str) -> str:
    """A text without typesetting, and without spaces except between two digits."""
    dotted = _TEXT.sub(r"\1", re.sub(r"\\[lc]?dots(?![a-zA-Z])|\u2026", "...", text))
    spaced = re.sub(r"\\(?:left|right)(?![a-zA-Z])|\$", "", re.sub(r"(?:\\[,;! ]|[\s~])+", " ", dotted))
    return re.sub(r"(?<!\d) | (?!\d)", "", spaced)


def _evaluate(part: Any) -> Any:
    """A parsed number as a finite number of SymPy, which neither over- nor underflows; None for other expressions."""
    try:
        value = part.evalf() if part.is_number else None
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    return value if value is not None and value.is_finite else None


def _value(part: Any) -> complex | None:
    """The value of a parsed number; None for other expressions."""
    try:
        return complex(_evaluate(part))
    except (TypeError, ValueError, OverflowError):
        return None


def _kind(text: str) -> str | None:
    """The kind of a text in brackets: a set or a tuple (or an open interval); None for all else."""
    core = re.sub(r"\\(?:left|right)(?![a-zA-Z])|[\s$]", "", text)
    if core.startswith("\\{") and core.endswith("\\}"):
        return "set"
    return "tuple" if re.fullmatch(r"\([^()]*,[^()]*\)", core) else None


_RELATION = re.compile(
    r"\\(?:to|rightarrow|neq?|leq?|geq?|lt|gt|not)(?![a-zA-Z])|\\text\s*\{\s*(?:not|or)\b|[<>\u2260\u2264\u2265]|\d'\d"
)


def _contradicts_itself(stated: str, seconds: int) -> bool:
    """True if an answer is a chain of equations with two different values, such as 4=5 or 2+2=5.

    A decimal may be another side, cut or rounded to its digits, as in 1/3=0.33.
    """
    one = "=" in stated and not re.search(r"[,;]|\\text|\b(?:and|or)\b", stated)
    sides = [side for side in stated.split("=") if side.strip()][-MOST:] if one else []
    found = [(value, side) for side in sides if (value := _side(side, seconds)) is not None]
    return any(abs(left - right) > max(_last_place(a), _last_place(b)) for (left, a), (right, b) in pairwise(found))


def _side(text: str, seconds: int) -> float | None:
    """The value of one side of an equation; None unless it is a real number."""
    if (number := plain_number(text)) is not None:
        return float(number)
    value = next(map(_value, _symbolic_reference(_box(text), seconds)), None)
    return value.real if value is not None and value.imag == 0 else None


def _last_place(side: str) -> float:
    """One in the last place of a decimal; for other expressions, the rounding error."""
    places = re.fullmatch(r"[\s$-]*\d*\.(\d+)[\s$.]*", side)
    return float(10 ** -len(places[1])) if places else 1e-9
