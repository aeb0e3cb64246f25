"""What the pages show works as it stands: the session, the two configurations, the controller."""

import doctest
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot
import pytest
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway import controllers, curriculum, experiments
from halfway.experiments.cli import app
from halfway.testing import check_controller


def blocks(language: str, page: str, heading: str = "") -> list[str]:
    """The blocks in a language on a page, or under one of its headings."""
    text = (REPOSITORY / page).read_text()
    under = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text
    return re.findall(rf"^```{language}\n(.*?)^```", under, re.MULTILINE | re.DOTALL)


def test_the_session_runs_with_the_core_alone(tmp_path: Path) -> None:
    """In a separate process in which the extras' packages cannot be imported."""
    [snippet] = blocks("python", "docs/hosts/README.md")
    extras = ("torch", "transformers", "accelerate", "mlflow", "matplotlib", "pyarrow", "scipy", "datasets")
    script = f"import sys\nsys.modules.update(dict.fromkeys({extras}))\n{snippet}\n"
    script += "assert session.step == 1 and saved['step'] == 1 and len(problems) == 100\n"
    script += "session.load_state_dict(saved)\nprint(len(session.next_batch(16)), 'drawn')\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "16 drawn\n"


def test_the_first_configuration_is_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names its base as seen from the repository, from which the page's commands are given."""
    mine, _ = blocks("yaml", "docs/training.md")
    for part in ("starting_models/sums", "recipes/lab"):
        shutil.copytree(REPOSITORY / "experiments" / part, tmp_path / "experiments" / part)
    validate(mine, tmp_path, monkeypatch)


def test_the_configuration_for_own_problems_is_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the lab's policy as the model, said to hold longer sequences, and problems in its characters."""
    _, own = blocks("yaml", "docs/training.md")
    rows = [{"prompt": f"{i}+{i}=", "answer": str(2 * i)} for i in range(2000)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = tmp_path / "path" / "to" / "model"
    shutil.copytree(REPOSITORY / "experiments" / "starting_models" / "sums", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    validate(own, tmp_path, monkeypatch)


def test_the_controller_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = blocks("python", "CONTRIBUTING.md", "A controller")
    module = ModuleType("skip_solved")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where its annotations are looked up
    exec(compile(code, "CONTRIBUTING.md", "exec"), module.__dict__)
    check_controller(module.SkipSolved())


def validate(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my.yaml").write_text(text)
    monkeypatch.chdir(folder)
    checked = CliRunner().invoke(app, ["validate", "my.yaml", "learner.lr=3e-4", "seed=1"])
    assert checked.exit_code == 0 and "ok: my.yaml" in checked.output, checked.output


# The examples in docstrings are run.


def modules() -> Iterator[str]:
    packages: list[ModuleType] = [curriculum, controllers, experiments]
    for package in packages:
        yield package.__name__
        yield from (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))


def examples(name: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(import_module(name)) if test.examples]


@pytest.mark.parametrize("name", modules())
def test_examples(name: str) -> None:
    for test in examples(name):
        failures = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        assert failures.failed == 0, test.name


@pytest.mark.parametrize(
    "name", ["halfway.curriculum.streams", "halfway.curriculum.controller", "halfway.curriculum.support.yaml_bases"]
)
def test_examples_were_found(name: str) -> None:
    assert examples(name)


# Every notebook runs from top to bottom; its metadata name what it needs beyond `.[train]`.


NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
SHORTER = {"comparison": ('"rollouts": 2048', '"rollouts": 256')}
"""What a long notebook says, and what is run instead."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is plain Python, so it needs no kernel of its own."""
    monkeypatch.chdir(path.parent)
    text = path.read_text()
    if path.stem in SHORTER:
        long, short = map(json.dumps, SHORTER[path.stem])
        assert long[1:-1] in text
        text = text.replace(long[1:-1], short[1:-1])
    content = json.loads(text)
    for package in content["metadata"].get("needs", {}).get("packages", ()):
        pytest.importorskip(package)
    for made in content["metadata"].get("needs", {}).get("folders", ()):
        if not Path(made).exists():
            pytest.skip(f"{made} has not been made")
    notebook = ModuleType(f"notebook_{path.stem}")  # a notebook may have the name of a package
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    for number, cell in enumerate(content["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}:{number}", "exec"), notebook.__dict__)
    matplotlib.pyplot.close("all")
    if state := sys.modules.get("accelerate.state"):  # a trainer has set it up in its own way, for good
        state.AcceleratorState._reset_state(True)
