"""Operator sheets: many skills that are learnt separately, from trivial to hopeless.

A skill is an operator, a table on the values 0 to 7 without any rule, so one operator reveals nothing about another.
The prompt gives a start, the number of wrong lines that still pass, and labelled operators:

    ^3/1aBbKcB=         start at 3; a: B, b: K, c: B; at most 1 wrong line passes

The response writes one line per operator, in order: its label, the operator, the new value:

    aB4bK1cB5           B of 3 is 4, K of 4 is 1, B of 1 is 5

Marking carries errors forward: a line is right if it copies the operator and its value follows from the value on the
line above. Writing a label again replaces the line, so that the policy can correct a wrong line. A missing line is
wrong, and other text is ignored. The sheet passes if it has no more wrong lines than the prompt allows.

The teacher of the warm start errs at a different rate for each operator, hardly ever on A and nine times out of ten on
X, and always in the same way: for each operator and value it believes in one wrong value. A sheet draws its operators
from a window of neighbours in this order, its stratum. A sheet teaches only neighbouring operators, so later strata
stay hopeless until theirs are learnt.

Operators and beliefs come in numbered tables with the same statistics: another table is another instance of the task.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from halfway.curriculum import Problem, refusal
from halfway.curriculum.tasks.lab.sheets import count_wrong, read_prompt, require_bounds, write_prompt

LABELS = "abcdefghijkl"
OPERATORS = "ABCDEFGHIJKLMNOPQRSTUVWX"
VALUES = 8
PROMPT = re.compile(r"\^([0-7])/(\d)((?:[a-l][A-X])+)=")
LINE = re.compile(r"([a-l])([A-X])([0-7])")
STRATA = tuple(OPERATORS[i : i + 4] for i in range(0, len(OPERATORS), 4))
"""Six bands of four neighbouring operators, easiest first."""

# Table 0: 24 random permutations of 0..7, no two of them equal in more than four places; the second of each pair is the
# teacher's belief where it errs, a permutation too, which differs from the first everywhere.
_TABLES = """
32051476 43710652 15247630 41062357 31406752 43675210 02671453 47302165 21740635 43107256 62541037 37256104
01362547 32057164 02317654 76542103 07436125 36754210 15027463 04172635 27451603 06327451 51063472 07652143
10547263 46375021 56317042 05734621 65430712 26173540 50613742 63172504 32064715 57413206 57023614 36715402
61074253 34612570 34025176 41607235 72154630 63507142 12405376 43571620 53460271 70643125 37450621 26537410
"""
MOST_EQUAL = 4
"""Maximum number of places in which two operators of a table are equal."""

Permutation = tuple[int, ...]


class Table(NamedTuple):
    """The operators, and the teacher's wrong beliefs about them."""

    right: dict[str, Permutation]
    believed: dict[str, Permutation]


@lru_cache
def table(number: int) -> Table:
    """One instance of the operators; table 0 is written out above, any other is drawn from its number."""
    rows = _TABLES.split() if number == 0 else _draw_table(random.Random(number))
    permutations = [tuple(map(int, row)) for row in rows]
    return Table(*(dict(zip(OPERATORS, permutations[first::2], strict=True)) for first in (0, 1)))


def _draw_table(rng: random.Random) -> list[str]:
    """Rows like those of table 0."""
    rows: list[str] = []
    while len(rows) < 2 * len(OPERATORS):
        right, believed = ("".join(rng.sample("01234567", VALUES)) for _ in range(2))
        if _equal(right, believed) == 0 and all(_equal(right, row) <= MOST_EQUAL for row in rows[::2]):
            rows += [right, believed]
    return rows


def _equal(one: str, other: str) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


class Sheet(NamedTuple):
    """A parsed prompt: start value, operators in order, and the number of wrong lines that still pass."""

    start: int
    operators: str
    allowed: int


