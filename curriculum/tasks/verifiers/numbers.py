"""Reads numbers exactly from text and LaTeX, and finds the final answer of a response."""

import re
import unicodedata
from collections import deque
from fractions import Fraction
from functools import lru_cache

# A sign belongs to the number unless it is between two operands, as in 5-3.
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
_TIMES = r"(?:x|\*|\\times|\\cdot|[\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}\N{DOT OPERATOR}])"
_POWER = rf"(?:\s?{_TIMES}\s?10\s?(?:\^|\*\*)\s?\{{?(?P<ten>[+-]?\d+)\}}?)"
_NUMBER = re.compile(
    rf"(?:(?<![\w).])[+-]\$?)?(?<![\w.^])(?<![\^_]\{{)(?<!\^[+-])(?<!\^\{{[+-])"
    rf"(?:\\[dt]?frac\s?\{{(?P<n>-?\d+)\}}\s?\{{(?P<d>\d+)\}}"
    rf"|(?P<p>{_UNSIGNED})(?!\.?\d)(?:{_POWER}|\s?/\s?(?P<q>{_UNSIGNED})|(?:\^|\*\*)\{{?(?P<power>-?\d+)(?!\d*\.\d)\}}?)?)"
)
_DIGITS_OF_EXPONENT, _BITS = 3, 4096
_SPACE = r"\\[,!;: ]|\{,\}|,\\!|~|[\N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}]"
_SPACED = re.compile(rf"(?<=\d)(?:{_SPACE})(?=\d{{3}}(?!\d))")
_GROUPS = re.compile(
    r"(?<![\w.,'])(?:\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:['\N{RIGHT SINGLE QUOTATION MARK}]\d{3})+(?:\.\d+)?"
    r"|\d{1,3}(?:_\d{3})+)(?![\w']|[.,]\d)"
)
"""Thousands as in 1.234.567, 1'234'567 and 1_234_567."""
_ZERO_COMMA = re.compile(r"(?<![\d.,])0\{,\}(?=\d)")
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_FOREIGN_MONEY = re.compile(
    r"(?:[\u00a3\u00a5\u20ac\u20b9]|\\(?:euro|pounds)(?![a-zA-Z]))\s?(?=[\d.])|(?<=\d)\s?[\u00a3\u00a5\u20ac\u20b9]"
)
_DIVIDED = re.compile(r"\\div(?![a-zA-Z])\s?|[\N{DIVISION SIGN}\N{DIVISION SLASH}\N{FRACTION SLASH}]")
_COLOUR = re.compile(r"\\textcolor\s*\{[^{}]*\}\s*\{([^{}]*)\}|\\color\s*\{[^{}]*\}\s*")
_FRACTION = re.compile(r"\\[cdt]?frac\s?(?:(\d)|\{\s?(-?\d+)\s?\})\s?(?:(\d)|\{\s?(-?\d+)\s?\})")
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?|\.\d+)[eE]([+-]?\d{1,3})(?![\w.]*\d)(?!\w)")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_EXPONENT = r"(?:\^\{?-?\d\}?)?"
_UNIT = re.compile(rf"[^\W\d_]+{_EXPONENT}(?:\s?/\s?[^\W\d_]+{_EXPONENT})*|[%\N{{DEGREE SIGN}}]")
_MARKUP = re.compile(
    rf"\\(?:text|math|operator)[a-z]*\s*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}{_EXPONENT}"
    r"|\\(?:left|right|displaystyle|quad|Omega|mu|approx)(?![a-zA-Z])|\\(?:begin|end)\{\w+\*?\}|\\[%;,! ]"
    r"|\^?\s?\{?\\circ\}?|(?<=[a-zA-Z}])\s?(?:\\cdot|[*\N{MIDDLE DOT}])\s?(?=[a-zA-Z]|\\text|\\math)"
    r"|^\s*\*\*|\*\*\s*$"
    r"|\\[dt]?frac\{[a-zA-Z]{1,3}\}\{[a-zA-Z]{1,3}(?:\^\{?\d\}?)?\}"
)
_OPERATION = re.compile(
    r"\\[a-zA-Z]|[\^*+|<>\u2260\u2264\u2265\u221a\u03c0]"
    r"|\b(?:not|or|sqrt|log|ln|exp|sin|cos|tan)\b",
    re.I,
)
_IN_WORDS = re.compile(
    r"\b(?:not|or|refuse|cannot|can't|unsure|squared|cubed|dozen|hundred|thousand|million|billion|trillion)\b", re.I
)
_FACTOR = re.compile(r"\s?(?:/\s?)?[eiknxyz](?![^\W\d_])|[!_(]")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?: \d{3})+")
_LONE_SIGN = re.compile(r"(^|=)(\s*\$?)-\s+(?=[\d.\\$])")
_MIXED = re.compile(
    r"(?<![\w.,/^\\])(?<![\^_]\{)(\d{1,15})"
    r"(?:\s?\\[dt]?frac\s?\{(\d{1,15})\}\s?\{(\d{1,15})\}|\s(\d{1,15})\s?/\s?(\d{1,15})(?![\d.,/]*\d))"
)
_REPEATING = re.compile(r"(?<![\d.,])(\d{0,15})\.(\d{0,15})\\(?:overline|bar|dot)\s?\{(\d{1,15})\}")
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e]")
_SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-")
_DASH_AS_MINUS = re.compile(r"(?<![^\s(\[{$=,])[\u2010\u2011\u2013\ufe63\uff0d](?=\s?[\d.\\])")
"""A hyphen or an en dash that typesetting put before a number; between two it may mean a range."""
_SUPERSCRIPT = re.compile("\u207b?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")


