"""The rows of published results beside our own."""

from pathlib import Path

import msgspec
import pytest
from paths import REPOSITORY

from halfway.curriculum.support.errors import UserError
from halfway.experiments.pages.reproduction import Measured, overview, read_rows, rows_text

FILE = REPOSITORY / "experiments" / "results" / "what_is_reproduced" / "rows.yaml"
ROWS = read_rows(FILE).rows
ROW = (
    "paper: p, item: i, claim: c, published: x, arms: [a], metric: m, missing: y, status: open, why: [], recipe: null, "
    "measured: null"
)


def test_every_paper_has_rows() -> None:
    papers = {"Prefix Sampling, blog", "Prefix Sampling, paper", "PROS", "PROPEL", "GRESO"}
    assert {row.paper for row in ROWS} == papers


def test_results_and_recipes_that_rows_name_exist() -> None:
    named = {path for row in ROWS for path in (row.recipe, row.measured and row.measured.result) if path}
    assert sorted(path for path in named if not (REPOSITORY / path).is_file()) == []


def test_published_and_measured_numbers_stand_apart() -> None:
    row = msgspec.structs.replace(ROWS[0], published="THEIR", measured=Measured("OURS", "experiments/results/x.json"))
    lines = rows_text([row], FILE, REPOSITORY).splitlines()
    assert (
        sum("THEIR" in line for line in lines) == 1
        and sum("OURS ([numbers](../x.json))" in line for line in lines) == 1
    )
    assert not [line for line in lines if "THEIR" in line and "OURS" in line]
    assert all(len(line) <= 120 for line in rows_text(ROWS, FILE, REPOSITORY).splitlines())


def test_the_overview_counts_every_row_once() -> None:
    last = overview(ROWS).splitlines()[-1]
    counts = [int(cell) for cell in last.strip("| ").split(" | ")[1:]]
    assert counts[0] == len(ROWS) == sum(counts[1:])


def test_a_row_is_measured_and_explained_as_its_status_says() -> None:
    for row in ROWS:
        assert (row.measured is None) == (row.status in ("not testable here", "open")), row
        assert bool(row.why) == (row.status not in ("reproduced", "open")), row
        assert set(row.why) <= set(read_rows(FILE).reasons), row
    assert len({(row.paper, row.item) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("old", "new"), [("status: open", "status: done"), ("metric: m", "metrics: m")])
def test_a_row_with_an_unknown_field_or_status_is_refused_in_one_line(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(f"reasons: {{}}\nrows: [{{{ROW}}}]")
    assert len(read_rows(path).rows) == 1
    path.write_text(f"reasons: {{}}\nrows: [{{{ROW.replace(old, new)}}}]")
    with pytest.raises(UserError, match=r"done|metrics") as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)
