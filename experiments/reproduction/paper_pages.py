"""Writes the pages of reproduced results, and a picture per paper, from the rows and their measurements."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.reproduction.judging import (
    ENOUGH,
    NOT,
    NOT_RUN,
    PARTLY,
    REPRODUCED,
    STATUSES,
    UNDECIDED,
    Measured,
    decided_claims,
    read_measured,
)
from halfway.experiments.reproduction.paper_rows import Paper, Row, papers
from halfway.experiments.reproduction.reproduce import LATE, measured_text, minutes_text

FOLDER = REPOSITORY / "experiments" / "results" / "what_is_reproduced"
INTRODUCTION = f"""\
# What of the published results is reproduced?

`make reproduction` writes this page from `experiments/reproduction`: the rows, their rules, and the committed runs.

A row is one published result, and its command judges it: with the runs that are committed, or, with `--fresh`, with
runs that it trains. An estimate has to reach **half of the median of the published effects**, all those that the place
prints for the claim; where the source prints none, the size is our choice, and the command says so. *Reproduced*: the
95 % interval excludes no effect, on the right side, and the estimate reaches the size. *Partly*: it does not reach it.
*Not reproduced*: the interval holds no effect, or lies on the other side. *Undecided*: with the spread that was
measured, a true effect of that size would be shown in less than {ENOUGH:.1f} of contests (its **power**), whatever was
found. A claim of bounds is *reproduced* if the interval lies within them, *not reproduced* if it lies outside, and else
*undecided*. *Decided claims* are the rows that runs decided, without those whose rule was written after the runs; rows
that rest on one measurement count once. The [grounds](ground.md) were fixed before any method ran on them. Minutes are
those of all runs on two cores, + those of starting models, which are made once.
"""
CLAIMS = "decided claims"
COLORS = {REPRODUCED: "#1a7f37", PARTLY: "#9a6700", NOT: "#cf222e", UNDECIDED: "#6e7781"}
DARK, LIGHT = "#57606a", "#d0d7de"
LEFT, WIDTH, LINE = 230, 420, 22
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


def pages() -> dict[str, str]:
    """Make the first page, and a page of rows per paper, as Markdown, by file name."""
    first = "\n".join([INTRODUCTION, _overview(), *(part for paper in papers() for part in _section(paper))])
    return {"README.md": first, **{f"{paper.name}.md": _rows(paper) for paper in papers()}}


def pictures() -> dict[str, str]:
    """Draw the picture of each paper with measured multiples, as SVG, by file name."""
    return {f"{paper.name}.svg": svg for paper in papers() if (svg := _picture(paper, read_measured(paper)))}


def write_page() -> list[Path]:
    """Write the pages and their pictures; returns the changed files."""
    files = {FOLDER / name: text for name, text in {**pages(), **pictures()}.items()}
    changed = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        write_text(path, files[path])
    return changed


def _overview() -> str:
    """Count each paper's rows by status, and the claims that its runs decided."""
    counts = {}
    for paper in papers():
        found = read_measured(paper)
        counts[paper.name] = Counter(one.status for one in found.values())
        counts[paper.name][CLAIMS] = len(decided_claims(paper, found))
    counts["all"] = sum(counts.values(), Counter[str]())
    columns = (*STATUSES, CLAIMS)
    rows = [(name, *(str(number[column]) for column in columns)) for name, number in counts.items()]
    return TextTable("", ("paper", *columns), tuple(rows)).markdown()


def _section(paper: Paper) -> Iterator[str]:
    """A paper on the first page."""
    yield f"## {paper.method}\n\n[Its {len(paper.rows)} rows, its ground, and what differs and why]({paper.name}.md).\n"
    if _picture(paper, read_measured(paper)):
        yield f"![Measured multiples of {paper.method} with intervals]({paper.name}.svg)\n"


def _rows(paper: Paper) -> str:
    """The page of a paper's rows."""
    head = (
        f"# What of {paper.method} is reproduced?\n\n{paper.title}. [How a row is judged](README.md);\n"
        f"`halfway reproduce {paper.name}/ROW` judges it, and names its arms.\n"
    )
    ground = f"*Its ground*: {paper.ground.strip()}\n"
    differs = f"*What differs, and why*: {paper.differs.strip()}\n"
    return "\n".join([head, ground, differs, _table(paper, read_measured(paper))])


def _table(paper: Paper, found: Mapping[str, Measured]) -> str:
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
    files = {f"{name}.md": _table(paper, {name: found}), f"{name}.svg": _picture(paper, {name: found})}
    written = {folder / file: text for file, text in files.items() if text}
    for path, text in written.items():
        write_text(path, text)
    return [*written]


def _measured(row: Row, found: Measured) -> str:
    if not row.runs:
        return row.cannot or f"shown by {row.shown_by}"
    return "-" if found.status == NOT_RUN else measured_text(row, found, arms=False) + LATE * row.late


def _picture(paper: Paper, measured: Mapping[str, Measured]) -> str:
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
