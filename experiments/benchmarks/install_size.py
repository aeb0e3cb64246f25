"""Measures what an installation brings: packages, their size on disk, and the duration of the first import.

    pip install '.[train]'; python -m halfway.experiments.benchmarks.install_size [--repeats 9] [--output FOLDER]

It counts what this environment has: an extra's requirements and, recursively, theirs, from the metadata of the
installed packages. In an editable installation, Halfway's own files are not counted. Import times are processor
seconds, which other work on the machine changes little, with the files in the system's cache.
"""

import importlib.metadata
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.markdown import Markdown

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.scripts import script, script_parser

MEBIBYTE = 2**20
IMPORTS: Mapping[str, str] = {
    "the names of the controllers": "import halfway.controllers",
    "every controller": "from halfway.controllers import CONTROLLERS as all; [all.get(name)() for name in all.names()]",
    "the command line": "import halfway.experiments.cli",
    "the trainer": "import halfway.trainers.loop.training, halfway.trainers.learner.learner, "
    "halfway.trainers.engines.transformers",
}


@dataclass(frozen=True)
class Installation:
    """What one requirement brings.

    Attributes:
        packages: total size of a distribution's files in bytes, by its name.
    """

    requirement: str
    packages: Mapping[str, int]

    @property
    def row(self) -> str:
        largest = sorted(self.packages, key=lambda name: -self.packages[name])[:4]
        parts = ", ".join(f"{name} {self.packages[name] / MEBIBYTE:.0f}" for name in largest)
        total = sum(self.packages.values()) / MEBIBYTE
        return f"| `pip install '{self.requirement}'` | {len(self.packages)} | {total:.0f} | {parts} |"


@dataclass(frozen=True)
class Import:
    """The first import of some part of Halfway.

    Attributes:
        seconds: processor seconds in each fresh process, without Python's own start.
        loads_torch: whether it imported torch.
    """

    what: str
    seconds: tuple[float, ...]
    loads_torch: bool

    @property
    def row(self) -> str:
        low, middle, high = min(self.seconds), statistics.median(self.seconds), max(self.seconds)
        return f"| {self.what} | {middle:.3f} [{low:.3f}, {high:.3f}] | {'yes' if self.loads_torch else 'no'} |"


def installation(requirement: str) -> Installation:
    """What a requirement brings. Raises PackageNotFoundError if some of it is not installed."""
    found: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        distribution = importlib.metadata.distribution(name)
        found[name] = size(distribution)
        for extra in ("", *sorted(wanted.extras)):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += required(distribution, extra)
    return Installation(requirement, found)


def required(distribution: importlib.metadata.Distribution, extra: str) -> Iterator[Requirement]:
    """The direct requirements of a distribution on this machine: with an extra, or without any."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def size(distribution: importlib.metadata.Distribution) -> int:
    """Bytes of the files that an installer recorded, byte code included."""
    paths = [Path(str(file.locate())) for file in distribution.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def timed_import(what: str, statement: str, repeats: int) -> Import:
    """Time an import in fresh processes; the first, which may write byte code and fill caches, is not counted."""
    code = (
        f"import sys, time; start = time.process_time()\n{statement}\n"
        "print(time.process_time() - start, 'torch' in sys.modules)"
    )
    seconds, torch = [], ""
    for _ in range(repeats + 1):
        done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
        time, torch = done.stdout.split()
        seconds.append(float(time))
    return Import(what, tuple(seconds[1:]), torch == "True")


def page(installations: list[Installation], imports: list[Import], command: str) -> str:
    """The tables as Markdown."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "torch", "transformers", "mlflow")
    )
    return "\n".join(
        [
            *("# What an installation brings", "", f"`{command}`; {versions}", ""),
            *("| command | packages | MiB | the largest |", "|---|---|---|---|", *(each.row for each in installations)),
            *("", f"Processor seconds of the import, median and range of {len(imports[0].seconds)} processes:", ""),
            *("| what | seconds | loads torch |", "|---|---|---|", *(each.row for each in imports), ""),
        ]
    )


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, help="folder for table.md and results.json")
    options = parser.parse_args()
    installations = [installation(text) for text in ("halfway", "halfway[train]")]
    imports = [timed_import(what, statement, options.repeats) for what, statement in IMPORTS.items()]
    text = page(installations, imports, "python -m halfway.experiments.benchmarks.install_size")
    Console(width=120).print(Markdown(text))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        write_text(options.output / "table.md", text)
        results = [*map(asdict, installations), *map(asdict, imports)]
        write_text(options.output / "results.json", json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
