"""What must answer at once imports nothing heavy, and imports point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from places import REPOSITORY

HEAVY = ("torch", "vllm", "deepspeed", "mlflow", "pyro", "polyagamma", "transformers", "accelerate", "matplotlib")
# A Pyro program is written in torch. Only what needs it loads it, which the test above proves.
IN_TORCH = {REPOSITORY / "controllers" / "beliefs" / "bayes_model.py"}
LAYERS = ("curriculum", "controllers", "trainers", "experiments")


@pytest.mark.parametrize(
    "code",
    [
        "sys.argv = ['halfway', '--help']; runpy.run_module('halfway.experiments.cli', run_name='__main__')",
        "import halfway.controllers",
        "from halfway.controllers import CONTROLLERS; [CONTROLLERS.get(name)() for name in CONTROLLERS.names()]",
        "import halfway.curriculum, halfway.curriculum.signals, halfway.curriculum.simulation.simulator",
        "import halfway.curriculum.tasks.files, halfway.curriculum.environments",
        "import halfway.experiments.config.run, halfway.trainers.options, halfway.trainers.loop.fill",
        "import halfway.trainers.engines, halfway.experiments.catalogue",
    ],
)
def test_no_heavy_import(code: str) -> None:
    script = (
        f"import atexit, runpy, sys\natexit.register(lambda: print('HEAVY', sorted({set(HEAVY)} & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script + code], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def imported(path: Path) -> set[str]:
    """The rooms of ours ("curriculum", ...) and the packages of others that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.removeprefix("halfway.").partition(".")[0] for name in names}
    return found


def test_what_is_imported_is_found() -> None:
    """Without this, the test below would pass on anything once our packages had another name."""
    loop = imported(REPOSITORY / "trainers" / "loop" / "training.py")
    assert {"curriculum", "trainers", "typing"} <= loop and "halfway" not in loop


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | ({"torch"} if layer in ("curriculum", "controllers") else set())
    files = set((REPOSITORY / layer).rglob("*.py")) - IN_TORCH
    assert files
    assert {str(path): found for path in files if (found := imported(path) & above)} == {}
