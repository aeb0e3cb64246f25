"""A table as text, and the functions that format its numbers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfway.experiments.report.statistics.intervals import Estimate

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text: the first column holds names, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str

    def markdown(self) -> str:
        header = f"| {' | '.join(self.columns)} |"
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        body = "\n".join(f"| {' | '.join(row)} |" for row in self.rows)
        return f"**{self.title}**\n\n{header}\n{rule}\n{body}\n\n{self.caption}\n"

    def rich(self) -> "Table":
        """The table for the terminal."""
        from rich import box
        from rich.table import Table

        table = Table(title=self.title, caption=self.caption, box=box.SIMPLE_HEAD, caption_justify="left", padding=0)
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left", style="bold" if i == 0 else "", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def number(estimate: Estimate | None, digits: int = 3, signed: bool = False) -> str:
    """The value without its bounds, as text."""
    if estimate is None:
        return NONE
    return f"{estimate.value:{'+' if signed else ''},.{digits}f}"


def interval(estimate: Estimate | None, digits: int = 3, signed: bool = False) -> str:
    """The value as text, with its bounds if it has both."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return number(estimate, digits, signed)
    sign = "+" if signed else ""
    return f"{number(estimate, digits, signed)} [{estimate.low:{sign},.{digits}f}, {estimate.high:{sign},.{digits}f}]"


def percent(estimate: Estimate | None) -> str:
    """A share in per cent, without its bounds."""
    return NONE if estimate is None else f"{100 * estimate.value:.1f} %"


def percent_interval(estimate: Estimate | None) -> str:
    """A share in per cent, with its bounds if it has both."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return percent(estimate)
    return f"{percent(estimate)} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def seeds_text(seeds: int) -> str:
    """The number of seeds behind a row; a single seed is marked, since it shows no spread."""
    return "1 only" if seeds == 1 else str(seeds)


def p_value(p: float | None) -> str:
    """A p-value with three decimals, or "<.001"."""
    if p is None:
        return NONE
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
