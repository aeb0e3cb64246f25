"""A page of tables, and the numbers behind it."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.experiments.report.tables.text import TextTable


@dataclass(frozen=True)
class Page:
    """The results of a measurement.

    Attributes:
        numbers: all results in full, for programs.
        notes: further findings, one line each.
    """

    tables: tuple[TextTable, ...]
    numbers: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    where: str = field(default_factory=lambda: machine())

    def tell(self, folder: Path | None, name: str) -> None:
        """Print the page, and write it with its numbers if there is a folder to write to.

        Raises:
            WriteError: if the folder cannot be written to.
        """
        console = Console()
        for table in self.tables:
            console.print(table.rich())
        for note in (*self.notes, self.where):
            print(note)
        if folder is not None:
            self.write(folder, name)

    def write(self, folder: Path, name: str) -> None:
        """Write the page and its numbers; raises WriteError if the folder cannot be written to."""
        folder.mkdir(parents=True, exist_ok=True)
        command = shlex.join(["python", "-m", "halfway.experiments.benchmarks.repositories", *sys.argv[1:]])
        parts = [f"`{command}`\n\n{self.where}\n", *(table.markdown() for table in self.tables)]
        notes = "".join(f"- {note}\n" for note in self.notes)
        write_text(folder / f"{name}.md", "\n".join([*parts, *([notes] if notes else [])]))
        write_json(folder / f"{name}.json", {"command": command, "machine": self.where, **self.numbers})


def machine() -> str:
    """Describe the machine on which this was measured, in one line."""
    bubblewrap = subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout.strip()
    processors = len(os.sched_getaffinity(0))
    load = os.getloadavg()[1]
    return (
        f"Python {platform.python_version()}, Linux {platform.release()}, {bubblewrap}; {processors} of "
        f"{os.cpu_count()} processors, at an average load of {load:.1f} in the last five minutes."
    )
