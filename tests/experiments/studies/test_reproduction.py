"""The reproduction table: the page is current, and what it names exists."""

from dataclasses import replace

import pytest
from paths import REPOSITORY

from halfway.curriculum.support.errors import UserError
from halfway.experiments.studies.reproduction import PAGE, Measured, read_rows, render

ROWS = read_rows()


def test_page_is_up_to_date():
    assert PAGE.read_text() == render(ROWS), "run `python -m halfway.experiments.studies.reproduction`"


def test_every_paper_has_rows():
    assert {row.paper for row in ROWS} == {
        "Prefix Sampling, blog",
        "Prefix Sampling, paper",
        "PROS",
        "PROPEL",
        "GRESO",
    }


@pytest.mark.parametrize("recipe", sorted({row.recipe for row in ROWS if row.recipe}))
def test_recipe_exists_and_validates(recipe):
    from halfway.experiments.config.loading import load_config
    from halfway.experiments.propel.config import is_study, load_study

    assert (REPOSITORY / recipe).is_file()
    if is_study(REPOSITORY / recipe):
        load_study(REPOSITORY / recipe)
    else:
        load_config(REPOSITORY / recipe)


def test_measured_rows_name_a_result_and_a_command():
    for row in ROWS:
        assert row.measured is None or (row.measured.command and (REPOSITORY / row.measured.result).is_file()), row.item


def test_published_and_measured_never_share_a_column():
    measured = Measured("OUR NUMBER", "experiments/results/x.md", "halfway compare x.yaml")
    page = render([replace(ROWS[0], published="THEIR NUMBER", status="measured", measured=measured)])
    (line,) = [line for line in page.splitlines() if "OUR NUMBER" in line]
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert cells[3] == "THEIR NUMBER"
    assert cells[4] == "OUR NUMBER ([result](../experiments/results/x.md), `halfway compare x.yaml`)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("status: open", "status: done", "done"),
        ("status: open", "status: measured", "measured"),
        ("status: open", "status: recipe", "without a recipe"),
        ("metric: m", "metrics: m", "metrics"),
    ],
)
def test_bad_rows_are_refused_in_one_line(tmp_path, old, new, message):
    row = "paper: p, item: i, claim: c, published: x, arms: [a], metric: m, recipe: null, status: open, missing: y"
    path = tmp_path / "reproduction.yaml"
    path.write_text(f"rows: [{{{row}, measured: null}}]")
    assert len(read_rows(path)) == 1
    path.write_text(f"rows: [{{{row.replace(old, new)}, measured: null}}]")
    with pytest.raises(UserError, match=message) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)
