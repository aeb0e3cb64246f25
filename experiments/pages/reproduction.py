"""Published results beside our own: the rows of `results/what_is_reproduced/rows.yaml`, and their text."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Literal, get_args

import msgspec

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.errors import UserError

Status = Literal["reproduced", "partly", "not reproduced", "not testable here", "open"]
STATUSES: tuple[Status, ...] = get_args(Status)
WIDTH = 120


class Measured(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Our number in the laboratory.

    Attributes:
        value: the number with its interval, in words.
        result: path of the file that contains it, relative to the root of the repository.
    """

    value: str
    result: str


class Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One published result.

    Attributes:
        claim: what the source claims, in one line.
        published: the source's numbers, at its own scale.
        missing: what the source does not report.
        why: names of reasons for which it is not simply reproduced.
        recipe: path of a recipe for the source's scale, relative to the root of the repository.
        measured: our number; None if the status says that there is none.
    """

    paper: str
    item: str
    claim: str
    published: str
    arms: tuple[str, ...]
    metric: str
    missing: str
    status: Status
    why: tuple[str, ...]
    recipe: str | None
    measured: Measured | None


class Rows(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file: reasons by name, and one row per published result."""

    reasons: dict[str, str]
    rows: tuple[Row, ...]


def read_rows(path: Path) -> Rows:
    """Read the rows.

    Raises:
        UserError: if the file cannot be read as such.
    """
    try:
        return msgspec.convert(yaml_bases.parse(path), Rows)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}; see the head of the file for its fields") from error


def overview(rows: Sequence[Row]) -> str:
    """How many results of each paper have which status, as a table."""
    papers = dict.fromkeys(row.paper for row in rows)
    lines = ["| source | results | " + " | ".join(STATUSES) + " |", "|---|" + "---:|" * (1 + len(STATUSES))]
    for paper in [*papers, "all"]:
        own = [row.status for row in rows if paper in (row.paper, "all")]
        lines.append(f"| {paper} | {len(own)} | " + " | ".join(str(own.count(status)) for status in STATUSES) + " |")
    return "\n".join(lines)


def reasons_text(reasons: Mapping[str, str]) -> str:
    """The reasons as a list."""
    return "\n".join(_item(name, text) for name, text in reasons.items())


def rows_text(rows: Sequence[Row], page: Path, root: Path) -> str:
    """The rows in full, by paper.

    Args:
        page: the file that will contain the text; paths are written relative to its folder.
        root: the folder of the repository.
    """
    parts = []
    for paper, group in groupby(rows, key=lambda row: row.paper):
        parts.append(f"## {paper}")
        for row in group:
            parts += [f"### {row.item}: {row.status}", "\n".join(_lines(row, lambda path: _relative(path, page, root)))]
    return "\n\n".join(parts)


def _lines(row: Row, link: Callable[[str], str]) -> list[str]:
    lines = [
        _item("Claim", f"{row.claim}."),
        _item("Published", f"{row.published}. ({' / '.join(row.arms)}: {row.metric})"),
    ]
    if row.measured:
        lines.append(_item("Measured", f"{row.measured.value} ([numbers]({link(row.measured.result)}))."))
    if row.why:
        lines.append(_item("Why", f"{', '.join(row.why)}."))
    lines.append(_item("The source leaves out", f"{row.missing}."))
    if row.recipe:
        lines.append(_item("Recipe for its scale", f"[{Path(row.recipe).name}]({link(row.recipe)})."))
    return lines


def _relative(path: str, page: Path, root: Path) -> str:
    return os.path.relpath(root / path, page.parent)


def _item(name: str, text: str) -> str:
    """An item of a list, in lines of at most `WIDTH` characters."""
    words = re.sub(r"\s+", " ", f"- **{name}**: {text}")
    return fill(words, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
