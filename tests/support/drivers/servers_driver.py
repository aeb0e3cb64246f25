"""Trains a small run on two vLLM servers, kills one in the middle of a step and freezes the other in a later one.

Run as a program, with the folder of the run and its YAML file; writes `retried.json`: sequences sampled again, by step.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.build import build_run

# Step -> which server, and what is done to it.
ATTACKS = {1: (1, signal.SIGKILL), 3: (0, signal.SIGSTOP)}
# After the requests of a step went out, and well before 32 sequences of up to 64 tokens are done.
DELAY_SECONDS = 0.2


class Attacked:
    """An engine whose servers are attacked while they work, restarted servers included."""

    serves_all = True
    replicas = 1

    def __init__(self, engine: Any, training: Any):
        self.engine, self.training = engine, training
        self.retried: dict[int, int] = defaultdict(int)
        self.left = dict(ATTACKS)

    def generate(self, *calls: Any) -> Any:
        step = self.training.progress.step
        if step in self.left:
            number, how = self.left.pop(step)
            while not all(server.usable for server in self.engine.servers):
                time.sleep(0.5)
                self.engine._available()
            victim = self.engine.servers[number].process
            threading.Timer(DELAY_SECONDS, os.killpg, (victim.pid, how)).start()
        before = self.engine.retried
        done = self.engine.generate(*calls)
        self.retried[step] += self.engine.retried - before
        return done


def main(folder: Path, config_path: Path) -> None:
    training = build_run(load_run_config(config_path), folder)
    collector: Any = training.rollouts
    attacked = Attacked(collector.engine, training)
    training.rollouts = replace(collector, engine=attacked)
    training.train()
    (folder / "retried.json").write_text(json.dumps(attacked.retried))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
