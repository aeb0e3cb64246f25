"""Programs in place of training, for tests of what starts runs."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from halfway.experiments.comparing import processes
from halfway.experiments.running.runs import LOG


def run_program(folder: Path) -> None:
    """Like `train_alone`, but the run is the program `do.py` in its folder."""

    def train(config: object, folder: Path, recorders: object, supervised: bool) -> None:
        exec((folder / "do.py").read_text(), {"folder": folder})

    changes: dict[str, Any] = {"load_run_config": lambda path: SimpleNamespace(budget=None), "train": train}
    vars(processes).update(changes)  # in the process of the run alone
    processes.train_alone(folder)


class Program:
    """A program with a folder as its argument, with what a comparison asks of a run's process."""

    def __init__(self, code: str, folder: Path):
        with (folder / LOG).open("ab") as log:
            command = [sys.executable, "-c", code, str(folder)]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.terminate, self.kill = self.process.terminate, self.process.kill

    @property
    def exitcode(self) -> int | None:
        return self.process.poll()

    def join(self, seconds: float | None = None) -> None:
        self.process.wait(seconds)
