"""Trains one small run many times over: once in peace, and once for each moment at which it is killed and resumed.

Run as a program, with the folder to work in and the YAML file of the run. Every run is a forked child, so that torch
is loaded once; a killed child dies of SIGKILL in the middle of its work.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.build import build_run
from experiments.config import load_run

MOMENTS = ("propose", "rollout", "update", "record", "checkpoint")


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fatal:
    """Behaves like `part`, except that the `when`-th call of one method kills the process, before or after its work."""

    def __init__(self, part: Any, method: str, when: int, after: bool = False):
        self._part, self._method, self._left, self._after = part, method, when, after

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        return self._fatal(value) if name == self._method else value

    def _fatal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._after:
                function(*args, **kwargs)
            return die() if self._left == 0 else function(*args, **kwargs)

        return call


class Silent:
    """A recorder that keeps nothing."""

    def step(self, record: Any) -> None: ...
    def evaluation(self, record: Any) -> None: ...
    def close(self, state: str) -> None: ...


def train(config_path: Path, folder: Path, moment: str | None) -> None:
    training = build_run(load_run(config_path), folder)
    if moment == "propose":
        training.controller = Fatal(training.controller, "propose", 5)
    elif moment == "rollout":
        training.rollouts = Fatal(training.rollouts, "run", 4, after=True)
    elif moment == "update":
        training.learner = Fatal(training.learner, "update", 4, after=True)
    elif moment == "record":
        training.recorders = [Fatal(Silent(), "step", 4)]
    elif moment == "checkpoint":
        training.learner = Fatal(training.learner, "save", 2, after=True)
    training.train()


def forked(config_path: Path, folder: Path, moment: str | None) -> int:
    """Exit status of a run in a child of its own; negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(config_path, folder, moment)
            status = 0
        except BaseException:
            traceback.print_exc()  # `os._exit` would hide it
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, config_path: Path) -> None:
    assert forked(config_path, folder / "peace", None) == 0
    for moment in MOMENTS:
        assert forked(config_path, folder / moment, moment) == -signal.SIGKILL, moment
        assert forked(config_path, folder / moment, None) == 0, moment


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
