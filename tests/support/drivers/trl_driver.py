"""Trains in TRL with two processes, each of which writes the state of its session.

    python trl_driver.py CHAIN THROUGH FOLDER STEPS

The processes are forked from one that has already imported everything, which takes longer than the run.
"""

import json
import os
import socket
import sys
from pathlib import Path

import transformers
import trl
import trl_lab
from trl.trainer import grpo_trainer

from halfway.controllers.greso import Greso
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import chain

WORLD = 2
IMPORTED = (transformers, trl, grpo_trainer)
CHAINS = {
    "greso": chain(("uniform", Uniform()), ("greso", Greso(frozen_epochs=0))),
    "prefixes": chain(("prefix_sampling", PrefixSampling(max_share=0.5)), ("uniform", Uniform())),
}


def train(name: str, through: str, folder: Path, steps: int) -> None:
    size = trl_lab.GROUPS * trl_lab.SIZE // WORLD
    options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 1, "save_strategy": "no"}
    args = trl_lab.config(folder, steps, max_completion_length=24, **options)
    trainer = trl_lab.trainer(CHAINS[name], args, through=through)
    trainer.train()
    [callback] = [c for c in trainer.callback_handler.callbacks if hasattr(c, "hosting")]
    state = callback.hosting.session.state_dict()
    (folder / f"rank-{args.process_index}.json").write_text(json.dumps(state))


def main(name: str, through: str, folder: str, steps: str) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(WORLD):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(WORLD)}
            train(name, through, Path(folder), int(steps))
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