def tidy(text: str) -> str:
    """Unify the spelling of minus signs, thousands, money and fractions, and write 1.5e-3 in digits.

    Mixed numbers (1 1/2), repeating decimals and characters such as \u00bd become LaTeX fractions.
    """
    text = _VULGAR.sub(_fraction_in_ascii, text)
    text = _SUPERSCRIPT.sub(lambda found: f"^{{{found[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _DASH_AS_MINUS.sub("-", _DIVIDED.sub("/", _COLOUR.sub(r"\1", text)))
    text = text.replace("\N{MINUS SIGN}", "-").replace("\\$", "$").replace(",\\!", ",").replace("{:}", ":")
    text = _SPACED.sub("", _ZERO_COMMA.sub("0.", _FOREIGN_MONEY.sub("", text)))
    text = _GROUPS.sub(_without_groups, _DECIMAL_COMMA.sub(".", text)).replace("~", " ")
    text = _FRACTION.sub(_braced, _REPEATING.sub(_repeating, _SCIENTIFIC.sub(_digits, text)))
    return _MIXED.sub(_improper, text)


def last_number(text: str) -> Fraction | None:
    """Read the last number in a text, exactly; None if there is none.

    Reads signs, thousands separators, decimals, repeating ones too, exponents of up to three digits (1.5e-3 and 1.5 x
    10^-3), powers, fractions (3/4 or a LaTeX frac), and mixed numbers (1 3/4). A number that directly follows a letter,
    as in x2, is part of a name, and one that follows ^, as in cm^2, is an exponent.
    """
    matches = list(_NUMBER.finditer(tidy(text)))
    return _value(matches[-1]) if matches else None


@lru_cache(maxsize=4096)
def only_number(text: str) -> Fraction:
    """Read the number of a reference, without money signs, units and text before "####" or a box.

    Raises:
        ValueError: if there is none, more than one, or an expression around it, such as a root.
    """
    return _only_number(text)


def _only_number(text: str) -> Fraction:
    plain = _LONE_SIGN.sub(r"\1\2-", tidy(final_answer(text) or text))
    matches = list(_NUMBER.finditer(plain))
    if not matches:
        raise ValueError(f"the answer {text!r} holds no number")
    if len(matches) > 1:
        raise ValueError(f"the answer {text!r} holds more than one number")
    value = _value(matches[0])
    around = _MARKUP.sub(" ", f"{plain[: matches[0].start()]} {plain[matches[0].end() :]}")
    before, after = plain[: matches[0].start()], plain[matches[0].end() :]
    if "\\" not in around:
        around = _UNIT.sub(lambda found: re.sub(r"\^\{?-?\d\}?", " ", found[0]), around)
    apart = _FACTOR.match(after) or re.search(r"-\s*\(?\s*$", before) or _IN_WORDS.search(plain)
    if value is None or apart or _OPERATION.search(around):
        raise ValueError(f"the answer {text!r} is an expression, not a number")
    return value


def plain_number(text: str) -> Fraction | None:
    """The value of a text that is only a number, perhaps with a money sign; otherwise None."""
    core = tidy(text).strip().removesuffix(".")
    core = core.strip("$").strip() if core.count("$") == 2 else core.replace("$", "", 1)
    core = _LONE_SIGN.sub(r"\1\2-", core)
    found = _NUMBER.fullmatch(re.sub(r"\s", "", core) if _GROUPED.fullmatch(core) else core)
    return _value(found) if found else None


def after_thoughts(response: str) -> str:
    """The part of a response outside its thoughts: after its last </think>, and before an unclosed <think>.

    A last box that the end of the response cut off is closed at the end of its line.
    """
    text = response.rpartition("</think>")[2].partition("<think>")[0]
    boxes = list(_BOX.finditer(text))
    if not boxes or _end_of_box(text, boxes[-1].end()) is not None:
        return text
    start = boxes[-1].end()
    return text[:start] + re.split(r"\n|(?<!\\)\$", text[start:], maxsplit=1)[0] + "}"


def _end_of_box(text: str, start: int) -> int | None:
    """The place of the brace that closes a box; None if there is none."""
    depth = 1
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return None


def final_answer(text: str) -> str | None:
    """Find the marked answer of a text: its last box, else its last <answer>, else the line of its last "####".

    That line counts only if it is the last one or a number: headings in Markdown begin with "####", too.
    """
    boxes = list(_BOX.finditer(text))
    if boxes and (end := _end_of_box(text, boxes[-1].end())) is not None:
        return text[boxes[-1].end() : end]
    _, mark, marked = text.rpartition("</answer>")[0].rpartition("<answer>")
    if mark:
        return marked
    line, _, rest = text.rpartition("####")[2].strip().partition("\n")
    return line if "####" in text and (not rest.strip() or plain_number(line) is not None) else None


_REMARK = re.compile(r"(\banswer(?: is|:)[^\n]*?\d[^\n()]*?)\s\((?![^()]*\bor\b)[^()]*\)[\s.*]*$", re.I)
"""A remark in brackets after the answer, as in "The answer is 12 (see step 3)."."""
_END = 300
"""Characters at the end of a response in which to search for such a remark."""


_ANSWER = re.compile(r"\banswer\b( is\s|:\s)?", re.I)
_SENTENCE_END = re.compile(r"[.!](?=\s)")
_CONTINUES = re.compile(
    r"=|\b(?:not?|or|but|wait|actually|instead|rather|however|sorry|mistake|wrong|correct\w*|hmm|oops|should|recheck|check|"
    r"result|solution|total|equals?|is|are|was|gives?|makes?|so|thus|hence|therefore|then|final\w*|mean|meant)\b|n't\b",
    re.I,
)
"""Signs that a text after an answer corrects it or continues the calculation."""


def _before_chatter(response: str) -> Fraction | None:
    """The number of a last sentence "The answer is 12." before a text of other things; otherwise None."""
    # Only the last one counts. One search for all of it would be quadratic.
    found = next(iter(deque(_ANSWER.finditer(response), maxlen=1)), None)
    if found is None or not found[1]:
        return None
    end = _SENTENCE_END.search(response, found.end())
    rest = response[end.end() :].strip() if end else ""
    if end is None or not rest or _CONTINUES.search(rest) or plain_number(rest.strip(" .!")) is not None:
        return None
    stated = response[found.end() : end.start()].strip()
    before = response[: found.start()]
    sentence = before[max(map(before.rfind, ".!?\n")) + 1 :]
    if len(stated) > _END or "\n" in stated or re.search(r"\b(?:if|whether|not)\b", sentence, re.I):
        return None
    try:
        return _only_number(stated.strip("*"))
    except ValueError:
        return None


PROSE = re.compile(r"(?<![^\W\d_])[^\W\d_]{2,} [^\W\d_]{2,}")
"""Two words; the search begins at beginnings of words only, so that its time is in proportion to the text."""


def stated_number(response: str) -> Fraction | None:
    """Read the number that a response gives as its answer: its `final_answer`, or else its last number.

    A marked answer must be one number, after its last "=" if there is one; a sentence between tags gives its last
    number. None if there is none, or if the response denies it or names two.
    """
    marked = final_answer(response)
    if marked is None:
        if (number := _before_chatter(response)) is not None:
            return number
        response = response[:-_END] + _REMARK.sub(r"\1", response[-_END:])
        alone = plain_number(response)
        return alone if alone is not None or denies(response) else last_number(response)
    if hedges(response):
        return None
    side = re.split(r"=|\\approx|\N{ALMOST EQUAL TO}", marked)[-1]
    if is_to_be_solved(marked) or _is_false(marked):
        return None
    if (alone := plain_number(side)) is not None:
        return alone
    try:
        return _only_number(side)
    except ValueError:  # sentences are allowed between tags, but not in boxes
        prose = PROSE.search(side) and not re.search(r"\b(?:or|not)\b", side)
        return last_number(side) if prose and not _BOX.search(response) else None


_UNIT_AFTER = re.compile(r"\s*(?:\\[,;! ]|\\(?:text|mathrm)\s*\{|\s)*(?!an?\b)[A-Za-z]+\}?(?:\^\{?\d\}?)?")


def last_quantity(text: str) -> str:
    """The last number of a text with the word after it, such as "5 feet"; "" if there is no number."""
    plain = tidy(text)
    matches = list(_NUMBER.finditer(plain))
    word = _UNIT_AFTER.match(plain, matches[-1].end()) if matches else None
    return "" if not matches else matches[-1][0] + (word[0] if word else "")


_BOX_BEFORE = re.compile(
    r"\\(?:boxed|fbox)\s*\{((?:[^{}]|\{[^{}]*\})*)\}[\s$,;/]*(?:(?:or|and|maybe|perhaps)[\s$]*){0,3}$"
)


def hedges(text: str) -> bool:
    """True if the last box directly follows a box with another answer, as in \\boxed{4} or \\boxed{5}."""
    boxes = list(_BOX.finditer(text))
    before = _BOX_BEFORE.search(text[: boxes[-1].start()][-200:]) if boxes else None
    return before is not None and before[1].strip() != (final_answer(text) or "").strip()


_EQUATION = re.compile(r"(?:\\(?:[dt]?frac|sqrt|cdot)(?![a-zA-Z])|[\d\s+\-^{}().*/a-zA-Z])+")


def is_to_be_solved(stated: str) -> bool:
    """True if an equation's left side is an expression in one unknown, as in x^2=4 and 2x+1=5, not a name or f(2)."""
    left, equals, _ = stated.partition("=")
    letters = set(re.findall("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", " ", left)))
    if not equals or len(letters) != 1 or not _EQUATION.fullmatch(left):
        return False
    [unknown] = letters
    applied = re.search(rf"{unknown}[\s^{{}}\-\d()]*\(", left)
    return left.strip(" ${}()") != unknown and not applied


