"""Trains a small run on two vLLM servers and kills one in the middle of a step.

A program. Its arguments are the run's folder and YAML file; it writes `retried.json`, the number of sequences sampled
again, by step.
"""

import json
import signal
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_drivers import attack

from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.build import build_run
from halfway.trainers.engines.contract import Engine

ATTACKED_STEP = 1


class Attacked(Engine):
    """An engine of which a server is attacked while it works."""

    serves_all = True

    def __init__(self, engine: Any, training: Any):
        self.engine, self.training = engine, training
        self.retried: dict[int, int] = defaultdict(int)

    def generate(self, *calls: Any) -> Any:
        step = self.training.progress.step
        if step == ATTACKED_STEP and step not in self.retried:
            attack(self.engine.servers[1], signal.SIGKILL, request=9)
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
