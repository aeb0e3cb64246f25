"""The page of published results beside our own agrees with itself."""

import re
from collections import Counter

from paths import REPOSITORY

PAGE = (REPOSITORY / "experiments" / "results" / "what_is_reproduced" / "README.md").read_text()
STATUSES = ("reproduced", "partly", "not reproduced", "not testable here")
ROWS = [
    (part.split("\n")[0], *re.fullmatch(r"(.*): (.*)", row.split("\n")[0]).groups(), row)  # type: ignore[union-attr]
    for part in re.split(r"\n## ", PAGE)
    for row in part.split("\n### ")[1:]
]
"""Paper, result, status and text of every row."""


def test_the_overview_counts_every_row_once() -> None:
    for paper in ("Prefix Sampling, blog", "Prefix Sampling, paper", "PROS", "PROPEL", "GRESO", "all"):
        counts = Counter(status for source, _, status, _ in ROWS if paper in (source, "all"))
        cells = [counts.total(), *(counts[status] for status in STATUSES)]
        assert f"| {paper} | {' | '.join(map(str, cells))} |" in PAGE
    assert {status for _, _, status, _ in ROWS} == set(STATUSES) and len({row[:2] for row in ROWS}) == len(ROWS)


def test_a_row_is_measured_and_explained_as_its_status_says() -> None:
    reasons = set(
        re.findall(r"^- \*\*([^*]+)\*\*: ", PAGE.partition("## Why results differ")[2].partition("\n## ")[0], re.M)
    )
    for _, name, status, text in ROWS:
        assert ("- **Measured**: " in text) == (status != "not testable here"), name
        why = re.search(r"^- \*\*Why\*\*: ([^.]*)\.", " ".join(text.split("\n  ")), re.M)
        assert bool(why) == (status != "reproduced"), name
        assert why is None or set(why[1].split(", ")) <= reasons, name
        assert "- **Claim**: " in text and "- **Published**: " in text, name