def _is_false(stated: str) -> bool:
    """True if a chain of equations has a sum or product of integers with another value than its last side."""
    *texts, end = stated.split("=")
    last, found = plain_number(end), map(_arithmetic, texts)
    return last is not None and any(value is not None and value.denominator == 1 and value != last for value in found)


def _arithmetic(text: str) -> Fraction | None:
    """The value of a text of plain numbers and + - * without brackets; None for all other texts."""
    plain = re.sub(r"\\(?:times|cdot)(?![a-zA-Z])|\N{MULTIPLICATION SIGN}", "*", tidy(text)).replace("$", "")
    if not re.fullmatch(r"\s*[\d.,]+(?:\s*[-+*]\s*[\d.,]+)*\s*", plain):
        return None
    total = Fraction(0)
    for sign, product in re.findall(r"(^|[-+])([^-+]+)", plain):
        value = Fraction(1)
        for factor in product.split("*"):
            number = plain_number(factor)
            if number is None:
                return None
            value *= number
        total += -value if sign == "-" else value
    return total


_BASE = re.compile(r"[\dA-F]+\s*_\s*\{?\s*(\d+)\s*\}?[\s$.]*")


def bases_differ(answer: str, final: str) -> bool:
    """True if one text is a number in a base, as in 1010_2, and the other a number in another base.

    An answer without a base is decimal; a response without one may be in the answer's base.
    """
    asked, given = (_BASE.fullmatch(text.strip(" $")) for text in (answer, final))
    if asked is None:
        return given is not None and plain_number(answer) is not None and int(given[1]) != 10
    return given is not None and int(asked[1]) != int(given[1])


