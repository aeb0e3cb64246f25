"""Imitates a third-party package that adds a part to a registry, as pip would install it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from halfway.curriculum import Registry


@contextmanager
def installed_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry, module: str, name: str, attribute: str
) -> Iterator[Path]:
    """Enter a folder, with a package on the module path that adds one part to a registry.

    Args:
        module: source text of the package's module.
        name, attribute: the part's name, and the name of its class in the module.
    """
    install(folder / "site", module, registry.group, name, attribute)
    monkeypatch.syspath_prepend(folder / "site")
    monkeypatch.chdir(folder)
    yield folder
    sys.modules.pop("somebody_elses", None)
    torch.use_deterministic_algorithms(False)


def install(site: Path, module: str, group: str, name: str, attribute: str) -> None:
    """Write a package that adds one part to the registry of a group, as pip would leave it."""
    site.mkdir()
    (site / "somebody_elses.py").write_text(module)
    information = site / "somebody_elses-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody-elses\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = somebody_elses:{attribute}\n")
