"""Somebody else's package, as pip leaves it."""

from pathlib import Path


def install(site: Path, module: str, group: str, name: str, attribute: str) -> None:
    """Put a distribution with one module and one entry point into a folder, which has to be on the path of modules.

    Args:
        module: its source.
        group, name: of the entry point, which leads to `attribute` of the module.
    """
    site.mkdir()
    (site / "somebody_elses.py").write_text(module)
    information = site / "somebody_elses-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody-elses\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = somebody_elses:{attribute}\n")