_DENIAL = re.compile(
    r"(?:\bnot|n't|\bnever|\bcannot|\\neq?(?![a-z])|\u2260)\s*"
    r"(?:(?:be|equal|equal to|exactly|simply|just|the answer|the number)\s+)*[$\\(*`\"]*$",
    re.I,
)
_LAST_FORMULA = re.compile(r"(?:\$[^$]+\$|\\\([^$]+?\\\))\W*$")
_NO_ANSWER = re.compile(r"\banswer(?: is|:)\W*(?:unknown|unclear|i (?:do not|don't) know|not [^\d]+)\W*$", re.I)
_BETWEEN = re.compile(r"[\s,$*(]*(?:\\text\s*\{\s*)?(?:or|and)(?:\s+(?:maybe|perhaps|possibly|even))?[\s}$*]*")
_REJECTION = re.compile(r"\W*(?:is|was)(?:n't|\s+(?:not|wrong|incorrect))", re.I)


def denies(text: str) -> bool:
    """True if a text denies its last number or formula, as in "not 42" and "42 is wrong", or names two, "41 or 42"."""
    plain = tidy(text)
    if _NO_ANSWER.search(plain[-60:]) or _names_two(plain):
        return True
    formula = _LAST_FORMULA.search(plain[-200:])
    if formula and _DENIAL.search(plain[-200:][: formula.start()]):
        return True
    matches = list(_NUMBER.finditer(plain))
    if not matches:
        return False
    before, after = plain[: matches[-1].start()], plain[matches[-1].end() :]
    return bool(_DENIAL.search(before[-60:]) or _REJECTION.match(after))


