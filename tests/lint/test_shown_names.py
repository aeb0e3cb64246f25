"""Names in pages: what a page names or links to exists, and what a command writes into pages is up to date."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from paths import REPOSITORY, markdown_pages
from shown import CODE, FENCED, NOT_RUN, PAGES, commands, lines, reason
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.curriculum.signals import survival
from halfway.experiments.catalogue import SETTINGS
from halfway.experiments.cli import app
from halfway.experiments.papers import PAPERS
from halfway.experiments.results.site_pages import LINK, LOG, gather


def test_every_module_recipe_and_script_that_a_page_names_exists() -> None:
    """Except in the log, whose commands are those of their day."""
    log = REPOSITORY / "experiments" / "results" / "log"
    texts = {path: path.read_text() for path in markdown_pages() if path.parent != log}
    modules = {name: path for path, text in texts.items() for name in re.findall(r"python -m (halfway[\w.]*\w)", text)}
    assert {name: path for name, path in modules.items() if find_spec(name) is None} == {}
    recipes = {
        name: path
        for path, text in texts.items()
        for name in re.findall(r"halfway (?:run|compare|propel \w+|validate) (experiments/[\w/]+\.yaml)", text)
    }
    scripts = {
        name: path for path, text in texts.items() for name in re.findall(r"python (experiments/[\w/]+\.py)", text)
    }
    files = recipes | scripts
    assert {name: path for name, path in files.items() if not (REPOSITORY / name).is_file()} == {}
    assert recipes and scripts


def test_no_row_of_a_table_is_broken_over_lines() -> None:
    texts = {path: re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL) for path in markdown_pages()}
    rows = [(path.name, line) for path, text in texts.items() for line in text.splitlines() if line[:1] != " "]
    assert [row for row in rows if row[1].startswith("|") != row[1].endswith("|")] == []


def test_every_page_and_heading_that_a_message_names_exists() -> None:
    rooms = ("curriculum", "controllers", "trainers", "experiments")
    text = "\n".join(path.read_text() for room in rooms for path in (REPOSITORY / room).rglob("*.py"))
    named = set(re.findall(r"(docs/\w[\w/]*\.md)(?:#([\w-]+))?", text))
    assert len([heading for page, heading in named if heading]) > 7
    for page, heading in named:
        headings = re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", words).lower().replace(" ", "-") for words in headings}
        assert not heading or heading in anchors, f"{page}#{heading}"


def test_the_table_of_what_a_group_is_worth_is_right() -> None:
    page = (REPOSITORY / "docs" / "ideas.md").read_text()
    rows = re.findall(r"^\| (0\.\d+) \| (0\.\d+) \| (0\.\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for p, mixed, square in (map(float, row) for row in rows):
        assert mixed == pytest.approx(float(survival(p, 8)), abs=5e-3)
        assert square == pytest.approx(p * (1 - p) * (1 - 1 / 8), abs=5e-4)  # the mean over the binomial of k


def test_every_paper_of_a_controller_has_a_title_and_every_part_of_a_paper_exists() -> None:
    files = (REPOSITORY / "controllers").rglob("*.py")
    cited = {number for file in files for number in re.findall(r"arXiv (\d{4}\.\d{5})", file.read_text())}
    assert cited <= {paper.address for paper in PAPERS}
    parts = {part for paper in PAPERS for part in paper.parts}
    assert parts <= {*CONTROLLERS.names(), *SETTINGS}


def test_the_page_about_controllers_is_up_to_date_and_names_every_one() -> None:
    printed = CliRunner().invoke(app, ["list", "--markdown"]).stdout
    assert (REPOSITORY / "controllers" / "README.md").read_text() == printed, (
        "run `halfway list --markdown > controllers/README.md`"
    )
    rows = [line for line in printed.splitlines() if line.startswith("| [`")]
    assert sorted(row.split("`")[1] for row in rows) == CONTROLLERS.names()
    first, second = printed.split("## Not shown to help here")
    assert "[`greso`](greso.py)" in first and "[GRESO](https://arxiv.org/abs/2506.02177)" in first
    assert "[`lilo`](contrib/varied.py)" in second


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    assert all(reason(line) or line.startswith("halfway ") for line in commands(page))
    others = [line for line in lines(PAGES[page]) if line not in commands(page)]
    assert bool(others or FENCED.search(PAGES[page])) == (page in CODE)


def test_the_tests_that_are_named_are_there() -> None:
    named = {test for why in [*NOT_RUN.values(), *CODE.values()] for test in re.findall(r"tests/[\w/]+(?:\.py)?", why)}
    assert len(named) > 10 and [name for name in named if not (REPOSITORY / name).exists()] == []
    for page, test in CODE.items():
        if test.startswith("tests/") and test != "tests/test_shown_commands.py":  # which takes every page
            text, name = (REPOSITORY / test).read_text(), Path(page).name
            assert name in text or page in text or name.removesuffix(".md") in text, f"{test} does not speak of {page}"
    assert all(any(reason(line) == why for page in PAGES for line in commands(page)) for why in NOT_RUN.values())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    gather(folder)
    return folder


def test_every_page_of_the_navigation_is_gathered_and_the_log_is_not(pages: Path) -> None:
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
