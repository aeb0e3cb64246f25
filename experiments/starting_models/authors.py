"""Flawed authors of the lab's sheets, whose habits its task generators learn; one text in seven is not a sheet.

An author mostly avoids sheets that the starting policy sometimes passes, so its sheets are mostly easy or hopeless.
"""

import random
from collections.abc import Mapping

from halfway.curriculum.tasks.lab import operators, sums

FLAWED = 0.14
"""Chance that a text is spoiled."""

SUM_SHEETS = sums.SumsOptions()
OPERATOR_SHEETS = operators.OperatorOptions(min_lines=4, max_lines=7, min_allowed=0, max_allowed=3)
"""The bounds of the authors' sheets: the lab's own, and those of its easy regime."""

WRAPS: Mapping[int, tuple[float, ...]] = {
    1: (0.00, 0.15, 0.05, 0.05, 0.15, 0.30, 0.20, 0.10),
    2: (0.45, 0.05, 0.10, 0.07, 0.03, 0.05, 0.10, 0.15),
    3: (0.40, 0.30, 0.02, 0.03, 0.08, 0.05, 0.04, 0.08),
    4: (0.20, 0.35, 0.30, 0.00, 0.00, 0.05, 0.06, 0.04),
}
"""Number of wrong lines that pass (drawn uniformly) -> the weights of 1, 2, ... times that the total wraps around.

The solver gets about two thirds of the wraps wrong. The weights avoid its frontier: 2 wraps if one wrong line passes, 7
if four pass. So only lines, wrong lines and the sum of the operands together determine a sheet's difficulty."""

FRONTIER = (0.05, 0.6)
KEPT = 0.25
"""Share to keep of the operator sheets that the starting policy's teacher passes with a chance in this range."""


def write_sums(rng: random.Random, weights: Mapping[int, tuple[float, ...]] = WRAPS, flawed: float = FLAWED) -> str:
    """Write a prompt of running sums, or a spoiled one."""
    allowed = rng.choice(sorted(weights))
    of_allowed = weights[allowed]
    wraps, sheet = rng.choices(range(1, 1 + len(of_allowed)), of_allowed)[0], None
    while sheet is None:
        sheet = _with_wraps(wraps, allowed, rng)
    return spoil_sums(sheet, rng) if rng.random() < flawed else sums.render(sheet)


def _with_wraps(wraps: int, allowed: int, rng: random.Random) -> sums.Sheet | None:
    """Draw a sheet whose total wraps around `wraps` times; None if start and number of lines rule that out."""
    lines, start = rng.randint(SUM_SHEETS.min_lines, SUM_SHEETS.max_lines), rng.randrange(sums.MODULUS)
    total = sums.MODULUS * wraps + rng.randrange(sums.MODULUS) - start
    if not lines <= total <= sums.LARGEST * lines:
        return None
    operands = [1] * lines
    for _ in range(total - lines):
        room = [i for i, operand in enumerate(operands) if operand < sums.LARGEST]
        operands[rng.choice(room)] += 1
    return sums.Sheet(start, tuple(operands), allowed)


def spoil_sums(sheet: sums.Sheet, rng: random.Random) -> str:
    """Write a nearly valid text: without its end, with a skipped label, with an operand or start out of range, with too
    few lines, or with too few or too many wrong lines that pass."""
    operands, place = sheet.operands, rng.randrange(len(sheet.operands))
    match rng.randrange(6):
        case 0:
            return sums.render(sheet).removesuffix("=")
        case 1:
            return sums.render(sheet).replace(sums.LABELS[place], sums.LABELS[place + 1], 1)
        case 2:
            strange = rng.choice((0, *range(sums.LARGEST + 1, 10)))
            return sums.render(sheet._replace(operands=(*operands[:place], strange, *operands[place + 1 :])))
        case 3:
            return sums.render(sheet._replace(start=rng.randrange(sums.MODULUS, 10)))
        case 4:
            return sums.render(sheet._replace(operands=operands[: rng.randint(4, SUM_SHEETS.min_lines - 1)]))
        case _:
            return sums.render(sheet._replace(allowed=rng.choice((0, SUM_SHEETS.max_allowed + 1))))


def write_operators(rng: random.Random, kept: float = KEPT, flawed: float = FLAWED) -> str:
    """Write a prompt of operator sheets of any stratum, or a spoiled one.

    Args:
        kept: share of the sheets on the frontier to keep.
    """
    sheet = _draw(rng)
    while on_frontier(sheet) and rng.random() >= kept:
        sheet = _draw(rng)
    return spoil_operators(sheet, rng) if rng.random() < flawed else operators.render(sheet)


def on_frontier(sheet: operators.Sheet) -> bool:
    """True if the teacher of the starting policy sometimes passes and often fails."""
    low, high = FRONTIER
    return low < operators.chance(sheet, operators.OperatorTeacher()) < high


def _draw(rng: random.Random) -> operators.Sheet:
    return operators.make_sheet(OPERATOR_SHEETS, rng.randrange(len(operators.STRATA)), rng)


def spoil_operators(sheet: operators.Sheet, rng: random.Random) -> str:
    """Write a nearly valid text: without its end, with a skipped label, with too few lines, with too many wrong lines
    that pass, or with one operator far from the others."""
    names, place = sheet.operators, rng.randrange(len(sheet.operators))
    match rng.randrange(5):
        case 0:
            return operators.render(sheet).removesuffix("=")
        case 1:
            return operators.render(sheet).replace(operators.LABELS[place], operators.LABELS[place + 1], 1)
        case 2:
            few = rng.randint(1, OPERATOR_SHEETS.min_lines - 1)
            return operators.render(sheet._replace(operators=names[:few]))
        case 3:
            return operators.render(sheet._replace(allowed=rng.randint(OPERATOR_SHEETS.max_allowed + 1, 7)))
        case _:
            changed = [sheet._replace(operators=names[:place] + o + names[place + 1 :]) for o in operators.OPERATORS]
            return operators.render(rng.choice([one for one in changed if not operators.centres(one, OPERATOR_SHEETS)]))