@dataclass(frozen=True)
class OperatorOptions:
    """Options of the problems to draw; longer sheets with fewer allowed errors have more groups without a success.

    Attributes:
        min_lines, max_lines: lines per sheet, drawn uniformly; at most 12.
        min_allowed, max_allowed: wrong lines that still pass, drawn uniformly; at most 9.
        spread: largest distance of a sheet's operators from its central operator.
        strata: the strata to draw from, 0 (easiest) to 5.
        table: number of the operators' table; the starting policy must have learnt from the same one.
    """

    min_lines: int = 3
    max_lines: int = 7
    min_allowed: int = 0
    max_allowed: int = 1
    spread: int = 3
    strata: tuple[int, ...] = tuple(range(len(STRATA)))
    table: int = 0

    def __post_init__(self) -> None:
        lines, allowed = (self.min_lines, self.max_lines), (self.min_allowed, self.max_allowed)
        require_bounds("operator_sheets", lines, allowed, len(LABELS))
        if not 0 <= self.spread < len(OPERATORS):
            raise refusal("operator_sheets.spread", self.spread, f"give 0 to {len(OPERATORS) - 1}")
        if self.table < 0:
            raise refusal("operator_sheets.table", self.table, "give a number from 0")
        known = set(self.strata) <= set(range(len(STRATA)))
        if not known or not 0 < len(self.strata) == len(set(self.strata)):
            raise refusal(
                "operator_sheets.strata", list(self.strata), f"give different integers from 0 to {len(STRATA) - 1}"
            )


@dataclass(frozen=True)
class OperatorTeacher:
    """The flawed teacher of the warm start: its habits become the policy's.

    Attributes:
        least_error, most_error: chance of a wrong value with the first and the last operator, linear in between.
        notice: chance of noticing a wrong line at once and writing it again, once, with the same chance of an error.
    """

    least_error: float = 0.02
    most_error: float = 0.9
    notice: float = 0.15

    def error(self, operator: str) -> float:
        """Chance of a wrong value in one attempt."""
        share = OPERATORS.index(operator) / (len(OPERATORS) - 1)
        return self.least_error + share * (self.most_error - self.least_error)

    def wrong_line(self, operator: str) -> float:
        """Chance that a line is wrong at the end."""
        error = self.error(operator)
        return error * (1 - self.notice * (1 - error))


FLAWLESS = OperatorTeacher(least_error=0.0, most_error=0.0)
EXPERT = OperatorTeacher(least_error=OperatorTeacher.least_error / 3, most_error=OperatorTeacher.most_error / 3)
"""A teacher with a third of the errors."""


def apply(operator: str, value: int, number: int = 0) -> int:
    """The right value of a line, given the value above, in a numbered table."""
    return table(number).right[operator][value]


def misapply(operator: str, value: int, number: int = 0) -> int:
    """The teacher's wrong value of a line."""
    return table(number).believed[operator][value]


def stratum_name(stratum: int) -> str:
    """Name a stratum by its first and last operator, such as "A-D"."""
    return f"{STRATA[stratum][0]}-{STRATA[stratum][-1]}"


