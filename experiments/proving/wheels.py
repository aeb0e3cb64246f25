"""Collects packages for `halfway prove --part host --part learner` on a machine without downloads.

    python -m halfway.experiments.proving.wheels FOLDER [--python 3.12]

The machine has torch, transformers, accelerate, peft and safetensors with their requirements. There, beside a checkout:
`pip install --no-index --find-links FOLDER --no-deps FOLDER/*.whl`, and PYTHONPATH=src.
"""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

NEEDED = ("halfway", "omegaconf", "deepspeed", "ninja")
"""The imports of the parts `learner` and `host`, without reports and MLflow."""
THERE = ("torch", "transformers", "accelerate", "peft", "safetensors")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
MOST_BYTES = 60 * 2**20


def wanted() -> list[str]:
    """List the packages that such a machine lacks, as "name==version" of this environment."""
    there = set().union(*(needed(name) for name in THERE))
    missing = set().union(*(needed(name) for name in NEEDED)) - there - {"halfway"}
    return sorted(f"{name}=={metadata.version(name)}" for name in missing)


def needed(name: str) -> set[str]:
    """List an installed distribution and its installed requirements, by name."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            requirements = [Requirement(line) for line in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue  # optional
        found.add(name)
        waiting += [each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def collect(folder: Path, python: str) -> int:
    """Download or build all wheels. Returns their size in bytes. Raises CalledProcessError if pip fails."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    target = [word for name in PLATFORMS for word in ("--platform", name)]
    for each in wanted():
        ready = (*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python, *target)
        if subprocess.run([*ready, "--dest", str(folder), each], check=False).returncode:
            # Some exist only as source, in pure Python.
            subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), each], check=True)
    return sum(file.stat().st_size for file in folder.glob("*.whl"))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    size = collect(folder, sys.argv[3] if "--python" in sys.argv else "3.12")
    print(f"{len(list(folder.glob('*.whl')))} wheels, {size / 2**20:.1f} MiB, in {folder}")
    if size > MOST_BYTES:
        raise SystemExit(f"error: more than {MOST_BYTES / 2**20:.0f} MiB; leave out extras")


if __name__ == "__main__":
    main()
