"""`halfway validate` names every mistake of a file, each once, with the line where its field is written."""

from pathlib import Path

import pytest
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum.support.errors import MOST
from halfway.experiments.cli import app

RUN = f"""\
base: {REPOSITORY}/experiments/recipes/lab/sums.yaml
learner: {{lr: fast, epss: 3}}
controllers:
  - prefix_sampling: {{max_shar: .5}}
  - uniform
  - gresso
evaluation:
  points: many
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(RUN)
    return tmp_path


def mistakes(*words: str) -> list[str]:
    """The mistakes that `halfway validate` names, without their remedies."""
    checked = CliRunner().invoke(app, ["validate", *words])
    assert checked.exit_code == 2, checked.output
    return [line.removeprefix("error: ").partition(";")[0] for line in checked.stderr.splitlines()]


OF_RUN = {
    "run.yaml:2: learner.epss: unknown name 'epss'",
    "run.yaml:2: learner.lr: 'fast' is not acceptable",
    "run.yaml:4: controllers.prefix_sampling.max_shar: unknown name 'max_shar'",
    "run.yaml:3: controllers: unknown name 'gresso'",
    "run.yaml:8: evaluation.points: 'many' is not acceptable",
}


def test_every_mistake_has_its_line(folder: Path) -> None:
    found = mistakes("run.yaml")
    assert set(found) == OF_RUN and len(found) == len(OF_RUN)


def test_a_mistake_of_the_base_is_named_once_for_all_arms_and_one_of_an_arm_with_the_arm(folder: Path) -> None:
    Path("arms.yaml").write_text("base: run.yaml\nseeds: [0]\narms:\n  a: {fill: {groups: -1}}\n  b: {}\n")
    found = mistakes("arms.yaml")
    assert set(found) == OF_RUN | {"arms.yaml:4: arms.a: fill.groups: -1 is not acceptable"}
    assert len(found) == len(OF_RUN) + 1


def test_what_is_missing_has_the_line_of_what_it_is_missing_from_and_an_override_has_none(folder: Path) -> None:
    Path("short.yaml").write_text("seed: 1\nproblems:\n  train: 4\ncontrollers: [uniform]\nbudget: {steps: 1}\n")
    assert mistakes("short.yaml", "seed=-1", "learner.lrr=1") == [
        "short.yaml:2: problems.source: missing",
        "short.yaml: learner.lrr: unknown name 'lrr'",
    ]


def test_checks_of_a_whole_run_are_all_made(folder: Path) -> None:
    text = f"base: {REPOSITORY}/experiments/recipes/lab/sums.yaml\nmodel: {{dtype: bfloat16}}\n"
    Path("whole.yaml").write_text(f"{text}rollouts: {{staleness: 1}}\n")
    dtype, mismatch = mistakes("whole.yaml")
    assert dtype.startswith("whole.yaml:2: model.dtype: ") and ": learner.mismatch: " in mismatch


def test_a_file_full_of_mistakes_ends_soon(folder: Path) -> None:
    Path("many.yaml").write_text(RUN + "".join(f"field_{i}: 1\n" for i in range(4000)))
    assert len(mistakes("many.yaml")) <= MOST + len(OF_RUN)