def stratum_of(sheet: Sheet) -> int:
    """The stratum of the sheet's median operator (of two, the easier); it may have been drawn from a neighbour."""
    ordered = sorted(sheet.operators)
    median = ordered[(len(ordered) - 1) // 2]
    return next(place for place, names in enumerate(STRATA) if median in names)


def centres(sheet: Sheet, options: OperatorOptions) -> str:
    """The possible central operators of the sheet; empty if the lab could not have drawn it."""
    low, high = OPERATORS.index(min(sheet.operators)), OPERATORS.index(max(sheet.operators))
    near = OPERATORS[max(0, high - options.spread) : low + options.spread + 1]
    return "".join(name for name in near if any(name in STRATA[stratum] for stratum in options.strata))


def facts(sheet: Sheet, stratum: int, number: int = 0) -> dict[str, float | str | tuple[float, ...]]:
    """Compute the features of a sheet's problem, see `OperatorSheets`."""
    name = stratum_name(stratum)
    return {
        "stratum": name,
        "category": f"{name}/{len(sheet.operators)}",
        "lines": len(sheet.operators),
        "allowed": sheet.allowed,
        "teacher_rate": chance(sheet, OperatorTeacher()),
        "expert_rate": chance(sheet, EXPERT),
        "operators": tuple(float(sheet.operators.count(name)) for name in OPERATORS),
        **({"table": number} if number else {}),
    }


def table_of(features: Mapping[str, object]) -> int:
    """The table of a problem, from its features; those of table 0 leave it out."""
    number = features.get("table", 0)
    assert isinstance(number, int | float)
    return int(number)


def make_sheet(options: OperatorOptions, stratum: int, rng: random.Random) -> Sheet:
    """Draw one problem of a stratum, with operators around one of the stratum's four."""
    lines = rng.randint(options.min_lines, options.max_lines)
    centre = OPERATORS.index(rng.choice(STRATA[stratum]))
    near = OPERATORS[max(0, centre - options.spread) : centre + options.spread + 1]
    operators = "".join(rng.choice(near) for _ in range(lines))
    return Sheet(rng.randrange(VALUES), operators, rng.randint(options.min_allowed, options.max_allowed))


def render(sheet: Sheet) -> str:
    """Write the prompt of a sheet."""
    return write_prompt(sheet.start, sheet.allowed, LABELS, sheet.operators)


def parse(prompt: str) -> Sheet:
    """The inverse of `render`. Raises ValueError for text that is not a prompt of this task."""
    start, allowed, names = read_prompt(prompt, PROMPT, "an operator-sheet")
    return Sheet(start, names, allowed)


def demonstrate(sheet: Sheet, teacher: OperatorTeacher, rng: random.Random, number: int = 0) -> str:
    """Write a response like the teacher, including errors and corrections."""
    above, lines = sheet.start, []
    for label, operator in zip(LABELS, sheet.operators, strict=False):
        for attempt in range(2):
            right = rng.random() >= teacher.error(operator)
            value = (apply if right else misapply)(operator, above, number)
            lines.append(f"{label}{operator}{value}")
            if right or attempt or rng.random() >= teacher.notice:
                break
        above = value
    return "".join(lines)


def solve(sheet: Sheet, number: int = 0) -> str:
    """Write the reference solution: every line once, and right."""
    return demonstrate(sheet, FLAWLESS, random.Random(0), number)


def chance(sheet: Sheet, teacher: OperatorTeacher) -> float:
    """Chance that the teacher's response passes.

    Errors in lines are independent, since each line is judged given the line above: a Poisson binomial.
    """
    wrong_K = [1.0] + [0.0] * len(sheet.operators)  # chance of k wrong lines so far
    for operator in sheet.operators:
        wrong = teacher.wrong_line(operator)
        wrong_K = [here * (1 - wrong) + fewer * wrong for here, fewer in zip(wrong_K, [0.0, *wrong_K], strict=False)]
    return sum(wrong_K[: sheet.allowed + 1])


def wrong_lines(sheet: Sheet, response: str, number: int = 0) -> int:
    """Number of lines of the sheet that are missing or wrong; text that is not a line of this sheet is ignored."""
    lines = ((LABELS.index(label), operator, int(value)) for label, operator, value in LINE.findall(response))
    return count_wrong(sheet.start, sheet.operators, lines, partial(apply, number=number))


def mark(prompt: str, response: str, number: int = 0) -> bool:
    """True if a complete response passes. Raises ValueError for a prompt of another task."""
    sheet = parse(prompt)
    return wrong_lines(sheet, response, number) <= sheet.allowed


def verify(problem: Problem, response: str) -> bool:
    """The sheet passes the marking of the lab's operator sheets.

    Raises:
        ValueError: if the prompt is not one of that task.
    """
    return mark(problem.prompt, response, table_of(problem.features))
