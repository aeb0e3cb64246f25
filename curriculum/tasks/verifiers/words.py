"""Reads words, letters of options and units, which algebra would read as products of letters."""

import re
from typing import NamedTuple

_WRAPPER = re.compile(r"\\(?:text|math|operatorname)[a-z]*\s*(?=\{)")
_SPACES = re.compile(r"\\[,;:! ]|~|\s")
_WORDS = re.compile(r"[^\W\d_]+(?:(?: |[-'\N{RIGHT SINGLE QUOTATION MARK}])[^\W\d_]+)*")
_ARTICLE = re.compile(r"(?:the|an?) (?=.)")
_VOWEL = re.compile("[aeiou]")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def read_words(text: str) -> str | None:
    """Convert a text to lower case, without article and full stop; None unless it is all letters."""
    bare = " ".join(_SPACES.sub(" ", re.sub(r"[{}$*\"]", "", _WRAPPER.sub("", text))).split()).rstrip(".!")
    return _ARTICLE.sub("", bare.casefold(), count=1) if _WORDS.fullmatch(bare) else None


def is_word(text: str) -> bool:
    """True if letters are a word or a name, not a product such as xy, abc or kmn.

    A word is marked as text, in capitals (two or more), or "no"; or it has four letters, or three with a vowel that do
    not follow each other in the alphabet.
    """
    words = read_words(text)
    if words is None:
        return False
    letters = re.sub(r"[^a-zA-Z]", "", _WRAPPER.sub("", text))
    longest = max(re.split(r"[\W_]", words), key=len)
    spoken = len(longest) == 3 and _VOWEL.search(longest) and longest not in _ALPHABET
    capitals = len(letters) >= 2 and letters.isupper()
    return bool(_WRAPPER.search(text) or capitals or words == "no" or len(longest) >= 4 or spoken)


_STATED = re.compile(r"\b(?:answer|result)(?:\s+is)?\s*:?\s*(?=\S)([^\n]{1,80})$", re.I)
_DOUBTED = re.compile(r"\b(?:not|never|no|nor|if|whether|cannot|doubt)\b|n't\b|\?", re.I)


def stated_words(response: str) -> str:
    """The text after a last "answer" or "result" of a response; the whole response if it has none, or doubts it."""
    text = response.strip()
    found = _STATED.search(text)
    sentence = re.split(r"[.!?\n]\s", text[: found.start()])[-1] if found else ""
    return found[1] if found and not _DOUBTED.search(sentence) else text


_SEPARATED = r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}"
_CODE = re.compile(rf"(?<![\w.,/^-])(?:{_SEPARATED}|\d+(?:-\d+)+)(?![\w^/-]|[.,]\d)")
_DASHES = re.compile(r"(?<=\d)\s?[\u2010-\u2013\u2212-]\s?(?=\d)")
_DENIED_CODE = re.compile(r"(?:\b(?:not|never|cannot)\b|n't\b)[^.!?\d]{0,40}$", re.I)


def _codes(text: str) -> list["re.Match[str]"]:
    bare = _DASHES.sub("-", _SPACES.sub(" ", re.sub(r"[{}$*\"]", "", _WRAPPER.sub("", text)))).strip()
    return list(_CODE.finditer(bare))


def read_code(text: str) -> tuple[str, ...] | None:
    """Read the parts of a date such as 2024-01-02 or 1/2/2024, a score or a range such as 3-1; None for other texts.

    Algebra would read them as differences and quotients, and confuse one date with another.
    """
    found = _codes(text.strip().removesuffix("."))
    return _parts(found[0]) if len(found) == 1 and found[0][0] == found[0].string else None


def last_code(text: str) -> tuple[str, ...] | None:
    """`read_code` of the last date, score or range in a text."""
    found = _codes(text)
    return _parts(found[-1]) if found else None


def denies_code(text: str) -> bool:
    """True if a text denies its last date, score or range."""
    found = _codes(text)
    return bool(found and _DENIED_CODE.search(found[-1].string[: found[-1].start()]))


def _parts(found: "re.Match[str]") -> tuple[str, ...] | None:
    """The parts, of dates without leading zeros; None for points and fractions that are not dates, such as 1/2/3."""
    parts = re.split(r"[-/.]", found[0])
    dated = len(parts) == 3 and 4 in (len(parts[0]), len(parts[2]))
    if not dated and found[1] in ("/", "."):
        return None
    return tuple(part.lstrip("0") for part in parts) if dated else tuple(parts)


class Choice(NamedTuple):
    """The letter of an option, and the text after it."""

    letter: str
    rest: str


