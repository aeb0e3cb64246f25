"""Two processes train like one. The processes import this file, so it is a program too."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator, debug_launcher
from learner_harness import build_groups, build_model
from paths import IMPORTABLE

from halfway.curriculum import Stream
from halfway.trainers.engines.base import Completion
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions

OPTIONS = LearnerOptions(
    lr=1e-3,
    num_minibatches=2,
    num_epochs=2,
    kl_coefficient=0.1,
    entropy_coefficient=0.01,
    normalization="sequence",
    max_microbatch_tokens=24,
)
# Of three groups, mini-batches of two and one.
BY_GROUPS = replace(OPTIONS, num_minibatches=1, minibatch_groups=2)


class EarlyEnd:
    """An engine of one process, which ends before its limit."""

    serves_all = True
    replicas = 1

    def generate(self, contexts: Any, max_new_tokens: Any, seeds: Any) -> list[Completion]:
        zeros_T = np.zeros(5, np.float32)
        return [Completion(np.arange(3, 8, dtype=np.int32), zeros_T, zeros_T, "end", 0)]

    def sync(self, policy: Any, version: int) -> None: ...


def train(folder: str) -> None:
    """Three updates and a check of the sync; writes the metrics of the last update, the weights and the gap."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    results = [result_of(options, accelerator) for options in (OPTIONS, BY_GROUPS)]
    torch.save(results, Path(folder) / f"{accelerator.process_index}-of-{accelerator.num_processes}.pt")


def result_of(options: LearnerOptions, accelerator: Accelerator) -> dict[str, Any]:
    learner = PolicyGradientLearner(build_model(), options, pad_token_id=0, accelerator=accelerator)
    for step in range(3):
        metrics = learner.update(build_groups(step), Stream(0).at(step))
    first = accelerator.is_main_process
    gap = SyncCheck(EarlyEnd(), learner, 40, 100, tolerance=1e9, samples=first)()
    return {"metrics": metrics, "weights": learner.policy.state_dict(), "gap": gap}


def test_two_processes_train_like_one(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": IMPORTABLE}
    subprocess.run([sys.executable, __file__, str(tmp_path)], check=True, timeout=300, env=environment)
    loaded = [torch.load(tmp_path / f"{name}.pt") for name in ("0-of-1", "0-of-2", "1-of-2")]
    for one, *two in zip(*loaded, strict=True):
        for other in two:
            assert other["metrics"] == pytest.approx(one["metrics"], rel=1e-5)
            torch.testing.assert_close(other["weights"], one["weights"], rtol=1e-10, atol=1e-12)
        assert [other["gap"] for other in two] == [pytest.approx(one["gap"], rel=1e-5), 0.0]
        assert one["gap"] > 0


if __name__ == "__main__":
    debug_launcher(train, (sys.argv[1],), num_processes=2)
    train(sys.argv[1])
