"""A controller from another installed package, as in docs/tutorials/own_controller.md: found through its entry point,
checked, listed and run from YAML."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_package import installed_part
from paths import REPOSITORY
from shown import FENCED, PAGES
from typer.testing import CliRunner, Result

from halfway.controllers import CONTROLLERS
from halfway.experiments.cli import app

MODULE = '''
from dataclasses import dataclass
from halfway.curriculum import PassRateController, Verdict

@dataclass(frozen=True)
class Choosy(PassRateController[None]):
    """Refuses problems whose ids end in certain digits."""

    digits: str = "0"

    def propose(self, plan, state, stream):
        return plan.decide([Verdict(r.problem.id[-1] not in self.digits, "digit") for r in plan.undecided]), state
'''
RUN = """
problems: {source: running_sums, train: 40}
controllers: [uniform, {picked: {use: choosy, digits: "01234567"}}]
fill: {groups: 4}
rollouts: {num_rollouts: 2, max_response_tokens: 8}
budget: {steps: 2}
evaluation: {points: 0, problems: 0}
tracking: {mlflow: false}
threads: 1
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with installed_part(tmp_path, monkeypatch, CONTROLLERS, MODULE, "choosy", "Choosy") as folder:
        yield folder


def halfway(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_an_installed_controller_runs_from_yaml(installed: Path) -> None:
    (installed / "mine.yaml").write_text(RUN)
    listed = halfway("list", "controllers").stdout
    assert "choosy: Refuses problems whose ids end in certain digits." in listed
    done = halfway("run", "mine.yaml")
    assert done.exit_code == 0, done.output
    decisions = [json.loads(line) for line in (installed / "runs/mine/decisions.jsonl").read_text().splitlines()]
    skipped = [record for record in decisions if record["outcome"] == "skipped"]
    assert {record["reason"] for record in skipped} == {"picked: digit"}
    rolled_out = [record for record in decisions if record["outcome"] != "skipped"]
    assert len(rolled_out) == 8
    assert all(record["decisions"] == [["uniform", "drawn"], ["picked", "digit"]] for record in rolled_out)


def test_its_options_are_checked_like_any_others(installed: Path) -> None:
    (installed / "mine.yaml").write_text(RUN.replace("digits:", "digit:"))
    refused = halfway("validate", "mine.yaml")
    assert refused.exit_code == 2 and "picked.digit:" in refused.stderr and "'digits'" in refused.stderr


def test_the_evening_of_the_tutorial_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method is CONTRIBUTING's, under the name that the tutorial gives it."""
    under = (REPOSITORY / "CONTRIBUTING.md").read_text().split("\n## A controller\n")[1]
    method = FENCED.search(under)
    page = PAGES["docs/tutorials/own_controller.md"]
    [text] = [block for language, block in FENCED.findall(page) if language == "yaml"]
    assert method is not None
    assert len(text.splitlines()) == 7
    (tmp_path / "experiments").symlink_to(REPOSITORY / "experiments")
    with installed_part(tmp_path, monkeypatch, CONTROLLERS, method[2], "my_method", "SkipSolved") as folder:
        (folder / "evening.yaml").write_text(text)
        [printed] = re.findall(r"^(controllers\n(?:  .*\n)+)", page, re.MULTILINE)
        assert halfway("list", "my_method").stdout == printed
        done = halfway("validate", "evening.yaml")
        assert done.exit_code == 0 and "640 groups of 128 problems: 5.0 visits each" in done.output, done.output


def test_without_the_package_the_name_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(RUN)
    refused = halfway("validate", str(path))
    assert refused.exit_code == 2 and "'choosy'" in refused.stderr and len(refused.stderr.splitlines()) == 1
