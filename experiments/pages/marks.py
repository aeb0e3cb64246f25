"""Which tables belong on which page, and how they are written there."""

import re
from collections.abc import Mapping
from pathlib import Path

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.pages.verdict import (
    arms_table,
    best_table,
    headline_table,
    lab_table,
    pairs_table,
    read_verdict,
    screened_table,
)

BEGIN, END = "<!-- {}: begin, written by `halfway pages` -->", "<!-- {}: end -->"


def blocks(root: Path) -> dict[Path, dict[str, str]]:
    """What is written on each page of the repository, by the name in the marks around it.

    Raises:
        UserError: if the numbers are not there, as in an installed package, or cannot be read.
    """
    paying = root / "experiments" / "results" / "when_does_it_pay"
    verdict = read_verdict(paying / "verdict.json")
    tables = {
        "best": best_table(verdict),
        "verdict": arms_table(verdict),
        "pairs": pairs_table(verdict),
        "screened": screened_table(verdict),
    }
    model = root / "experiments" / "results" / "does_a_pretrained_model_learn"
    found = read_verdict(model / "verdict.json")
    model_tables = {"lab": lab_table(found, verdict), "verdict": arms_table(found), "screened": screened_table(found)}
    pages = {model: model_tables, paying: tables, root: {"headline": headline_table(verdict)}}
    return {
        folder / "README.md": {name: table.markdown() for name, table in tables.items()}
        for folder, tables in pages.items()
    }


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """The text with each block between its marks, in place of what was there.

    Raises:
        UserError: unless the text has each block's two marks exactly once, in order.
    """
    for name, block in blocks.items():
        begin, end = BEGIN.format(name), END.format(name)
        whole = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}\n", re.DOTALL)
        place = whole.search(text)
        if place is None or (text.count(begin), text.count(end)) != (1, 1):
            raise UserError(f"there must be once each, in this order, on lines of their own: {begin} and {end}")
        text = f"{text[: place.start()]}{begin}\n\n{block.strip()}\n\n{end}\n{text[place.end() :]}"
    return text


def stale_pages(root: Path) -> dict[Path, str]:
    """The text that each page should have, for those pages that differ from it."""
    found = {}
    for path, tables in blocks(root).items():
        text = path.read_text()
        try:
            new = filled(text, tables)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if new != text:
            found[path] = new
    return found


def write_pages(root: Path, check: bool = False) -> list[Path]:
    """Bring the pages up to date, and return those that were not.

    Args:
        check: only look, and refuse stale pages.

    Raises:
        UserError: if the numbers or a page's marks are missing; with `check`, if a page is stale.
    """
    stale = stale_pages(root)
    if check and stale:
        names = ", ".join(str(path.relative_to(root)) for path in stale)
        raise UserError(f"{names}: not what the committed numbers say; run `halfway pages`")
    for path, text in stale.items():
        write_text(path, text)
    return list(stale)
