"""Judges the rows of the papers, and writes their page and the tables of the result pages from committed numbers:

python experiments/results/write_pages.py
"""

import json
import sys
from pathlib import Path

from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.reproduction.judging import write_measured
from halfway.experiments.reproduction.marks import write_marked
from halfway.experiments.reproduction.page import write_page
from halfway.experiments.results.how_fast_is_it import controllers, planner, tokens
from halfway.experiments.results.when_does_it_pay.choosing import choosing_table, retries_table
from halfway.experiments.results.when_does_it_pay.judging import (
    arms_table,
    best_table,
    headline_table,
    lab_table,
    pairs_table,
    read_verdict,
    screened_table,
)
from halfway.experiments.results.when_does_it_pay.starting_inside import starting_inside_table
from halfway.experiments.scripts import script, script_parser


@script
def main() -> int:
    """Write, and name the pages that were stale."""
    script_parser(__doc__).parse_args()
    write_measured()
    for path in (*write_marked(tables_of(REPOSITORY)), *write_page()):
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


if __name__ == "__main__":
    sys.exit(main())
