"""Gathers the pages of the documentation site, and writes its reference from the code.

python experiments/results/site_pages.py build/pages
"""

import inspect
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from halfway.controllers import CONTROLLERS
from halfway.curriculum import decision_log
from halfway.experiments.catalogue import CONTRIB, catalogue, explain
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.output_flags import as_json
from halfway.experiments.papers import PAPERS, Paper, papers_of
from halfway.experiments.reproduction.paper_rows import NAMES
from halfway.experiments.schema import schema

PAGES = (
    *("*.md", "controllers/README.md", "docs/**/*.md", "docs/site.css", "experiments/recipes/README.md"),
    *("experiments/results/*.md", "experiments/results/*/[!0-9]*.md", "notebooks/*.ipynb"),
)
RESULTS = REPOSITORY / "experiments" / "results"
LOG = "experiments/results/log"
ARMS = "experiments/recipes/compare/every_method.yaml"
BOOSTS = {"docs/troubleshooting.md": 4, "docs/choose.md": 4, "experiments/results/what_is_reproduced/README.md": 12}
"""Weight of a page in the search."""
MOST_ROWS = 12
"""A longer table of a results page is folded, unless it is most of the page."""
TABLE = re.compile(r"(?:^\*\*(.+)\*\*\n\n)?((?:^\|.*\n)+)", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def gather(target: Path) -> None:
    """Write every page of the site, with the files that pages link to, below a folder."""
    published = {path for pattern in PAGES for path in REPOSITORY.glob(pattern) if LOG not in path.as_posix()}
    for path in published:
        place = target / path.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            copyfile(path, place)
            continue
        text = path.read_text()
        if RESULTS in path.parents and path.stem not in NAMES:
            text = TABLE.sub(_folded, text)
        for _, _, link in LINK.findall(text):
            _copy_linked(path.parent / link.partition("#")[0], published, target)
        text = LINK.sub(partial(_link, page=path, published=published), text)
        boost = BOOSTS.get(path.relative_to(REPOSITORY).as_posix())
        place.write_text(f"---\nsearch: {{boost: {boost}}}\n---\n{text}" if boost else text)
    listed = target / "controllers" / "README.md"
    listed.write_text(re.sub(r"\[`(\w+)`\]\([\w/]+\.py\)", r"[`\1`](\1.md)", listed.read_text()))
    for name, text in reference():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)


def _folded(table: re.Match[str]) -> str:
    """Fold a long table of a results page, unless it lists pages."""
    title, rows = table.groups()
    length = rows.count("\n") - 2
    if length <= MOST_ROWS or rows.count("\n| [") == length:
        return table[0]
    return f'??? note "{title or "Table"} ({length} rows)"\n\n' + "".join(f"    {row}\n" for row in rows.splitlines())


def _copy_linked(path: Path, published: set[Path], target: Path) -> None:
    """Copy a file that a page links to, such as a figure or a recipe."""
    path = path.resolve()
    if path.is_file() and path.suffix != ".md" and path not in published and LOG not in path.as_posix():
        place = target / path.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        copyfile(path, place)


def _link(found: re.Match[str], page: Path, published: set[Path]) -> str:
    """Rewrite a link for the site: a folder's link leads to its page, and an unpublished target becomes plain text."""
    picture, text, link = found.groups()
    if "://" in link or link.startswith(("#", "mailto:")):
        return found[0]
    name, _, anchor = link.partition("#")
    path = (page.parent / name).resolve()
    if path.is_dir() and path / "README.md" in published:
        return f"[{text}]({name.rstrip('/')}/README.md{'#' * bool(anchor)}{anchor})"
    kept = path in published or (path.is_file() and path.suffix != ".md" and LOG not in path.as_posix())
    return found[0] if kept or picture else text


def reference() -> Iterator[tuple[str, str]]:
    """Yield the pages written from the code, by path."""
    loader = FileSystemLoader(REPOSITORY / "docs" / "templates")
    options: dict[str, Any] = {"keep_trailing_newline": True, "undefined": StrictUndefined}
    pages = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **options)
    kinds = {kind: parts for kind, parts in catalogue().items() if kind not in ("controllers", CONTRIB)}
    explained_kinds = {kind: [explain(part.name)[kind][0] for part in parts] for kind, parts in kinds.items()}
    types = as_json(msgspec.json.schema(decision_log.GroupRecord))
    values: dict[str, dict[str, Any]] = {
        "commands": {"commands": _commands()},
        "parts": {"kinds": explained_kinds},
        "papers": {"papers": [(paper, _recipes(paper)) for paper in PAPERS], "controllers": CONTROLLERS.names()},
        "python": {"homes": import_module("halfway")._HOMES},
        "decision_log": {"words": inspect.getdoc(decision_log) or "", "types": types},
        "schema": {},
    }
    for name, given in values.items():
        yield f"reference/{name}.md", pages.get_template(f"{name}.md.j2").render(given)
    yield "reference/halfway.json", as_json(schema())
    for name in CONTROLLERS.names():
        yield f"controllers/{name}.md", pages.get_template("controller.md.j2").render(_controller(name))


def _commands() -> Iterator[tuple[str, str]]:
    """Each command with its help."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from halfway.experiments.cli import app

    plain = {"NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": "100", "COLUMNS": "100"}
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        said = CliRunner().invoke(app, [name, "--help"], env=plain, prog_name="halfway").stdout
        yield name, "\n".join(line.rstrip() for line in said.splitlines()).strip()


def _controller(name: str) -> dict[str, Any]:
    """The values of a controller's page: its purpose, its options, its papers, and ready arms."""
    controller = CONTROLLERS.get(name)
    [part] = (part for parts in explain(name).values() for part in parts if part.name == name)
    return {
        "name": name,
        "source": controller.__module__.removeprefix("halfway.").replace(".", "/") + ".py",
        "about": (inspect.getdoc(controller) or "").partition("Attributes:\n")[0].rstrip(),
        "papers": papers_of(name),
        "file": ARMS,
        "arms": _arms(name),
        "options": part.options,
        "measured": _measured(controller),
    }


def _arms(name: str) -> str:
    """The arms of `ARMS` with a controller in their chain, as text of the file."""
    text = (REPOSITORY / ARMS).read_text().partition("\narms:\n")[2]
    arms = re.findall(r"^  \w+:.*\n(?:    .*\n)*", text, re.MULTILINE)
    chosen = [arm for arm in arms if name != "uniform" and re.search(rf"controllers: .*\b{name}\b", arm)]
    return "".join(re.sub("^  ", "", arm, flags=re.MULTILINE) for arm in chosen)


def _measured(controller: type) -> str:
    """The measurements of a controller of `contrib`, from the package's docstring."""
    about = inspect.getdoc(import_module("halfway.controllers.contrib")) or ""
    module = controller.__module__.rpartition(".")[2]
    found = re.search(rf"^- `{module}`: ((?:.*\n?)(?:  .*\n?)*)", about, re.MULTILINE)
    if ".contrib." not in controller.__module__ or found is None:
        return ""
    head = about.split("\n\n")[1]
    return f"{head}\n\n{inspect.cleandoc(found[1][0].upper() + found[1][1:])}"


def _recipes(paper: Paper) -> list[str]:
    """The recipes of a paper's method."""
    files = (f"experiments/recipes/methods/{name.lower().replace(' ', '_')}.yaml" for name in paper.names)
    return [f"`{file}`" for file in files if (REPOSITORY / file).exists()]


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
