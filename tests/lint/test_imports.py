"""Commands that answer at once import nothing heavy; imports point one way and in no circle."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from paths import REPOSITORY

import halfway.curriculum

HEAVY = ("torch", "vllm", "deepspeed", "mlflow", "pyro", "transformers", "accelerate", "matplotlib")
# A Pyro program is written in torch. Only what needs it loads it, which the test above proves.
IN_TORCH = {REPOSITORY / "controllers" / "beliefs" / "bayes_model.py"}
LAYERS = ("curriculum", "controllers", "trainers", "experiments")


LIGHT = (
    "import halfway.experiments.cli",
    "import halfway.controllers",
    "from halfway.controllers import CONTROLLERS; [CONTROLLERS.get(name)() for name in CONTROLLERS.names()]",
    "import halfway.curriculum, halfway.curriculum.signals, halfway.testing.simulator",
    "import halfway.curriculum.tasks.files, halfway.curriculum.environments",
    "import halfway.experiments.config.run, halfway.trainers.learner.learner_options, halfway.trainers.loop.fill",
    "import halfway.trainers.engines, halfway.experiments.catalogue",
    "import halfway.experiments.audit.tables; from halfway.experiments.audit.formats.registry import FORMATS; "
    "[FORMATS.get(name) for name in FORMATS.names()]",
)


def test_no_heavy_import() -> None:
    """In one process: what one line loads is seen after it, and the lines before it have loaded nothing heavy."""
    seen = f"print([name for name in {HEAVY} if name in sys.modules])"
    script = "\n".join(["import sys", *(f"{code}\n{seen}" for code in LIGHT)])
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert dict(zip(LIGHT, done.stdout.splitlines(), strict=True)) == dict.fromkeys(LIGHT, "[]")


ENTRY = re.compile(r"(halfway(?:\.\w+)+):(\w+)")
"""The text by which a registry names a part: it is imported when somebody asks for it."""


def imports(path: Path) -> frozenset[str]:
    """The dotted names that a file imports anywhere: modules, and what is taken from them.

    What it imports for its type checker counts, and so does what a registry names.
    """
    return imports_of(path.read_text())


@cache
def imports_of(text: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {f"{entry[1]}.{entry[2]}" for entry in [ENTRY.fullmatch(node.value)] if entry}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {"halfway"} if node.module == "halfway" else set()
    return frozenset(name.removeprefix("halfway.") for name in found)


def imported(path: Path) -> set[str]:
    """Our rooms ("curriculum", ...) and others' packages that a file imports anywhere."""
    return {name.partition(".")[0] for name in imports(path)}


def test_imports_are_found() -> None:
    """Without this, the test below would pass on anything once our packages had another name."""
    loop = imported(REPOSITORY / "trainers" / "loop" / "training.py")
    assert {"curriculum", "trainers", "pathlib"} <= loop and "halfway" not in loop


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | ({"torch"} if layer in ("curriculum", "controllers") else set())
    files = set((REPOSITORY / layer).rglob("*.py")) - IN_TORCH
    assert files
    assert {str(path): found for path in files if (found := imported(path) & above)} == {}


@pytest.mark.parametrize("layer", LAYERS[1:])
def test_the_vocabulary_is_imported_from_its_package(layer: str) -> None:
    vocabulary = set(halfway.curriculum.__all__)
    found = {
        f"{path}: {name}"
        for path in (REPOSITORY / layer).rglob("*.py")
        for name in imports(path)
        if name.startswith("curriculum.") and name.count(".") > 1 and name.rpartition(".")[2] in vocabulary
    }
    assert found == set()


Graph = Mapping[str, set[str]]
"""What each file, or room, imports."""


def import_graph(root: Path) -> Graph:
    """The files below a folder by dotted names, and which of them each imports."""
    files = {module_name(path, root): path for layer in LAYERS for path in (root / layer).rglob("*.py")}
    package = root / "src" / "halfway"
    files |= {module_name(path, package): path for path in (package / "testing").rglob("*.py")}
    files |= {"halfway": package / "__init__.py"} if package.exists() else {}
    return {name: {longest(found, files) for found in imports(path)} - {name, ""} for name, path in files.items()}


def by_rooms(graph: Graph) -> Graph:
    """The same between rooms: a package of a layer, or a file outside the packages."""
    rooms: dict[str, set[str]] = {}
    for name, found in graph.items():
        rooms.setdefault(room_of(name), set()).update(map(room_of, found))
    return {room: found - {room} for room, found in rooms.items()}


