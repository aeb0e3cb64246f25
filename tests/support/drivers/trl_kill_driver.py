"""Trains in TRL without interruption, then kills the same run in the middle and resumes it, each in its own process.

    python trl_kill_driver.py CHAIN THROUGH FOLDER STEPS

Writes FOLDER/whole and FOLDER/broken, each with losses.json. The processes are forked from one that has already
imported everything, which takes longer than the runs.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import trl_lab
from transformers import TrainerCallback
from trl_driver import CHAINS, IMPORTED

assert IMPORTED
Base: Any = TrainerCallback


class Killer(Base):  # type: ignore[misc]
    """Kills its process before a step, as if the machine were lost: nothing is closed or flushed."""

    def __init__(self, step: int):
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(name: str, through: Any, folder: Path, steps: int, killed: int | None, resume: str | None) -> None:
    args = trl_lab.config(folder, steps, save_steps=steps // 2)
    trainer = trl_lab.trainer(CHAINS[name], args, through=through)
    if killed is not None:
        trainer.add_callback(Killer(killed))
    trainer.train(resume_from_checkpoint=resume)
    (folder / "losses.json").write_text(json.dumps(trl_lab.losses(trainer)))


def forked(*arguments: Any) -> int:
    """Train in a forked process. Returns its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        train(*arguments)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(name: str, through: str, folder: str, steps: str) -> int:
    whole, broken, number = Path(folder) / "whole", Path(folder) / "broken", int(steps)
    assert forked(name, through, whole, number, None, None) == 0
    assert forked(name, through, broken, number, number * 3 // 4, None) == -signal.SIGKILL
    return forked(name, through, broken, number, None, str(broken / f"checkpoint-{number // 2}"))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
