"""Writes tables between two marks on a page."""

import re
from collections.abc import Mapping
from pathlib import Path

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import write_text

BEGIN, END = "<!-- {}: begin, written by `make reproduction` -->", "<!-- {}: end -->"


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """Replace the text between the marks of each block.

    Raises:
        UserError: unless the text has each block's two marks exactly once, in order.
    """
    for name, block in blocks.items():
        begin, end = BEGIN.format(name), END.format(name)
        whole = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}\n", re.DOTALL)
        place = whole.search(text)
        if place is None or (text.count(begin), text.count(end)) != (1, 1):
            raise UserError(f"the page needs each mark once, in this order, on its own line: {begin} and {end}")
        text = f"{text[: place.start()]}{begin}\n\n{block.strip()}\n\n{end}\n{text[place.end() :]}"
    return text


def write_marked(pages: Mapping[Path, Mapping[str, str]]) -> list[Path]:
    """Write the blocks of each page, by the name in their marks; returns the changed pages.

    Raises:
        UserError: if a page's marks are missing; no page is then written.
    """
    changed = {}
    for path, blocks in pages.items():
        text = path.read_text()
        try:
            new = fill(text, blocks)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if new != text:
            changed[path] = new
    for path, text in changed.items():
        write_text(path, text)
    return list(changed)
