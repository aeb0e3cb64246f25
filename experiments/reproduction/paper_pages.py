"""The table and the picture of reproduced results, from the rows of a paper and their measurements."""

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.reproduction.judging import (
    NOT,
    NOT_RUN,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
    Measured,
)
from halfway.experiments.reproduction.paper_rows import Paper, Row
from halfway.experiments.reproduction.reproduce import LATE, measured_text, minutes_text

COLORS = {REPRODUCED: "#1a7f37", PARTLY: "#9a6700", NOT: "#cf222e", UNDECIDED: "#6e7781"}
DARK, LIGHT = "#57606a", "#d0d7de"
LEFT, WIDTH, LINE = 230, 420, 22
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


def table(paper: Paper, found: Mapping[str, Measured]) -> str:
    """The rows of a paper that were measured, as Markdown."""
    cells = [
        (
            row.place,
            row.claim,
            row.published,
            _measured(row, one),
            one.status,
            f"`{name}`",
            minutes_text(paper, row),
        )
        for name, one in found.items()
        if (row := paper.rows[name])
    ]
    columns = ("place", "claim", "published", "measured", "status", "row", "minutes")
    return TextTable("", columns, tuple(cells), words=True).markdown()


def write_row(folder: Path, paper: Paper, name: str, found: Measured) -> list[Path]:
    """Write a row's table, and its picture if a multiple was measured. Returns the files."""
    files = {f"{name}.md": table(paper, {name: found}), f"{name}.svg": picture(paper, {name: found})}
    written = {folder / file: text for file, text in files.items() if text}
    for path, text in written.items():
        write_text(path, text)
    return [*written]


def _measured(row: Row, found: Measured) -> str:
    if not row.runs:
        return row.cannot or f"shown by {row.shown_by}"
    return "-" if found.status == NOT_RUN else measured_text(row, found, arms=False) + LATE * row.late


def picture(paper: Paper, measured: Mapping[str, Measured]) -> str:
    """Draw multiples with their intervals on a logarithmic axis, and the required sizes; empty without multiples."""
    found = {name: one for name, one in measured.items() if paper.rows[name].against and one.low}
    if not found:
        return ""
    sizes = [row.least for name in found if (row := paper.rows[name]).within is None]
    ends = [end for one in found.values() for end in (one.low, one.high, one.value) if end] + sizes
    low, high = math.log(min(0.9, *ends)), math.log(max(1.1, *ends))

    def x(multiple: float) -> str:
        return f"{LEFT + WIDTH * (min(max(math.log(multiple), low), high) - low) / (high - low):.1f}"

    height = LINE * (len(found) + 2)
    drawn = [
        f'<line x1="{x(tick)}" x2="{x(tick)}" y1="8" y2="{height - 34}" stroke="{DARK if tick == 1 else LIGHT}"/>'
        f'<text x="{x(tick)}" y="{height - 20}" text-anchor="middle">{tick:g}</text>'
        for tick in TICKS
        if low <= math.log(tick) <= high
    ]
    for number, (name, one) in enumerate(found.items()):
        y, row, color = 20 + LINE * number, paper.rows[name], COLORS.get(one.status, DARK)
        assert one.low is not None
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        span = f'x1="{x(one.low)}" x2="{x(one.high or math.inf)}" y1="{y}" y2="{y}"'
        drawn.append(f'<line {span} stroke="{color}" stroke-width="3"/>')
        if one.value:
            drawn.append(f'<circle cx="{x(one.value)}" cy="{y}" r="4" fill="{color}"/>')
        if row.within is None:
            at = x(row.least)
            drawn.append(f'<line x1="{at}" x2="{at}" y1="{y - 7}" y2="{y + 7}" stroke="#0969da" stroke-width="2"/>')
    legend = ", ".join(dict.fromkeys(one.status for one in found.values()))
    drawn.append(f'<text x="8" y="{height - 4}">measured / reference; blue: size asked for; {legend} by colour</text>')
    size = f'width="{LEFT + WIDTH + 20}" height="{height}" viewBox="0 0 {LEFT + WIDTH + 20} {height}"'
    style = 'font-family="sans-serif" font-size="11" fill="#24292f"'
    back = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{back}\n' + "\n".join(drawn) + "\n</svg>\n"
