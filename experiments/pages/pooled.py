"""Savings read off mean curves, in `results/when_does_it_pay/pooled.json`, and the tables of them."""

from pathlib import Path

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.experiments.pages.contests import MEASURES, Number
from halfway.experiments.report.tables.text import NONE, TextTable, interval

END_COLUMNS = ("pass@1 at the end", "area")


class Row(msgspec.Struct, array_like=True, frozen=True):
    """One arm; None where a number was not reported or the baseline's end was not reached.

    Attributes:
        told: what the arm is told or given that plain GRPO lacks.
        rollouts, tokens, cost_quarter, cost_one: spent until the baseline's mean end, as multiples of the baseline's.
        end: mean of the final pass@1 and its spread over seeds.
        area: mean pass@1 over the budget.
    """

    arm: str
    told: str
    rollouts: Number | None
    tokens: Number | None
    cost_quarter: Number | None
    cost_one: Number | None
    end: tuple[float, float] | None
    area: float | None

    @property
    def prices(self) -> tuple[Number | None, ...]:
        return self.rollouts, self.tokens, self.cost_quarter, self.cost_one


class Set(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Arms that were run together.

    Attributes:
        seeds: their seeds, in words.
        front: the arms that README shows.
    """

    name: str
    regime: str
    seeds: str
    baseline: str
    front: tuple[str, ...]
    rows: tuple[Row, ...]


class Pooled(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All sets; `columns` names the fields of a row for readers of the file."""

    columns: tuple[str, ...]
    sets: tuple[Set, ...]


def read_pooled(path: Path) -> Pooled:
    """Read the savings.

    Raises:
        UserError: if the file cannot be read as such.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Pooled)
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{path}: {error}; restore it with git") from None


def front_table(pooled: Pooled) -> TextTable:
    """The arms that README shows, by regime."""
    rows = [
        (each.regime, row.arm, row.told or NONE, f"{each.baseline}, seeds {each.seeds}", *_cells(row))
        for each in pooled.sets
        for row in each.rows
        if row.arm in each.front
    ]
    order = list(dict.fromkeys(row[0] for row in rows))
    rows.sort(key=lambda row: order.index(row[0]))
    columns = ("regime", "arm", "is told", "beside", *MEASURES.values())
    return TextTable("What reaching GRPO's final score costs, as a multiple of GRPO's cost", columns, tuple(rows), "")


def pooled_table(pooled: Pooled) -> TextTable:
    """Every arm of every set."""
    rows = []
    for each in pooled.sets:
        for row in each.rows:
            end = f"{row.end[0]:.3f} ± {row.end[1]:.3f}" if row.end else NONE
            area = NONE if row.area is None else f"{row.area:.3f}"
            beside = f"{each.baseline}, seeds {each.seeds}"
            rows.append((each.regime, row.arm, row.told or NONE, beside, *_cells(row), end, area))
    columns = ("regime", "arm", "is told", "beside", *MEASURES.values(), *END_COLUMNS)
    return TextTable("Every arm whose mean curve was compared", columns, tuple(rows), "")


def _cells(row: Row) -> list[str]:
    if row.rollouts is None:
        return ["not reached", *[NONE] * 3]
    return [NONE if price is None else interval(price.estimate, 2) for price in row.prices]
