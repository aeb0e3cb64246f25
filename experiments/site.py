"""Gathers the pages of the documentation site, and writes its reference from the code.

python -m halfway.experiments.site build/pages
"""

import inspect
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import copyfile

import msgspec

from halfway.controllers import CONTROLLERS
from halfway.curriculum import decision_log
from halfway.experiments.catalogue import CONTRIB, catalogue, explained
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.output_flags import as_json
from halfway.experiments.papers import PAPERS, papers_of
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
PARTS = """# Parts and settings

What a YAML file can name, as `halfway list` knows it. [Each controller has its own page](../controllers/README.md).
"""
SCHEMA = """# The YAML schema

[halfway.json](halfway.json) describes every file that Halfway reads; `halfway schema FILE` writes it with the plugins
that you have installed. An editor with the YAML language server completes and checks a file that begins with

    # yaml-language-server: $schema=halfway.json
"""


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
    homes: dict[str, str] = import_module("halfway")._HOMES
    yield "reference/commands.md", "# Commands\n" + "".join(_commands())
    yield "reference/parts.md", PARTS + "".join(_parts())
    yield "reference/papers.md", "".join(_papers())
    yield "reference/python.md", "# Python\n" + "".join(f"\n::: {home}.{name}\n" for name, home in homes.items())
    yield "reference/decision_log.md", _decision_log()
    yield "reference/schema.md", SCHEMA
    yield "reference/halfway.json", as_json(schema())
    for name in CONTROLLERS.names():
        yield f"controllers/{name}.md", "".join(_controller(name))


def _commands() -> Iterator[str]:
    """Each command with its help."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from halfway.experiments.cli import app

    plain = {"NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": "100", "COLUMNS": "100"}
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        said = CliRunner().invoke(app, [name, "--help"], env=plain, prog_name="halfway").stdout
        said = "\n".join(line.rstrip() for line in said.splitlines())
        yield f"\n## halfway {name}\n\n```text\n{said.strip()}\n```\n"


def _parts() -> Iterator[str]:
    """Each part and group of settings with its options."""
    for kind, listed in catalogue().items():
        if kind in ("controllers", CONTRIB):
            continue
        yield f"\n## {kind.capitalize()}\n"
        for name in (part.name for part in listed):
            [part] = explained(name)[kind]
            yield f"\n### {name}\n\n{part.about}\n\n"
            yield from (f"- `{option.text}`{': ' * bool(option.about)}{option.about}\n" for option in part.options)


def _controller(name: str) -> Iterator[str]:
    """A controller's page: its purpose, its options, its papers, and ready arms."""
    controller = CONTROLLERS.get(name)
    papers = papers_of(name)
    source = controller.__module__.removeprefix("halfway.").replace(".", "/") + ".py"
    yield f"---\nsource: {source}\nsearch: {{boost: 2}}\n---\n"
    yield f"# {name}{': ' * bool(papers)}{', '.join(paper.names[0] for paper in papers)}\n\n"
    yield (inspect.getdoc(controller) or "").partition("Attributes:\n")[0].rstrip() + "\n"
    if arms := _arms(name):
        yield f"\n## In YAML\n\nArms of `{ARMS}`:\n\n```yaml\n{arms}```\n"
    elif papers:
        yield f"\n## In YAML\n\n```yaml\n{papers[0].yaml}\n```\n"
    parts = (part for kind in ("controllers", CONTRIB) for part in explained(name).get(kind, ()))
    [part] = (part for part in parts if part.name == name)
    if part.options:
        yield "\n## Options\n\n| option, default | meaning |\n|---|---|\n"
        yield from (f"| `{option.text}` | {_cell(option.about)} |\n" for option in part.options)
    if papers:
        yield "\n## Papers\n\n" + "".join(
            f"- {each.names[0]}: [{each.title}, {each.source}]({each.url})\n" for each in papers
        )
    if measured := _measured(controller):
        yield f"\n## Measured here\n\n{measured}\n"
    yield f"\nSource: `{source}`. On the command line: `halfway list {name}`.\n"


def _cell(text: str) -> str:
    """Escape a text for a cell of a table."""
    return text.replace("|", "\\|")


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


def _decision_log() -> str:
    """The format of decisions.jsonl: the fields, and the JSON schema of the record that reports and audits read."""
    words = inspect.getdoc(decision_log) or ""
    types = as_json(msgspec.json.schema(decision_log.GroupRecord))
    return f"# The decision log\n\n{words}\n\n## As it is read\n\n```json\n{types}\n```\n"


def _papers() -> Iterator[str]:
    """Each paper with its title, its parts, and their recipes."""
    yield "# Papers and their configurations\n\nWhat of a paper was reproduced is "
    yield "[a page of its own](../experiments/results/what_is_reproduced/README.md), and"
    yield " `halfway reproduce` runs it.\n\n"
    yield "| method | paper | parts | in YAML | recipe |\n|---|---|---|---|---|\n"
    for paper in PAPERS:
        files = (f"experiments/recipes/methods/{name.lower().replace(' ', '_')}.yaml" for name in paper.names)
        recipes = [f"`{file}`" for file in files if (REPOSITORY / file).exists()]
        linked = ", ".join(f"[`{name}`]({_home(name)})" for name in paper.parts)
        yield f"| {paper.names[0]} | [{paper.title}, {paper.source}]({paper.url}) | {linked} | `{paper.yaml}` "
        yield f"| {', '.join(recipes)} |\n"


def _home(part: str) -> str:
    """The page of a part, relative to the page of papers."""
    return f"../controllers/{part}.md" if part in CONTROLLERS.names() else f"parts.md#{part}"


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
