"""Makes ten updates with DeepSpeed in several ways, and saves half-way. A program, run by torchrun or alone.

Its arguments are the folder to work in, what to do (comma-separated: "train", "resume", "attack") and in which ways
(likewise).
Every process writes its results.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import hostile_pickles
import torch
from accelerate.state import AcceleratorState
from learner_harness import build_groups, build_model

from halfway.curriculum import Stream
from halfway.curriculum.support.atomic import reading
from halfway.trainers.learner import scoring
from halfway.trainers.learner.adapters import add_adapters
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import DeepSpeedOptions, LearnerOptions, LoraOptions
from halfway.trainers.learner.weights import named_weights

STEPS, SAVED = 10, 5
WAYS = {
    "plain": DeepSpeedOptions(),
    "0": DeepSpeedOptions(0),
    "2": DeepSpeedOptions(2),
    "3": DeepSpeedOptions(3, persistence_threshold=0),
    "3-offload": DeepSpeedOptions(3, offload_optimizer=True, offload_parameters=True, persistence_threshold=0),
    "3-bfloat16": DeepSpeedOptions(3, persistence_threshold=0),
    "plain-lora": DeepSpeedOptions(),
    "3-lora": DeepSpeedOptions(3, persistence_threshold=0),
}


def build_learner(way: str) -> PolicyGradientLearner:
    scoring.MAX_LOGITS = 2**24 if way.startswith("plain") else 200  # five rows: log-probabilities are computed in parts
    options = LearnerOptions(
        lr=1e-3,
        num_minibatches=2,
        kl_coefficient=0.1,
        entropy_coefficient=0.01,
        normalization="sequence",
        max_microbatch_tokens=24,
        max_grad_norm=0.5,
        activation_checkpointing=way in ("2", "3"),
        deepspeed=WAYS[way],
    )
    model = build_model().to(torch.bfloat16 if way == "3-bfloat16" else torch.float32)
    if way.endswith("lora"):
        torch.manual_seed(0)
        add_adapters(model, LoraOptions(rank=4))
    return PolicyGradientLearner(model, options, pad_token_id=0)


def result(learner: PolicyGradientLearner, metrics: list[dict[str, float]]) -> dict[str, Any]:
    weights = {name: weight.clone() for name, weight in named_weights(learner.policy)}
    return {"metrics": metrics, "weights": weights, "version": learner.policy_version}


def train(folder: Path, way: str) -> dict[str, Any]:
    learner, metrics = build_learner(way), []
    for step in range(STEPS):
        if step == SAVED:
            folder.mkdir(exist_ok=True)
            learner.save(folder)
        metrics.append(learner.update(build_groups(step), Stream(0).at(step)))
    return result(learner, metrics)


def resume(folder: Path, way: str) -> dict[str, Any]:
    learner = build_learner(way)
    learner.load(folder)
    return result(learner, [learner.update(build_groups(step), Stream(0).at(step)) for step in range(SAVED, STEPS)])


def attack(folder: Path, way: str) -> dict[str, Any]:
    """Load the checkpoint with a hostile pickle in place of each of its files. Returns what went wrong."""
    learner, hostile = build_learner(way), folder.with_name(f"hostile-{folder.name}")
    shutil.copytree(folder, hostile)

    def load() -> None:
        with reading(hostile, "resume another"):  # as the loop does
            learner.load(hostile)

    return {"wrong": hostile_pickles.attack(hostile, folder.with_name(f"canary-{folder.name}"), {"load": load})}


def main(folder: Path, tasks: list[str], ways: list[str]) -> None:
    torch.set_num_threads(1)
    for way in ways:
        for task in tasks:
            AcceleratorState._reset_state(True)
            done = {"train": train, "resume": resume, "attack": attack}[task](folder / way, way)
            state = AcceleratorState()
            torch.save(done, folder / f"{task}-{way}-{state.process_index}-of-{state.num_processes}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(","))
