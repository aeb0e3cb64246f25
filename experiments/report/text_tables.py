"""A table as text, and the functions that format its numbers."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from halfway.curriculum.support.extras import clean
from halfway.experiments.output_flags import clean_lines
from halfway.experiments.report.statistics.intervals import FEW

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

    from halfway.experiments.report.statistics.intervals import Estimate

Row = TypeVar("Row")
NONE = "-"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text: the first column has names, the others numbers or, if `words` is true, words.

    A table without column names has no header.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    words: bool = False

    def markdown(self) -> str:
        header, *body = (f"| {' | '.join(map(_markdown, row))} |" for row in (self.columns, *self.rows))
        rule = "|---|" + ("---|" if self.words else "---:|") * (len(self.columns) - 1)
        written = "\n".join([header, rule, *body])
        parts = (f"**{_markdown(self.title)}**" if self.title else "", written, _markdown(self.caption))
        return "\n\n".join(filter(None, parts)) + "\n"

    def rich(self, padding: int = 0, widths: "Sequence[int] | None" = None) -> "Table":
        """The table for the terminal, with `padding` spaces beside each cell, and columns of any width."""
        from rich import box
        from rich.table import Table

        table = Table(
            title=_shown(self.title) if self.title else None,
            caption=_shown(self.caption) if self.caption else None,
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
            padding=(0, padding),
            show_header=any(self.columns),
        )
        for i, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if self.words or i == 0 else "right"
            style, width = "bold" if i == 0 else "", widths[i] if widths else None
            table.add_column(_shown(column), justify=justify, style=style, overflow="fold", width=width)
        for row in self.rows:
            table.add_row(*map(_shown, row))
        return table

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Table | Text]":
        """The table, if it fits without cutting words; otherwise one line per cell, under its row's name."""
        for padding in (1, 0):
            widths = self._widths(options.max_width - 1 - (2 * padding + 1) * len(self.columns))
            if widths:
                yield self.rich(padding, widths)
                return
        yield from self._lines()

    def _widths(self, room: int) -> list[int]:
        """The columns' widths, at most `room` together; the widest columns shrink. Empty if words are wider."""
        from rich.cells import cell_len

        cells = ["\n".join(each) for each in zip(self.columns, *self.rows, strict=True)]
        wanted = [max(cell_len(clean(line)) for line in cell.split("\n")) for cell in cells]
        least = [max((cell_len(clean(word)) for word in cell.split()), default=0) for cell in cells]
        while sum(wanted) > room:
            loose = [i for i in range(len(wanted)) if wanted[i] > least[i]]
            if not loose:
                return []
            wanted[max(loose, key=wanted.__getitem__)] -= 1
        return wanted

    def _lines(self) -> "Iterator[Text]":
        from rich.text import Text

        yield Text(clean(self.title), "italic")
        for name, *cells in self.rows:
            yield Text(f"\n{clean(name)}", "bold")
            for column, cell in zip(self.columns[1:], cells, strict=True):
                yield Text("  " + clean(" ".join(f"{column}: {cell}".split()) if column else cell))
        if self.caption:
            yield Text(f"\n{clean(self.caption)}", "dim italic")


def _shown(cell: str) -> "Text":
    """Convert a cell for the terminal, without markup; it keeps its lines."""
    from rich.text import Text

    return Text(clean_lines(cell))


def table_of(
    title: str, rows: Iterable[Row], columns: Iterable[tuple[str, Callable[[Row], str]]], caption: str
) -> TextTable:
    """Make a table from columns, each a name and a function that writes a row's cell."""
    names, cells = zip(*columns, strict=True)
    return TextTable(title, names, tuple(tuple(cell(row) for cell in cells) for row in rows), caption)


MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=[\w#])|\](?=[(\[:])|\|")


def _markdown(text: str) -> str:
    """Escape text so that it cannot end its column, contain HTML, or fetch a picture."""
    return MARKUP.sub(lambda found: {"<": "&lt;", "&": "&amp;"}.get(found[0], f"\\{found[0]}"), clean(text))


def number(estimate: "Estimate | None", digits: int = 3, signed: bool = False) -> str:
    """The value without its bounds, as text."""
    if estimate is None:
        return NONE
    return f"{estimate.value:{'+' if signed else ''},.{digits}f}"


def interval(estimate: "Estimate | None", digits: int = 3, signed: bool = False) -> str:
    """The value as text, with its bounds if it has both; with the single values of two or three runs instead."""
    form = f"{'+' if signed else ''},.{digits}f"
    return _with_spread(number(estimate, digits, signed), estimate, lambda value: f"{value:{form}}")


def share_text(share: float | None) -> str:
    """A share in percent."""
    return NONE if share is None else f"{100 * share:.1f} %"


def percent(estimate: "Estimate | None") -> str:
    """A share in percent, without its bounds."""
    return share_text(None if estimate is None else estimate.value)


def percent_interval(estimate: "Estimate | None") -> str:
    """A share in percent, with its bounds if it has both; with the single values of two or three runs instead."""
    return _with_spread(percent(estimate), estimate, lambda value: f"{100 * value:.1f}")


def _with_spread(value: str, estimate: "Estimate | None", write: Callable[[float], str]) -> str:
    if estimate is not None and 1 < len(estimate.values) <= FEW:
        return f"{value} ({', '.join(map(write, estimate.values))})"
    if estimate is None or estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{write(estimate.low)}, {write(estimate.high)}]"


def seeds_text(seeds: int) -> str:
    """The number of seeds of a row; a single seed is marked, since it shows no spread."""
    return "1 only" if seeds == 1 else str(seeds)


def p_value(p: float | None) -> str:
    """A p-value with three decimals, or "<0.001"."""
    if p is None:
        return NONE
    return "<0.001" if p < 0.001 else f"{p:.3f}"