def only_denied(text: str, number: Fraction) -> bool:
    """True if a text names a number and denies it each time, as in "not 42. It is 41"."""
    plain = tidy(text)
    places = [found.start() for found in _NUMBER.finditer(plain) if _value(found) == number]
    return bool(places) and all(_DENIAL.search(plain[max(0, place - 60) : place]) for place in places)


def _names_two(plain: str) -> bool:
    """True if a text ends in two different numbers joined by "or", or in "between 1 and 2"."""
    matches = list(_NUMBER.finditer(plain))[-2:]
    if len(matches) < 2 or _value(matches[0]) == _value(matches[1]):
        return False
    joint = plain[matches[0].end() : matches[1].start()]
    between = re.search(r"\bbetween[\s$]*$", plain[: matches[0].start()][-20:])
    return bool(_BETWEEN.fullmatch(joint)) and ("or" in joint or between is not None)


def close(number: Fraction, reference: Fraction, tolerance: float) -> bool:
    """True if a number equals an integer reference exactly, or any other reference within a relative tolerance."""
    if number == reference or reference.denominator == 1:
        return number == reference
    return abs(number - reference) <= Fraction(repr(tolerance)) * abs(reference)


def normalise(text: str) -> str:
    """Convert to Unicode's composed form (NFC), line ends to "\\n", and strip white space."""
    return unicodedata.normalize("NFC", text).replace("\r\n", "\n").strip()


