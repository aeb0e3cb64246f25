"""Judges the rows of the papers, and writes their page and the tables of the result pages from committed numbers:

python experiments/results/write_pages.py
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import write_text
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.reproduction.judging import write_measured
from halfway.experiments.results.how_fast_is_it import controllers, planner, tokens
from halfway.experiments.results.what_is_reproduced.pages import write_pages
from halfway.experiments.results.when_does_it_pay.choosing import choosing_table, retries_table
from halfway.experiments.results.when_does_it_pay.starting_inside import starting_inside_table
from halfway.experiments.results.when_does_it_pay.verdict_numbers import (
    arms_table,
    best_table,
    headline_table,
    lab_table,
    pairs_table,
    read_verdict,
    screened_table,
)
from halfway.experiments.scripts import script, script_parser

BEGIN, END = "<!-- {}: begin, written by `make reproduction` -->", "<!-- {}: end -->"
"""The marks around a table on a page."""


@script
def main() -> int:
    """Write, and name the pages that were stale."""
    script_parser(__doc__).parse_args()
    write_measured()
    for path in (*write_marked(tables_of(REPOSITORY)), *write_pages()):
        print(f"written: {path}")
    return 0


def tables_of(root: Path) -> dict[Path, dict[str, str]]:
    """The tables of each page below a repository's root, as Markdown, by the name in the marks around them.

    Raises:
        UserError: if a verdict cannot be read.
    """
    results = root / "experiments" / "results"
    paying, model = results / "when_does_it_pay", results / "does_a_pretrained_model_learn"
    verdict, found = read_verdict(paying / "verdict.json"), read_verdict(model / "verdict.json")
    fast = results / "how_fast_is_it"
    steps, files, plans = (
        json.loads((fast / f"{name}.json").read_text()) for name in ("controllers", "tokens", "planner")
    )
    recipes = {name: row for name, row in steps.items() if "/" in name}
    return {
        paying / "README.md": {"headline": headline_table(verdict).markdown()},
        paying / "tables.md": {
            "choosing": choosing_table(paying).markdown(),
            "retries": retries_table(paying).markdown(),
            "starting inside": starting_inside_table(paying).markdown(),
            "best": best_table(verdict).markdown(),
            "verdict": arms_table(verdict).markdown(),
            "pairs": pairs_table(verdict).markdown(),
            "screened": screened_table(verdict).markdown(),
        },
        model / "method.md": {
            "lab": lab_table(found, verdict).markdown(),
            "verdict": arms_table(found).markdown(),
            "screened": screened_table(found).markdown(),
        },
        fast / "tables.md": {
            "controllers": controllers.table(recipes).markdown(),
            "tokens": tokens.table(files).markdown(),
            "planner": planner.table(plans).markdown(),
        },
    }


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


if __name__ == "__main__":
    sys.exit(main())
