"""Reads the examples on the pages about hosts."""

import re

from paths import REPOSITORY

PAGES = REPOSITORY / "docs" / "hosts"


def example(page: str, language: str = "python", heading: str = "") -> str:
    """The only code block in a language before a page's first heading of level 2, or under the given heading."""
    text = (PAGES / page).read_text()
    under = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text.split("\n## ")[0]
    [code] = re.findall(rf"^```{language}\n(.*?)^```", under, re.DOTALL | re.MULTILINE)
    return str(code)
