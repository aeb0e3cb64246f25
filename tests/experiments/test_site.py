"""The site's pages: all that it lists is there, links lead to what is there, and the reference is complete."""

import json
import re
from pathlib import Path

import pytest
from paths import REPOSITORY
from typer.main import get_command

import halfway
from halfway.controllers import CONTROLLERS
from halfway.experiments.cli import app
from halfway.experiments.site import LINK, LOG, gather


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    gather(folder)
    return folder


def test_what_the_navigation_lists_is_gathered_and_the_log_is_not(pages: Path) -> None:
    listed = re.findall(r": (\S+\.(?:md|ipynb))$", (REPOSITORY / "docs/mkdocs.yml").read_text(), re.MULTILINE)
    assert len(listed) > 30 and [name for name in listed if not (pages / name).exists()] == []
    assert not (pages / LOG).exists()


def test_every_page_of_docs_and_results_is_in_the_navigation() -> None:
    navigation = (REPOSITORY / "docs/mkdocs.yml").read_text()
    found = [*REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("experiments/results/*/README.md")]
    names = [path.relative_to(REPOSITORY).as_posix() for path in found if LOG not in path.as_posix()]
    assert len(names) > 20 and [name for name in names if name not in navigation] == []


def test_every_link_leads_to_a_gathered_file(pages: Path) -> None:
    broken = [
        (page.relative_to(pages), link)
        for page in pages.rglob("*.md")
        for _, _, link in LINK.findall(page.read_text())
        if "://" not in link and not link.startswith("#") and not (page.parent / link.partition("#")[0]).is_file()
    ]
    assert broken == []


def test_the_reference_has_every_command_controller_and_function(pages: Path) -> None:
    commands, parts, python = ((pages / f"reference/{name}.md").read_text() for name in ("commands", "parts", "python"))
    assert all(f"## halfway {name}\n" in commands for name in get_command(app).commands)  # type: ignore[attr-defined]
    assert "Usage: halfway run " in commands and "--jobs" in commands
    assert all(f"### {name}\n" in parts for name in (*CONTROLLERS.names(), "learner", "comparison"))
    assert all(f".{name}\n" in python for name in halfway.__all__)
    assert "then" in json.loads((pages / "reference/halfway.json").read_text())
    assert "[`greso`](parts.md#greso)" in (pages / "reference/papers.md").read_text()