_LONE_CHOICE = re.compile(r"(?:option |choice )?\(?\s*([A-J])\s*\)?[.:]?", re.I)
_CHOICE = re.compile(
    r"\\(?:text|math)[a-z]*\s*\{\s*\(?([A-J])[).:]+\s*~?\s*\}[\s~:]*(.+)"  # \textbf{(A) }12
    r"|\\(?:text|math)[a-z]*\s*\{\s*(?:\(([A-J])\)|([A-J])[).:])\s*([^{}]+)\}"
    r"|(?:\(([A-J])\)[\s~:]+|([A-J])[).:]\s+)(?!\\(?:cap|cup|cdot|times|to|subset|in|setminus)(?![a-z])|[+*/=^<>])(.+)"
)
_STATED_CHOICE = re.compile(r"\b(?:answer|option|choice)(?:\s+is)?[:\s]*[*$]*\(?([A-J])\)?[*$]*\.?\s*$", re.I)

_OTHERS = re.compile(r"\b(?:or|and|but|not|maybe)\b|.\b[A-J]\)", re.I)
_STATED_WITH_CONTENT = re.compile(
    r"\b(?:answer|option|choice)\s+is:?\s+[*$]*\(?([A-J])\)\s+"  # The answer is (C) 12
    r"(?!.*(?:\b(?:or|and|but|not|maybe)\b|\([A-J]\)))(\S.*)$",
    re.I,
)


def read_choice(text: str) -> Choice | None:
    """Read a text that is only an option, perhaps with its content, as in A, (a) and \\textbf{(A) }12."""
    core = text.strip().strip("$*").strip()
    if found := _LONE_CHOICE.fullmatch(re.sub(r"[{}]", "", _WRAPPER.sub("", core)).strip()):
        return Choice(found[1].upper(), "")
    found = _CHOICE.fullmatch(core)
    return Choice(*(part for part in found.groups() if part is not None)) if found else None


_SEPARATOR = r"\s*(?:[,;&\u3001]\s*(?:and\s+)?|\band\b)\s*"
_CHOICES = re.compile(rf"(?:\([A-J]\)|[A-J])(?:{_SEPARATOR}(?:\([A-J]\)|[A-J]))+")


def read_choices(text: str) -> frozenset[str]:
    """Read several options in a list, as in A, C and D, or in alphabetical order, as in ACD; empty for other texts."""
    core = _SPACES.sub(" ", re.sub(r"[{}$*]", "", _WRAPPER.sub("", text))).strip(" .")
    letters = re.findall("[A-J]", core)
    joined = core.isalpha() and core.isascii() and core.isupper() and len(core) > 1 and [*core] == sorted({*letters})
    return frozenset(letters) if joined or _CHOICES.fullmatch(core) else frozenset()


def stated_choice(response: str) -> Choice | None:
    """Read the option of an unmarked response: the whole response, or after a last "answer", "option" or "choice"."""
    found = _STATED_CHOICE.search(response[-80:])
    if whole := _STATED_WITH_CONTENT.search(response[-80:].rstrip(" .*$")):
        return Choice(whole[1].upper(), whole[2])
    if found and found[1].isupper():
        return Choice(found[1].upper(), "")
    stated = stated_words(response)
    return None if stated != response.strip() and _OTHERS.search(stated) else read_choice(stated)


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
    """True if both texts end in a number with a known unit, and the units differ."""
    found = [_LAST_WORD.search(text[-60:]) for text in (answer, final)]
    units = [_UNITS.get(one[1].lower()) if one else None for one in found]
    powers = {one[2] for one in found if one and one[2]}
    return None not in units and (units[0] != units[1] or len(powers) > 1)


_COUNTED = re.compile(r"(.*\d)\s+([^\W\d_]{3,}(?: [^\W\d_]{3,})?)\s*")
_NO_NOUN = re.compile(
    r"\b(?:or|and|not|mod|pi|sin|cos|tan|log|exp|sqrt|squared|cubed|factorial|percent|dozen|hundred|thousand|[mbtr]+illion"
    r"|times|plus|minus|over|half|halves|thirds?|quarters?|more|less)\b",
    re.I,
)


def without_unit(text: str) -> str:
    """Remove a known unit or a noun after the number of a text, as in "12 kg" and "12 red apples"."""
    found = re.fullmatch(r"(.*\d)\s*([A-Za-z]+)\s*", text)
    if found and found[2].lower() in _UNITS:
        return found[1]
    found = _COUNTED.fullmatch(text)
    return found[1] if found and is_word(found[2]) and not _NO_NOUN.search(found[2]) else text
