"""Writes the page of published results beside our own: `python -m halfway.experiments.studies.reproduction`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import msgspec
from omegaconf import OmegaConf

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError

FOLDER = Path(__file__).parent
DATA, PAGE = FOLDER / "reproduction.yaml", FOLDER.parent / "REPRODUCTION.md"
INTRODUCTION = """# Reproduction

One row for each published result. **Published** numbers are the source's, at its own scale (models of 1.5 to 32
billion parameters); "lost" means that the source at hand lacks the number, "inferred" that it follows from others.
**Measured** numbers are ours, at laboratory scale: a small transformer on a synthetic task. The two never mean the same
thing, and a row counts as measured when the mechanism or the ordering that the source claims was measured here.

Status: `measured` = at laboratory scale, with result and command; `recipe` = a recipe is ready and needs a cluster;
`open` = not yet. A recipe beside `open` is the laboratory counterpart, which has not been evaluated for this row yet.

This page is made from `reproduction.yaml` by `python -m halfway.experiments.studies.reproduction`.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Our number at laboratory scale.

    Attributes:
        value: the number with its interval, in words.
        result: path of the file that contains the number, relative to the root of the repository.
        command: the command that produced it.
    """

    value: str
    result: str
    command: str


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One published result.

    Attributes:
        claim: what the source claims, in one line.
        published: the source's numbers, at its own scale.
        recipe: path of a YAML file relative to the root of the repository; None without a recipe.
        missing: what the source does not report.
        measured: our number; None unless the status is "measured".
    """

    paper: str
    item: str
    claim: str
    published: str
    arms: tuple[str, ...]
    metric: str
    recipe: str | None
    status: Literal["measured", "recipe", "open"]
    missing: str
    measured: Measured | None

    def __post_init__(self) -> None:
        where = f"reproduction: {self.paper}, {self.item}"
        if (self.status == "measured") != (self.measured is not None):
            raise UserError(f"{where}: status is {self.status!r}; give `measured` exactly if the status is 'measured'")
        if self.status == "recipe" and self.recipe is None:
            raise UserError(f"{where}: status is 'recipe' without a recipe; name its file or set the status to 'open'")


def read_rows(path: Path = DATA) -> list[PublishedFigure]:
    """Read the rows of the page's tables.

    Raises:
        UserError: for an unknown field, a wrong type or status, a row that contradicts itself, or a row given twice.
    """
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
        assert isinstance(content, dict), "the file is a mapping with the key rows"
        rows = [_row(plain) for plain in content["rows"]]
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}; see the head of the file for the fields") from error
    names = [(row.paper, row.item) for row in rows]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise UserError(f"{path}: {', '.join(repeated[0])} is given twice; keep one row per result")
    return rows


def _row(plain: dict[str, object]) -> PublishedFigure:
    unknown = sorted(set(plain) - set(PublishedFigure.__slots__))
    if unknown:
        raise UserError(
            f"reproduction: {plain.get('item')}: unknown field {unknown[0]!r}; use {list(PublishedFigure.__slots__)}"
        )
    return msgspec.convert(plain, PublishedFigure)


def render(rows: Sequence[PublishedFigure]) -> str:
    """The page in Markdown, one table per paper."""
    counts = {status: sum(row.status == status for row in rows) for status in ("measured", "recipe", "open")}
    parts = [INTRODUCTION, f"{len(rows)} results: " + ", ".join(f"{n} {name}" for name, n in counts.items()) + ".\n"]
    for paper, group in groupby(rows, key=lambda row: row.paper):
        parts += [f"## {paper}\n", _table(group)]
    return "\n".join(parts)


def _table(rows: Iterable[PublishedFigure]) -> str:
    header = (
        "| result | arms | metric | published (own scale) | measured (laboratory scale) | recipe | status | "
        "what the source leaves out |"
    )
    lines = [header, "|---" * 8 + "|"]
    for row in rows:
        cells = (
            f"**{row.item}**: {row.claim}",
            " / ".join(row.arms),
            row.metric,
            row.published,
            _measured(row.measured),
            f"`{row.recipe}`" if row.recipe else "",
            row.status,
            row.missing,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _measured(measured: Measured | None) -> str:
    if measured is None:
        return ""
    link = "../" + measured.result
    return f"{measured.value} ([result]({link}), `{measured.command}`)"


def main() -> None:
    """Write the page."""
    write_text(PAGE, render(read_rows()))


if __name__ == "__main__":
    main()
