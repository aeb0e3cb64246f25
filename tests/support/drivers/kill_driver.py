"""Trains one small run many times: once undisturbed, and once for each moment at which it is killed and resumed.

A program, whose arguments are the folder to work in, the run's YAML file, and the moments. Every run is a forked child
of a process that has computed nothing; a killed child dies of SIGKILL in the middle of its work.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller_harness import coin

from halfway.curriculum.tasks.verifiers.verify import VERIFIERS
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.build import build_run

MOMENTS = ("propose", "rollout", "update", "record", "checkpoint")


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fatal:
    """Behaves like `part`, except that one method kills the process once it is `due`, before or after its work."""

    def __init__(self, part: Any, method: str, due: Callable[[], bool], after: bool = False):
        self._part, self._method, self._due, self._after = part, method, due, after

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        return self._fatal(value) if name == self._method else value

    def _fatal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            due = self._due()
            if due and self._after:
                function(*args, **kwargs)
            return die() if due else function(*args, **kwargs)

        return call


class Silent:
    """A recorder that keeps nothing."""

    def step(self, record: Any) -> None: ...
    def evaluation(self, record: Any) -> None: ...
    def close(self, state: str) -> None: ...


def train(config_path: Path, folder: Path, moment: str | None) -> None:
    training = build_run(load_run_config(config_path), folder)

    def steps_done(steps: int) -> Callable[[], bool]:
        return lambda: training.progress.step == steps

    if moment == "propose":
        training.session.controller = Fatal(training.session.controller, "propose", steps_done(3))
    elif moment == "rollout":
        training.rollouts = Fatal(training.rollouts, "run", steps_done(3), after=True)
    elif moment == "update":
        training.learner = Fatal(training.learner, "update", steps_done(3), after=True)
    elif moment == "record":
        training.recorders = [Fatal(Silent(), "step", steps_done(4))]
    elif moment == "checkpoint":
        training.learner = Fatal(training.learner, "save", steps_done(4), after=True)
    training.train()


def forked(config_path: Path, folder: Path, moment: str | None) -> int:
    """Exit status of a run in its own child process; negative if a signal ended it."""
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


def kill_at(folder: Path, config_path: Path, moments: Sequence[str]) -> None:
    assert forked(config_path, folder / "peace", None) == 0
    for moment in moments:
        assert forked(config_path, folder / moment, moment) == -signal.SIGKILL, moment
        checkpoints = (folder / moment / "checkpoints").glob("step-*")
        assert [path.name for path in checkpoints] == ["step-00000002"], moment
        assert forked(config_path, folder / moment, None) == 0, moment


if __name__ == "__main__":
    VERIFIERS.add("coin", coin)
    kill_at(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
