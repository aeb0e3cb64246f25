"""The flawed author of running sums: its habits become those of the lab's task generator.

Most of its sheets are easy, some are hard, one in seven is no valid sheet. See `curriculum.lab.sums` for the task.
"""

import random
from dataclasses import dataclass

from curriculum.lab import sums
from curriculum.lab.sums import LABELS, Sheet


@dataclass(frozen=True)
class SheetAuthor:
    """How sheets are drawn.

    Attributes:
        lines: weights of 8, 9, ... lines.
        allowed: weights of 1, 2, ... wrong lines that still pass.
        styles: (weight, weights of the operands 1, 2, ...) of each way to choose operands; a sheet keeps to one.
        flawed: chance that a sheet is spoilt, in one of the ways of `spoil`.
    """

    lines: tuple[float, ...] = (0.40, 0.25, 0.15, 0.10, 0.10)
    allowed: tuple[float, ...] = (0.06, 0.12, 0.27, 0.55)
    styles: tuple[tuple[float, tuple[float, ...]], ...] = (
        (0.62, (0.70, 0.25, 0.05, 0.00)),
        (0.25, (0.25, 0.25, 0.25, 0.25)),
        (0.13, (0.00, 0.10, 0.40, 0.50)),
    )
    flawed: float = 0.14


def write_sheet(author: SheetAuthor, rng: random.Random) -> str:
    """One text as the author writes it, a prompt of the task or a spoilt one."""
    lines = _weighted(author.lines, 8, rng)
    [style] = rng.choices([weights for _, weights in author.styles], [weight for weight, _ in author.styles])
    operands = tuple(_weighted(style, 1, rng) for _ in range(lines))
    sheet = Sheet(rng.randrange(sums.MODULUS), operands, _weighted(author.allowed, 1, rng))
    return spoil(sheet, rng) if rng.random() < author.flawed else sums.render(sheet)


def spoil(sheet: Sheet, rng: random.Random) -> str:
    """A text near the sheet that is not valid: its end missing, a label skipped, an operand or the start out of range,
    too few lines, or a sheet that passes or fails whatever is answered."""
    operands, place = sheet.operands, rng.randrange(len(sheet.operands))
    match rng.randrange(6):
        case 0:
            return sums.render(sheet).removesuffix("=")
        case 1:
            text = sums.render(sheet)
            return text.replace(LABELS[place], LABELS[place + 1], 1)
        case 2:
            strange = rng.choice((0, *range(sums.LARGEST + 1, 10)))
            return sums.render(sheet._replace(operands=(*operands[:place], strange, *operands[place + 1 :])))
        case 3:
            return sums.render(sheet._replace(start=rng.randrange(sums.MODULUS, 10)))
        case 4:
            return sums.render(sheet._replace(operands=operands[: rng.randint(5, 7)]))
        case _:
            return sums.render(sheet._replace(allowed=rng.choice((0, 5, 6))))


def _weighted(weights: tuple[float, ...], first: int, rng: random.Random) -> int:
    """One of first, first + 1, ..., by weight."""
    return rng.choices(range(first, first + len(weights)), weights)[0]
