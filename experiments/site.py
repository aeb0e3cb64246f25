"""Gathers the pages of the documentation site from where they stand, and writes its reference from the code.

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

from halfway.curriculum import decision_log
from halfway.experiments.catalogue import catalogue, explained
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.papers import PAPERS
from halfway.experiments.schema import schema
from halfway.experiments.shown import as_json

PAGES = (
    *("*.md", "controllers/README.md", "docs/**/*.md", "docs/site.css", "experiments/recipes/README.md"),
    *("experiments/results/*.md", "experiments/results/*/[!0-9]*.md", "notebooks/*.ipynb"),
)
LOG = "experiments/results/log"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
PARTS = "# Parts and settings\n\nWhat a YAML file can name, as `halfway list` knows it.\n"
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
        for _, _, link in LINK.findall(text):
            _copy_linked(path.parent / link.partition("#")[0], published, target)
        place.write_text(LINK.sub(partial(_link, page=path, published=published), text))
    for name, text in reference():
        (target / "reference").mkdir(parents=True, exist_ok=True)
        (target / "reference" / name).write_text(text)


def _copy_linked(path: Path, published: set[Path], target: Path) -> None:
    """Copy a file that a page links to, such as a figure or a recipe."""
    path = path.resolve()
    if path.is_file() and path.suffix != ".md" and path not in published and LOG not in path.as_posix():
        place = target / path.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        copyfile(path, place)


def _link(found: re.Match[str], page: Path, published: set[Path]) -> str:
    """A link as it is on the site: a folder's leads to its page, and what is not published is text alone."""
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
    """The pages that are written from the code, by file name."""
    homes: dict[str, str] = import_module("halfway")._HOMES
    yield "commands.md", "# Commands\n" + "".join(_commands())
    yield "parts.md", PARTS + "".join(_parts())
    yield "papers.md", "".join(_papers())
    yield "python.md", "# Python\n" + "".join(f"\n::: {home}.{name}\n" for name, home in homes.items())
    yield "decision_log.md", _decision_log()
    yield "schema.md", SCHEMA
    yield "halfway.json", as_json(schema())


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
        yield f"\n## {kind.capitalize()}\n"
        for name in (part.name for part in listed):
            [part] = explained(name)[kind]
            yield f"\n### {name}\n\n{part.about}\n\n"
            yield from (f"- `{option.text}`{': ' * bool(option.about)}{option.about}\n" for option in part.options)


def _decision_log() -> str:
    """The format of decisions.jsonl: the fields, and the JSON schema of the record that reports and audits read."""
    words = inspect.getdoc(decision_log) or ""
    types = as_json(msgspec.json.schema(decision_log.GroupRecord))
    return f"# The decision log\n\n{words}\n\n## As it is read\n\n```json\n{types}\n```\n"


def _papers() -> Iterator[str]:
    """Each paper with its title, the parts that carry it out, and the recipes of these."""
    yield "# Papers and their configurations\n\nWhat of a paper was reproduced is "
    yield "[a page of its own](../experiments/results/what_is_reproduced/README.md).\n\n"
    yield "| method | paper | parts | in YAML | recipe |\n|---|---|---|---|---|\n"
    for paper in PAPERS:
        files = (f"experiments/recipes/methods/{name.lower().replace(' ', '_')}.yaml" for name in paper.names)
        recipes = [f"`{file}`" for file in files if (REPOSITORY / file).exists()]
        linked = ", ".join(f"[`{name}`](parts.md#{name})" for name in paper.parts)
        yield f"| {paper.names[0]} | [{paper.title}, {paper.source}]({paper.url}) | {linked} | `{paper.yaml}` "
        yield f"| {', '.join(recipes)} |\n"


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
