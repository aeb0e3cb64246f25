"""No module opens a pickle: it could run code, and whoever made the folder could have put it there."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import REPOSITORY

LAYERS = ("curriculum", "controllers", "trainers", "experiments")
READERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"}
TRUSTED = {("weights_only", False), ("allow_pickle", True)}


def openings(text: str) -> Iterator[str]:
    """What opens a pickle: a module that does, or an option of torch's and numpy's readers. Names of errors do not."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in READERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in READERS:
            yield from (alias.name for alias in node.names if not alias.name.endswith("Error"))
        elif isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
            if (node.arg, node.value.value) in TRUSTED:
                yield f"{node.arg}={node.value.value}"
        elif isinstance(node, ast.Attribute) and node.attr in ("read_pickle", "load_state"):
            yield node.attr


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from cloudpickle import loads",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "accelerator.load_state(path)",
    ],
)
def test_an_opening_is_seen(text: str) -> None:
    assert list(openings(text))


def test_no_module_opens_a_pickle() -> None:
    found = {path: list(openings(path.read_text())) for path in modules()}
    assert len(found) > 300
    assert {path: names for path, names in found.items() if names} == {}


def modules() -> list[Path]:
    return [path for layer in LAYERS for path in (REPOSITORY / layer).rglob("*.py")]
