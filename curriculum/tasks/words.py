"""Reads what algebra takes for products of letters: words, the letter of a choice, units."""

import re
from typing import NamedTuple

_WRAPPER = re.compile(r"\\(?:text|math|operatorname)[a-z]*\s*(?=\{)")
_SPACES = re.compile(r"\\[,;:! ]|~|\s")
_WORDS = re.compile(r"[^\W\d_]+(?:(?: |[-'\N{RIGHT SINGLE QUOTATION MARK}])[^\W\d_]+)*")
_ARTICLE = re.compile(r"(?:the|an?) (?=.)")
_VOWEL = re.compile("[aeiou]")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def read_words(text: str) -> str | None:
    """The text in lower case, without an article or a full stop; None unless it is all letters."""
    bare = " ".join(_SPACES.sub(" ", re.sub(r"[{}$*\"]", "", _WRAPPER.sub("", text))).split()).rstrip(".!")
    return _ARTICLE.sub("", bare.casefold(), count=1) if _WORDS.fullmatch(bare) else None


def is_word(text: str) -> bool:
    """Whether letters are a word or a name, not a product such as xy, abc or kmn.

    A word is marked as text, in capitals (two or more), or "no", has four letters, or three with a vowel among them
    that do not follow each other in the alphabet.
    """
    words = read_words(text)
    if words is None:
        return False
    letters = re.sub(r"[^a-zA-Z]", "", _WRAPPER.sub("", text))
    longest = max(re.split(r"[\W_]", words), key=len)
    spoken = len(longest) == 3 and _VOWEL.search(longest) and longest not in _ALPHABET
    capitals = len(letters) >= 2 and letters.isupper()
    return bool(_WRAPPER.search(text) or capitals or words == "no" or len(longest) >= 4 or spoken)


class Choice(NamedTuple):
    """The letter of an option, and what the text says after it."""

    letter: str
    rest: str


_LONE_CHOICE = re.compile(r"(?:option |choice )?\(?\s*([A-J])\s*\)?[.:]?", re.I)
_CHOICE = re.compile(
    r"\\(?:text|math)[a-z]*\s*\{\s*\(?([A-J])[).:]+\s*~?\s*\}[\s~:]*(.+)"  # \textbf{(A) }12
    r"|\\(?:text|math)[a-z]*\s*\{\s*\(([A-J])\)\s*([^{}]+)\}"
    r"|(?:\(([A-J])\)[\s~:]+|([A-J])[).:]\s+)(?!\\(?:cap|cup|cdot|times|to|subset|in|setminus)(?![a-z])|[+*/=^<>])(.+)"
)
_STATED_CHOICE = re.compile(r"\b(?:answer|option|choice)(?:\s+is)?[:\s]*[*$]*\(?([A-J])\)?[*$]*\.?\s*$", re.I)

_STATED_WITH_CONTENT = re.compile(
    r"\b(?:answer|option|choice)\s+is:?\s+[*$]*\(?([A-J])\)\s+"  # The answer is (C) 12
    r"(?!.*(?:\b(?:or|and|but|not|maybe)\b|\([A-J]\)))(\S.*)$",
    re.I,
)


def read_choice(text: str) -> Choice | None:
    """The option that a text consists of, perhaps with its content, as in A, (a) and \\textbf{(A) }12."""
    core = text.strip().strip("$*").strip()
    if found := _LONE_CHOICE.fullmatch(re.sub(r"[{}]", "", _WRAPPER.sub("", core)).strip()):
        return Choice(found[1].upper(), "")
    found = _CHOICE.fullmatch(core)
    return Choice(*(part for part in found.groups() if part is not None)) if found else None


def stated_choice(response: str) -> Choice | None:
    """The option that an unmarked response consists of, or names at its end after "answer", "option" or "choice"."""
    found = _STATED_CHOICE.search(response[-80:])
    if whole := _STATED_WITH_CONTENT.search(response[-80:].rstrip(" .*$")):
        return Choice(whole[1].upper(), whole[2])
    return Choice(found[1].upper(), "") if found and found[1].isupper() else read_choice(response)


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


def units_differ(answer: str, final: str) -> bool:
    """Whether both end in a number with a known unit, and the units differ."""
    found = [_LAST_WORD.search(text[-60:]) for text in (answer, final)]
    units = [_UNITS.get(one[1].lower()) if one else None for one in found]
    powers = {one[2] for one in found if one and one[2]}
    return None not in units and (units[0] != units[1] or len(powers) > 1)