def room_of(name: str) -> str:
    return "testing" if name.startswith("testing.") else ".".join(name.split(".")[:2])


def circles(graph: Graph) -> set[frozenset[str]]:
    """The groups that import one another, directly or through others."""
    reach = {name: reachable(name, graph) for name in graph}
    return {
        frozenset(other for other in within if name in reach[other]) for name, within in reach.items() if name in within
    }


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def longest(name: str, files: Mapping[str, Path]) -> str:
    """The file that an imported name is in; empty if it is none of ours."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def reachable(start: str, graph: Graph) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


def test_circles_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "trainers" / "room"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("if TYPE_CHECKING:\n    from halfway.trainers.room.b import B\n")
    (folder / "b.py").write_text("def f():\n    return {'c': 'halfway.trainers.room.c:C'}\n")
    (folder / "c.py").write_text("from halfway.trainers.room import a\nfrom halfway.trainers.room.d import D\n")
    (folder / "d.py").write_text("import halfway.trainers.room.e\n")
    (folder / "e.py").write_text("")
    assert circles(import_graph(tmp_path)) == {frozenset(f"trainers.room.{name}" for name in "abc")}
    other = tmp_path / "trainers" / "other"
    other.mkdir()
    (folder / "e.py").write_text("from halfway.trainers.other.f import F\n")
    (other / "f.py").write_text("")
    assert circles(by_rooms(import_graph(tmp_path))) == set()
    (other / "g.py").write_text("from halfway.trainers.room.e import E\n")
    assert circles(by_rooms(import_graph(tmp_path))) == {frozenset({"trainers.room", "trainers.other"})}


def test_neither_files_nor_packages_import_each_other_in_circles() -> None:
    graph = import_graph(REPOSITORY)
    assert circles(graph) == set() and circles(by_rooms(graph)) == set()


def test_the_package_itself_offers_what_controllers_hold_one_host_and_four_commands() -> None:
    """It stands above all rooms, so none imports it; and what it offers is imported when it is used."""
    offered = imports(REPOSITORY / "src" / "halfway" / "__init__.py")
    homes = {f"{home}.{name}".removeprefix("halfway.") for name, home in halfway._HOMES.items()}
    assert homes == {name for name in offered if name.partition(".")[0] in LAYERS}
    above = LAYERS[LAYERS.index("controllers") + 1 :]
    assert {name for name in offered if name.startswith(above)} == {
        "trainers.hosts.trl.hosted.trl",
        *(f"experiments.api.{name}" for name in ("audit", "compare", "load", "run")),
    }
    files = [path for layer in LAYERS for path in (REPOSITORY / layer).rglob("*.py")]
    assert [path for path in files if "halfway" in imports(path) and "results" not in path.parts] == []


def test_the_product_imports_nothing_of_the_research_record() -> None:
    """The record's scripts import the product and one another, are run by hand, and are not in the wheel."""
    record = REPOSITORY / "experiments" / "results"
    assert list(record.rglob("*.py")) and not list(record.rglob("__init__.py"))
    folders = [REPOSITORY / name for name in (*LAYERS, "src")]
    files = {path for folder in folders for path in folder.rglob("*.py")} - {*record.rglob("*.py")}
    assert [path for path in files if any(name.startswith("experiments.results") for name in imports(path))] == []


def test_no_test_imports_another() -> None:
    """What they share is in `tests/support/`."""
    found = {path.name: imports(path) for path in (REPOSITORY / "tests").rglob("*.py")}
    assert "learner_harness.PPO" in found["test_ppo.py"]
    assert {test: name for test, names in found.items() for name in names if name.startswith("test_")} == {}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_package_has_a_map_of_its_files(layer: str) -> None:
    for package in sorted((REPOSITORY / layer).rglob("__init__.py")):
        shown = ast.get_docstring(ast.parse(package.read_text())) or ""
        folder = package.parent
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
        assert sorted(re.findall(r"(?:^- |;\s+)`(\w+)`:", shown, re.MULTILINE)) == sorted(files | rooms), (
            f"the docstring of {package} lists its files, one line each: - `name`: what a stranger would look for there"
        )


def test_test_files_have_different_names() -> None:
    """pytest imports them by their name alone."""
    names = Counter(path.name for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []
