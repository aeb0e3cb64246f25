"""Trains two chains in TRL: each killed in the middle and resumed, and each with two processes.

    python trl_driver.py FOLDER

Writes FOLDER/CHAIN/whole and FOLDER/CHAIN/broken, each with losses.json, and into FOLDER/CHAIN/ranks the state of each
process's session. All runs are forked from one process that has already imported everything, which takes longer than a
run.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import transformers
import trl_lab
from transformers import TrainerCallback
from trl.trainer import grpo_trainer

from halfway.controllers.greso import Greso
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import chain
from halfway.trainers.distributed.ports import free_port

WORLD = 2
IMPORTED = (transformers, grpo_trainer)
CHAINS = {
    "greso": chain(("uniform", Uniform()), ("greso", Greso(frozen_epochs=0))),
    "prefixes": chain(("prefix_sampling", PrefixSampling(max_share=0.5)), ("uniform", Uniform())),
}
ROUTES = {"greso": "rows", "prefixes": "rollouts"}
STEPS = 8
STEPS_OF_RANKS = {"greso": 2, "prefixes": 3}
Base: Any = TrainerCallback


class Killer(Base):  # type: ignore[misc]
    """Kills its process before a step, as if the machine were lost: nothing is closed or flushed."""

    def __init__(self, step: int):
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(name: str, folder: Path, killed: int | None = None, resume: str | None = None) -> None:
    trainer = trl_lab.trainer(CHAINS[name], trl_lab.config(folder, STEPS, save_steps=STEPS // 2), through=ROUTES[name])
    if killed is not None:
        trainer.add_callback(Killer(killed))
    trainer.train(resume_from_checkpoint=resume)
    (folder / "losses.json").write_text(json.dumps(trl_lab.losses(trainer)))


def train_as_rank(name: str, folder: Path, rank: int, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(WORLD)}
    size = trl_lab.GROUPS * trl_lab.SIZE // WORLD
    options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 1, "save_strategy": "no"}
    args = trl_lab.config(folder, STEPS_OF_RANKS[name], max_completion_length=24, **options)
    trainer = trl_lab.trainer(CHAINS[name], args, through=ROUTES[name])
    trainer.train()
    [callback] = [c for c in trainer.callback_handler.callbacks if hasattr(c, "hosting")]
    state = callback.hosting.session.state_dict()
    (folder / f"rank-{args.process_index}.json").write_text(json.dumps(state))


def forked(*works: Callable[[], None]) -> list[int]:
    """Do each in a forked process, all at once. Returns their exit statuses, or minus the signals that ended them."""
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            work()
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main(folder: Path) -> None:
    for name in CHAINS:
        whole, broken, ranks = (folder / name / part for part in ("whole", "broken", "ranks"))
        assert forked(partial(train, name, whole)) == [0]
        assert forked(partial(train, name, broken, killed=STEPS * 3 // 4)) == [-signal.SIGKILL]
        assert forked(partial(train, name, broken, resume=str(broken / f"checkpoint-{STEPS // 2}"))) == [0]
        port = free_port()
        assert forked(*(partial(train_as_rank, name, ranks, rank, port) for rank in range(WORLD))) == [0] * WORLD


if __name__ == "__main__":
    main(Path(sys.argv[1]))
