"""Each room imports only what an installation brings: the core alone, or the extra that a message names; releases."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import REPOSITORY, markdown_pages
from skipped import skipped_line

import halfway
from halfway.curriculum.support.extras import EXTRAS

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
ROOMS = {room.name: room.resolve() for room in (REPOSITORY / "src" / "halfway").glob("[a-z]*/")}
CORE_ROOMS = ("curriculum", "controllers", "testing")
OPTIONAL_IN_THE_CORE = {"controllers/beliefs/bayes_model.py": {"torch", "pyro"}}
"""A module of the core that only its extra loads."""
ABOUT_OTHERS = {
    "trl",
    "datasets",
    "verl",
    "transfer_queue",
    "trinity",
    "tinker_cookbook",
    "swerex",
    "pydantic",
    "hydra",
}
"""Packages of trainers that host ours, or that a benchmark sets beside ours; and swe-rex, whose adapter says itself
what to install."""


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


@cache
def needs(name: str) -> tuple[Requirement, ...]:
    """The requirements of an installed distribution, as it declares them."""
    return tuple(Requirement(text) for text in requires(name) or ())


def brought(requirements: list[str]) -> set[str]:
    """The distributions of some requirements, and of theirs in turn; extras of our own are followed too."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name == "halfway":
            waiting += [Requirement(text) for extra in wanted.extras for text in OPTIONAL[extra]]
        elif name not in found and name in INSTALLED:
            found.add(name)
            markers = needs(name)
            waiting += [each for each in markers if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


DISTRIBUTIONS = packages_distributions()
INSTALLED = {canonicalize_name(name) for found in DISTRIBUTIONS.values() for name in found}
CORE = names(PROJECT["dependencies"])


def imported(path: Path, anywhere: bool) -> set[str]:
    """Top-level packages of others that a file imports: anywhere, or at its own import only."""
    tree = ast.parse(path.read_text())
    if not anywhere:  # functions run later, and what TYPE_CHECKING guards never
        tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If)]
    found = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    found |= {
        str(node.module).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0
    }
    beside = {other.stem for other in path.parent.glob("*.py")}  # what a script started by its path may import
    return found - {"halfway"} - set(sys.stdlib_module_names) - beside


def distributions(module: str) -> set[str]:
    return {canonicalize_name(name) for name in DISTRIBUTIONS.get(module, ())}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_whatever_is_imported_is_in_the_core_or_has_an_extra(room: str) -> None:
    strange = {
        f"{path.relative_to(REPOSITORY)}: {module}"
        for path in ROOMS[room].rglob("*.py")
        for module in imported(path, anywhere=True) - ABOUT_OTHERS
        if not distributions(module) & CORE and module not in EXTRAS
    }
    assert strange == set()


@pytest.mark.parametrize("room", CORE_ROOMS)
def test_importing_the_core_needs_its_own_requirements_only(room: str) -> None:
    strange = {
        f"{name}: {module}"
        for path in ROOMS[room].rglob("*.py")
        for name in [str(path.relative_to(REPOSITORY))]
        for module in imported(path, anywhere=False) - OPTIONAL_IN_THE_CORE.get(name, set())
        if not distributions(module) & CORE
    }
    assert strange == set()


@pytest.mark.parametrize("module", sorted(EXTRAS))
def test_an_extra_brings_the_package_that_a_message_says_it_brings(module: str) -> None:
    declared = OPTIONAL[EXTRAS[module]]
    if module in DISTRIBUTIONS:
        assert distributions(module) & brought(declared)
    else:  # not installed here: an engine's
        assert module in names(declared)


def test_the_core_has_no_requirement_that_hosts_pin() -> None:
    heavy = {"torch", "transformers", "accelerate", "mlflow", "matplotlib", "scipy", "omegaconf"}
    assert not brought(PROJECT["dependencies"]) & heavy
    assert heavy <= brought(["halfway[train]"])
    assert brought(PROJECT["dependencies"]) >= CORE


def test_the_core_lists_every_part_without_any_extra() -> None:
    hidden = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRAS)}))"
    listed = "from halfway.experiments.cli import app; " + "; ".join(
        f"app({words}, standalone_mode=False)" for words in (["list"], ["list", "greso"], ["--help"])
    )
    done = subprocess.run([sys.executable, "-c", f"{hidden}; {listed}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# The last line of a run of the tests names what was skipped and what would run it.


def test_reasons_are_counted_by_their_remedy() -> None:
    reasons = ["Skipped: vLLM is not installed (extra vllm)", "Skipped: DeepSpeed is not installed (extra deepspeed)"]
    reasons += ["Skipped: could not import 'trinity': No module named 'trinity'", "Skipped: could not import 'trl': no"]
    assert skipped_line([*reasons, "Skipped: needs /dev/full"]) == (
        "skipped: 2 need `make test-engines`; 1 need `make test-hosts`; 1 need the package trl; 1 (needs /dev/full)"
    )


def test_nothing_is_said_if_nothing_was_skipped() -> None:
    assert skipped_line([]) == ""


def test_the_citation_has_the_packages_version_and_license() -> None:
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert cited["version"] == halfway.__version__ and cited["license"] == "Apache-2.0"


def test_the_changelog_names_this_version_and_is_short() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE)[0] == f"[{halfway.__version__}]: unreleased"
    assert len(text.splitlines()) <= 60


def test_every_page_says_to_install_a_checkout_since_there_is_no_release() -> None:
    log = REPOSITORY / "experiments" / "results" / "log"
    bare = re.compile(r"pip install[^`\n]*[ '\"]halfway\b(?!/)")
    found = {str(path): bare.findall(path.read_text()) for path in markdown_pages() if path.parent != log}
    assert len(found) > 20 and not any(found.values()), {path: lines for path, lines in found.items() if lines}
    assert bare.search("pip install 'trl>=1' halfway") and not bare.search("pip install PATH/TO/halfway")


def test_what_builds_packages_and_the_site_has_a_version() -> None:
    lines = re.findall(r".*_VENV\)/bin/python -m (?:pip install|build) .*", (REPOSITORY / "Makefile").read_text())
    assert len(lines) == 3 and all("constraints/tools.txt" in line for line in lines)
    pinned = re.findall(r"^([\w.-]+)==\S+$", (REPOSITORY / "constraints" / "tools.txt").read_text(), re.MULTILINE)
    built = [*tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"]["requires"]]
    built += ["build", "twine", "mkdocs-material", "mkdocstrings[python]", "mkdocs-jupyter"]
    assert names(built) <= {canonicalize_name(name) for name in pinned}
