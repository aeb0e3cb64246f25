"""What must answer at once imports nothing heavy, and imports point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "vllm", "deepspeed", "mlflow", "pyro", "polyagamma", "transformers", "accelerate", "matplotlib")
# A Pyro program is written in torch. Only what needs it loads it, which the test above proves.
IN_TORCH = {REPOSITORY / "controllers" / "bayes_model.py"}
LAYERS = ("curriculum", "controllers", "trainers", "experiments")


@pytest.mark.parametrize(
    "code",
    [
        "sys.argv = ['halfway', '--help']; runpy.run_module('experiments.cli', run_name='__main__')",
        "import controllers",
        "import controllers; [controllers.CONTROLLERS.get(name)() for name in controllers.CONTROLLERS.names()]",
        "import curriculum, curriculum.signals, curriculum.simulator, curriculum.files, curriculum.environments",
        "import experiments.config, trainers.options, trainers.fill, trainers.engines",
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
    """The top-level packages that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | ({"torch"} if layer in ("curriculum", "controllers") else set())
    files = set((REPOSITORY / layer).rglob("*.py")) - IN_TORCH
    assert files
    assert {str(path): found for path in files if (found := imported(path) & above)} == {}