def _value(found: "re.Match[str]") -> Fraction | None:
    """The value of a match, or None if it is not finite or has too many digits to compute with."""
    sign = -1 if found[0].startswith("-") else 1
    over, under = found["n"] or found["p"], found["d"] or found["q"] or "1"
    powers = [found["ten"] or "0", *re.findall(r"[eE]([+-]?\d+)", over + " " + under)]
    if any(len(power.lstrip("+-")) > _DIGITS_OF_EXPONENT for power in powers):
        return None
    try:
        value = Fraction(over.replace(",", "")) / Fraction(under.replace(",", ""))
        if found["power"]:
            if abs(int(found["power"])) * max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
                return None
            value **= int(found["power"])
        return sign * value * Fraction(10) ** int(found["ten"] or 0)
    except (ValueError, ZeroDivisionError):  # more digits than Python converts, or a division by zero
        return None


def _fraction_in_ascii(found: "re.Match[str]") -> str:
    """Rewrite \u00bd as 1/2, with a space before it."""
    return " " + unicodedata.normalize("NFKC", found[0]).replace("\N{FRACTION SLASH}", "/")


def _without_groups(found: "re.Match[str]") -> str:
    """Rewrite 1.234.567,8 as 1234567.8."""
    whole, _, part = found[0].partition("," if found[0].count(".") > 1 else ".")
    return re.sub(r"\D", "", whole) + (f".{part}" if part else "")


def _braced(found: "re.Match[str]") -> str:
    """Rewrite \\frac12 and \\frac{-1}{-2} as \\frac{1}{2}."""
    over, under = found[1] or found[2], found[3] or found[4]
    if under.startswith("-"):
        over, under = f"-{over}".replace("--", ""), under[1:]
    return f"\\frac{{{over}}}{{{under}}}"


def _improper(found: "re.Match[str]") -> str:
    """Rewrite 1 1/2 as \\frac{3}{2}; a fraction of one or more, as in "2 3/2", is a separate number."""
    whole, over, under = int(found[1]), int(found[2] or found[4]), int(found[3] or found[5])
    return f"\\frac{{{whole * under + over}}}{{{under}}}" if over < under else found[0]


def _repeating(found: "re.Match[str]") -> str:
    """Rewrite 0.1\\overline{6} as \\frac{15}{90}."""
    before, after, again = found[1] or "0", found[2], found[3]
    nines = (10 ** len(again) - 1) * 10 ** len(after)
    return f"\\frac{{{int(before + after + again) - int(before + after)}}}{{{nines}}}"


def _digits(found: "re.Match[str]") -> str:
    """Rewrite 1.5e-3 as 0.0015."""
    digits, power = found[1], int(found[2])
    whole, _, part = digits.partition(".")
    point = len(whole) + power
    all_digits = whole + part
    padded = all_digits.ljust(point, "0") if point > 0 else "0" * (1 - point) + all_digits
    point = max(point, 1)
    return (padded[:point].lstrip("0") or "0") + ("." + padded[point:] if padded[point:] else "")
