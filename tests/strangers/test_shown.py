"""Hostile names in records: tables, notebooks, pages and the terminal show them, and nothing of them acts."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY
from synthetic_runs import Script, write_comparison, write_run
from typer.testing import CliRunner

import halfway
from halfway.experiments.cli import app

TWO_POOLS = REPOSITORY / "experiments" / "recipes" / "cluster" / "two_pools.yaml"
TEXTS = {
    "script": "<script>alert(1)</script>",
    "image": '"><img src=x onerror=alert(1)>',
    "frame": "</td></table><iframe src='javascript:alert(1)'></iframe>",
    "escapes": "\x1b[2J\x1b]0;x\x07\x9b31m",
    "markup": "[bold red]x[/] [link=file:///etc/passwd]y[/link] [/]",
    "mathematics": "$\\frac{1}{0$ ^_{}",
    "directions": "\u202eevil\u2066\u200f",
    "template": "{{ 7 * 7 }}{% raw %} {0.__class__}",
    "comment": "--><img src=x onerror=alert(1)>]]><!--",
    "half": "\ud800",
    "formula": "=HYPERLINK(1)\t\r\n|x|\n# y",
}
ARM = Script(request=40, refill=True, skip=0.4)


class Page(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def require_dead(text: str, scripts: int) -> None:
    """Nothing in the page acts but so many scripts of ours, and nothing in it is raw."""
    page = Page(text)
    names = [name for name, _ in page.elements]
    assert names.count("script") == scripts and not {"iframe", "object", "embed", "form", "base"} & set(names)
    for name, attributes in page.elements:
        assert not [one for one in attributes if one.startswith("on")], (name, attributes)
        assert not re.match(r"\s*(javascript|file):", attributes.get("href") or attributes.get("src") or ""), attributes
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)


def changed(folder: Path, change: Callable[[str, dict[str, Any]], None]) -> Path:
    """A comparison whose records have been changed, each by its file's name."""
    write_comparison(folder, arms={"grpo": ARM, "other": ARM}, seeds=(0,), steps=4)
    for path in sorted(folder.rglob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            change(path.stem, record)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def hostile(text: str) -> Callable[[str, dict[str, Any]], None]:
    """A change that puts a text wherever a record has a name or words."""

    def change(kind: str, record: dict[str, Any]) -> None:
        if kind == "decisions":
            record["problem"] += text
            record["decisions"] = [[text, text]]
            record["reason"] = record["reason"] and text
            record["dropped"] = {text: 1}
        elif kind == "steps":
            record["controllers"] = {f"greso/{text}": 0.5, text: 1.0}
            record["learner"][text] = 0.5
            record["timing"][text] = 0.5
        else:
            record["strata"] = {f"{name}{text}": counts for name, counts in record["strata"].items()}

    return change


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_names_are_shown_in_notebooks_and_do_nothing(name: str, tmp_path: Path) -> None:
    shown = halfway.load(changed(tmp_path / "x", hostile(TEXTS[name])))
    require_dead(shown._repr_html_(), scripts=0)
    assert repr(shown).isprintable()
    for table in (shown.decisions, shown.groups, shown.problems, shown.curves, shown.texts):
        assert table.fetchall() is not None and str(table)


def test_hostile_arms_are_shown_in_notebooks_and_do_nothing(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    write_comparison(tmp_path / "x", arms={name: ARM, "other": ARM}, seeds=(0,), steps=4)
    shown = halfway.load(tmp_path / "x")._repr_html_()
    require_dead(shown, scripts=0)
    assert html.escape(name) in shown


def test_hostile_names_are_shown_on_pages_and_do_nothing(tmp_path: Path) -> None:
    folder = changed(tmp_path / "x", hostile(" ".join(TEXTS.values())))
    odd = TEXTS["script"] + "\x1b[2J"
    made = {"command": odd, "machine": odd, "versions": {odd: odd}, "earlier": [odd]}
    (folder / "provenance.json").write_text(json.dumps(made))
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    assert done.stdout.replace("\n", "").isprintable() and done.stderr.replace("\n", "").isprintable()
    page = (folder / "report.html").read_text()
    require_dead(page, scripts=1)
    assert "Content-Security-Policy" in page and html.escape(TEXTS["script"]) in page


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "half"])
def test_hostile_logs_are_shown_and_do_nothing(name: str, tmp_path: Path) -> None:
    text = TEXTS[name]
    rows = [{"problem": f"{i // 4}{text}", "step": i // 8, "reward": i % 3 % 2, f"x{text}": text} for i in range(32)]
    file = tmp_path / "a<b>.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = halfway.audit(file)
    require_dead(shown._repr_html_(), scripts=0)
    assert repr(shown).replace("\n", "").isprintable()
    assert len(shown.groups.fetchall()) and len(shown.problems.fetchall())
    shown.write(tmp_path / "page.html")
    require_dead((tmp_path / "page.html").read_text(), scripts=0)
    done = CliRunner().invoke(app, ["audit", str(file)])
    assert done.exit_code == 0 and done.stdout.replace("\n", "").isprintable(), done.output


@pytest.mark.parametrize("name", ["a[b]", "x[/b]", "a\x1b[2J", "a\nb"])
def test_the_name_of_a_folder_is_no_markup_and_does_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    write_run(folder, ARM, 0, steps=2)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0 and done.stdout.replace("\n", "").isprintable(), done.output
    assert "[" not in name or f"{name[-3:]}/report.html" in done.stdout


def test_a_hostile_configuration_is_shown_and_does_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ARM, 0, steps=4)
    odd = json.dumps(TEXTS["escapes"] + TEXTS["script"])
    config = f"seed: 0\nname: {odd}\ncontrollers: [{odd}, {{{odd}: {odd}}}]\nbudget: {{{odd}: 5}}\nhost: {odd}\n"
    (tmp_path / "run" / "config.yaml").write_text(config)
    done = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert done.exit_code == 0 and done.stdout.replace("\n", "").isprintable(), done.output
    require_dead((tmp_path / "run" / "report.html").read_text(), scripts=1)
    require_dead(halfway.load(tmp_path / "run")._repr_html_(), scripts=0)


@pytest.mark.parametrize("words", [["launch", "--nodes", "a,b,c,d", "--dry-run"], ["doctor"]])
def test_a_command_shows_no_text_of_a_recipe_raw(words: list[str]) -> None:
    odd = "/a\u202eb"
    fields = [f"model.path={odd}", f"output={odd}", f"rollouts.engine.vllm_servers.folder={odd}"]
    done = CliRunner().invoke(app, [words[0], str(TWO_POOLS), *fields, *words[1:]])
    assert "/a\ufffdb" in done.stdout and done.stdout.replace("\n", "").isprintable(), done.output


LOAD = """
import sys
from halfway.trainers.policy import *
try:
    load_policy(ModelOptions(), sys.argv[1])
except UserError:
    pass
"""


def test_messages_about_a_hostile_model_do_nothing(tmp_path: Path) -> None:
    """In a process of its own: the library keeps its handler, and the stream of the first test that loads a model."""
    shutil.copytree(REPOSITORY / "experiments" / "starting_models" / "sums", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    for change in ({"model_type": TEXTS["escapes"]}, {"hidden_size": 0}):
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        done = subprocess.run([sys.executable, "-c", LOAD, str(file.parent)], capture_output=True, text=True)
        assert not done.returncode and "[transformers]" in done.stderr
        assert all(line.isprintable() for line in done.stderr.splitlines()), done.stderr
