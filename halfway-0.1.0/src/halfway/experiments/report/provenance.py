"""Records the command, the versions and the machine of a result in a file beside it."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import read_json, write_text

PACKAGES = ("halfway", "torch", "transformers", "accelerate", "vllm", "numpy")
FILE = "provenance.json"


class _Provenance(msgspec.Struct):
    command: str = ""
    versions: dict[str, str] = {}
    machine: str = ""
    earlier: list[str] = []


def write_provenance(directory: Path, command: Sequence[str]) -> None:
    """Write provenance.json atomically: the command as typed, the installed versions, and the kind of machine.

    Several commands may contribute to one result; earlier commands are kept under "earlier", in order, without repeats.
    """
    record: dict[str, Any] = {"command": " ".join(command), "versions": versions(), "machine": machine()}
    before = read_provenance(directory)
    earlier = [*before.get("earlier", []), *([before["command"]] if "command" in before else [])]
    earlier = [each for each in dict.fromkeys(earlier) if each != record["command"]]
    if earlier:
        record["earlier"] = earlier
    write_text(directory / FILE, json.dumps(record, indent=2) + "\n")


def read_provenance(directory: Path) -> Mapping[str, Any]:
    """Read the file of `write_provenance` in a directory; empty if there is none."""
    return read_json(directory / FILE, kind=_Provenance)


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that influence a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """Operating system, processor kind and number of cores, without the host name."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
