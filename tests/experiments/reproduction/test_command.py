"""`halfway reproduce` lists rows and resolves the configuration of each."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import says
from msgspec.structs import replace as replace_struct
from paths import REPOSITORY
from rich.console import Console
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.cli import app
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.propel.config import PropelConfig
from halfway.experiments.reproduction import paper_rows, reproduce
from halfway.experiments.reproduction.paper_rows import NAMES, load_paper
from halfway.experiments.reproduction.reproduce import at_scale, comparison_of, study_of


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


@pytest.mark.parametrize("name", NAMES)
def test_every_row_with_runs_resolves_in_the_papers_own_configuration(name: str) -> None:
    paper = load_paper(name)
    for row in paper.rows.values():
        if row.runs and not {*row.arms} & {*paper.scale.lacks}:
            config = at_scale(paper, row)
            assert {*row.arms} <= {"base", *config.arms}
            if isinstance(config, ComparisonConfig):
                for arm in row.arms:
                    config.run(arm, 0)
    assert all(arm.startswith("ppo") for arm in paper.scale.lacks)


def test_an_arm_that_cannot_run_at_the_papers_scale_says_why() -> None:
    pros = load_paper("pros")
    with pytest.raises(UserError, match=says("--scale paper", "ppo", "DeepSpeed")):
        at_scale(pros, pros.rows["main-ppo"])


def test_a_row_of_another_model_has_that_model_at_the_papers_scale() -> None:
    prefix_sampling, propel = load_paper("prefix_sampling"), load_paper("propel")
    for row_name, model, groups in (("table-1", "Qwen3-14B", 64), ("table-2", "Qwen3-4B-Instruct-2507", 128)):
        config = at_scale(prefix_sampling, prefix_sampling.rows[row_name])
        assert isinstance(config, ComparisonConfig)
        run = config.run("prefix_sampling", 0)
        assert run.model.path == f"Qwen/{model}" and run.fill.groups == groups
    study = at_scale(propel, propel.rows["figure-3"])
    assert isinstance(study, PropelConfig)
    for arm in ("other", "transfer"):
        assert study.arm(arm).generator.model.path == "mistralai/Mistral-7B-Instruct-v0.3"


def test_the_papers_scale_needs_no_model_of_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run stops where its data are missing; nothing of the lab is made before."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "greso/table-1-rollouts", "--scale", "paper"])
    assert done.exit_code == 2 and "making" not in done.output and not Path("runs/instances").exists()


def test_committed_runs_give_a_table_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "greso/table-1-rollouts"])
    folder = Path("runs") / "reproduce" / "ground_greso"
    assert done.exit_code == 0 and "\n16 runs are committed; --fresh trains all\n" in f"\n{done.output}"
    assert "| Table 1 |" in (folder / "table-1-rollouts.md").read_text()
    assert (folder / "table-1-rollouts.svg").read_text().startswith("<svg ")
    assert done.output.endswith("table-1-rollouts.svg\n")


def test_a_study_trains_only_what_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ablations of the reward three seeds are committed, which are not those of the recipe."""
    monkeypatch.chdir(tmp_path)
    trained: list[tuple[str, tuple[int, ...]]] = []
    monkeypatch.setattr(reproduce, "run_stages", lambda study, stage, arm, _: trained.append((arm, study.seeds)))
    paper, console = load_paper("propel"), Console(file=StringIO())
    reproduce.run_row(paper, "figure-4b-none", console)
    assert trained == []
    known = reproduce.committed_runs
    lacking = ("probe", 3)
    monkeypatch.setattr(
        reproduce, "committed_runs", lambda *words: [one for one in known(*words) if (one.arm, one.seed) != lacking]
    )
    reproduce.run_row(paper, "figure-4b-none", console)
    assert trained == [("probe", (3,))]


def test_the_runs_of_the_papers_scale_are_those_of_its_own_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of the lab's seeds 500 to 507 has seed 0 at the paper's scale."""
    monkeypatch.chdir(tmp_path)
    pros = load_paper("pros")
    row = pros.rows["sigma-half"]
    known = [replace_struct(one, seed=0) for one in reproduce.committed_runs(pros, row) if one.seed == 500]
    monkeypatch.setattr(reproduce, "prepare_comparison", lambda comparison, folder: comparison)
    monkeypatch.setattr(reproduce, "run_comparison", lambda *words, **options: [])
    monkeypatch.setattr(reproduce, "finished_runs", lambda folder: known)
    folder = Path("runs") / "reproduce" / "two_pools"
    folder.mkdir(parents=True)
    (folder / "comparison.yaml").touch()
    found, _ = reproduce.run_row(pros, "sigma-half", Console(file=StringIO()), paper_scale=True)
    assert found.runs == (1, 1)


def test_rows_that_lack_runs_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    console: Any = SimpleNamespace(print=lambda text, **_: said.append(text))
    reproduce._say_committed({("a", 0)}, {("a", 0), ("a", 1), ("b", 0)}, console)
    assert said == ["1 runs are committed, 2 more are trained; --fresh trains all"]


@pytest.mark.parametrize(
    "words",
    [
        ["greso/table-1-rollouts", "--scale", "x"],
        ["greso/table-1-rollouts", "--scale", "paper", "--quick"],
        ["nothing"],
        ["greso/nothing"],
        ["propel/table-6x"],
        ["greso/table-1-rollouts", "--on", "x"],
    ],
)
def test_a_wrong_word_costs_one_line(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["reproduce", *words])
    assert done.exit_code == 2 and done.output.count("\n") == 1 and done.output.startswith("error: ")


@pytest.mark.parametrize(
    ("name", "row_name", "packaged"),
    [
        ("greso", "table-1-rollouts", "skills"),
        ("prefix_sampling", "table-1-valid", "sums"),
        ("pros", "main-ppo", "sums"),
    ],
)
def test_a_row_is_run_judged_and_reported(
    name: str, row_name: str, packaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two seeds and two steps; the starting models are a packaged one. A second call trains nothing."""
    monkeypatch.chdir(tmp_path)
    paper = load_paper(name)
    for model in paper.starting_models:
        Path(model.path).parent.mkdir(parents=True, exist_ok=True)
        Path(model.path).symlink_to(REPOSITORY / "experiments" / "starting_models" / packaged)
    small = ("evaluation.problems=16", "evaluation.points=2", "fill.groups=4", "rollouts.max_response_tokens=32")
    row = paper.rows[row_name]
    row = replace(row, seeds=(800, 801), overrides=(*row.overrides, *small))
    monkeypatch.setattr(paper_rows, "load_paper", lambda _: replace(paper, rows={"row": row}))
    monkeypatch.setattr(reproduce, "QUICK", 0.02)
    folder = Path("runs") / "reproduce" / f"ground_{name}-0.02"
    for trained in (4, 0):
        done = CliRunner().invoke(app, ["reproduce", f"{name}/row", "--quick"])
        assert done.exit_code == 0, done.output
        assert done.output.count(" finished\n") == trained
        for line in ("claim: ", "published: ", "rule: ", "measured: ", "status: none"):
            assert f"\n{line}" in done.output
        assert (folder / "report.html").exists()
    written = json.loads((folder / "row.json").read_text())
    assert written["runs"] == [2, 2] and written["rule"] == row.rule
