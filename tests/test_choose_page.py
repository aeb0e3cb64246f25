"""docs/choose.md and docs/coming_from.md: recipes validate, hosts run their chains, gains are those of the verdict."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from paths import REPOSITORY
from shown import FENCED, PAGES
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.controllers.chains import from_yaml
from halfway.curriculum import Problem, ProblemSet, Session
from halfway.experiments.cli import app

PAGE = PAGES["docs/choose.md"]
BLOCKS = [
    text for page in (PAGE, PAGES["docs/coming_from.md"], PAGES["docs/concepts.md"]) for _, text in FENCED.findall(page)
]
OWN = [text for text in BLOCKS if text.startswith("base: own.yaml")]
HOSTED = [text for text in BLOCKS if text not in OWN]


@pytest.mark.parametrize("text", OWN, ids=range(len(OWN)))
def test_a_chain_is_valid_over_a_recipe_of_ones_own(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{i}+{i}=", "answer": str(2 * i), "solution": f"{i}+{i}={2 * i}"} for i in range(2000)]
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = shutil.copytree(REPOSITORY / "experiments/starting_models/sums", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    Path("mine.yaml").write_text(text)
    for words in (["init", "own.yaml", "--data", "train.jsonl", "--model", "model"], ["validate", "mine.yaml"]):
        words += ["model.chat=messages"] * (words[0] == "validate")  # the lab's model has no template
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    assert "ok: mine.yaml" in done.output and "warning" not in done.output


@pytest.mark.parametrize("text", HOSTED, ids=range(len(HOSTED)))
def test_a_host_can_run_its_chain(text: str, tmp_path: Path) -> None:
    """With what TRL and verl give a chain; without prefixes, with what every host gives."""
    (tmp_path / "chain.yaml").write_text(text)
    problems = ProblemSet([Problem(str(i), f"{i}+1=", "", features={"topic": "ab"[i % 2]}) for i in range(64)])
    gives = {"tokens", "prefixes", "hints"} if "prefix" in text else set()
    session = Session(problems, from_yaml(tmp_path / "chain.yaml"), num_rollouts=8, provides=gives)
    assert len(session.next_batch(16)) == 16


def test_each_kind_of_block_was_found() -> None:
    assert len(OWN) == 8 and len(HOSTED) == 4
    assert all(yaml.safe_load(text)["controllers"] for text in BLOCKS)


def test_the_gains_are_those_of_the_verdict() -> None:
    rows = re.findall(r"^\|.*\| (\w+), `(\w+)` \| (\S+), (not )?significant \| (.+?) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for kind, arm, gain, insignificant, rollouts in rows:
        table = (REPOSITORY / "experiments/results/when_does_it_pay/tables.md").read_text()
        [row, *_] = re.findall(rf"^\| {kind} \| {arm} \| .*$", table, re.MULTILINE)
        cells = row.split(" | ")
        assert cells[6].startswith(gain) and ("*" in cells[6]) == (not insignificant), row
        spent = cells[7].split()[0]
        assert rollouts == ("score not reached" if spent == "not" else f"{100 * (1 - float(spent)):.0f} % fewer"), row


def test_the_table_of_concepts_has_every_controller() -> None:
    named = set(re.findall(r"`(\w+)`", PAGES["docs/concepts.md"]))
    families = {"reinforce_ada", "ar3po", "ngu_rounds"}  # of `rounds`
    assert set(CONTROLLERS.names()) - families == named
