"""`halfway reproduce` lists rows and resolves the configuration of each."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from halfway.experiments.cli import app
from halfway.experiments.reproduction.command import comparison_of, study_of
from halfway.experiments.reproduction.rows import NAMES, load_paper


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_listed_and_its_configuration_resolves(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paper = load_paper(name)
    for model in paper.starting_models:
        Path(model.path).mkdir(parents=True)
    listed = CliRunner().invoke(app, ["reproduce", name], env={"COLUMNS": "200"}).output
    for row_name, row in paper.rows.items():
        assert row_name in listed
        if row.runs and paper.study:
            assert {*row.arms} <= {"base", *study_of(paper, row).arms}
        elif row.runs:
            assert {*row.arms} == {*comparison_of(paper, row).arms}


@pytest.mark.parametrize(
    "words", [["nothing"], ["greso/nothing"], ["propel/table-6x"], ["greso/table-1-rollouts", "--on", "x"]]
)
def test_a_wrong_word_costs_one_line(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["reproduce", *words])
    assert done.exit_code == 2 and done.output.count("\n") == 1 and done.output.startswith("error: ")
