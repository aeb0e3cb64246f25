"""Trains a policy in several ways, each time beside vLLM, and writes down how much engine and learner differ.

It is a program, since vLLM and DeepSpeed change their process. Its arguments are the folder to work in and the dtype.
It writes `gaps.json`: for each way, the largest difference in nats before and after each of two syncs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.state import AcceleratorState
from drivers.vllm_driver import PAD, TEMPERATURE, build_policy

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.engines.vllm.engine import VllmEngine
from halfway.trainers.engines.vllm.part import Vllm
from halfway.trainers.learner.adapters import add_adapters
from halfway.trainers.learner.deepspeed import build_accelerator
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import DeepSpeedOptions, LearnerOptions, LoraOptions

# Way -> (ZeRO stage or None, whether adapters are trained, whether the output layer is tied to the embedding).
WAYS = {
    "plain": (None, False, True),
    "float32": (None, False, True),  # whatever the engine's dtype is
    "untied": (None, False, False),
    "lora": (None, True, True),
    "zero2": (2, False, True),
    "zero3": (3, False, True),
    "zero3-untied": (3, False, False),
    "zero3-lora": (3, True, True),
}


def build_groups(step: int) -> list[Group]:
    rng = np.random.default_rng(step)
    groups = []
    for _ in range(4):
        rollouts = []
        for i in range(4):
            tokens_T = rng.integers(2, 40, 24).astype(np.int32)
            zeros_T = np.zeros(24, np.float32)
            rollouts.append(Rollout((Turn(tokens_T, zeros_T, zeros_T, step),), i < 2))
        groups.append(Group(Request(Problem("p", "", ""), 4), np.asarray([4, 5, 6], np.int32), tuple(rollouts)))
    return groups


def build_learner(folder: Path, way: str, dtype: torch.dtype) -> PolicyGradientLearner:
    stage, adapted, tied = WAYS[way]
    policy = build_policy(folder, tied).to(torch.float32 if way == "float32" else dtype)
    if adapted:
        torch.manual_seed(0)
        add_adapters(policy, LoraOptions(rank=4))
    deepspeed = DeepSpeedOptions(stage, persistence_threshold=0 if stage == 3 else 100_000)
    options = LearnerOptions(lr=3e-2, max_grad_norm=0.0, deepspeed=deepspeed)
    return PolicyGradientLearner(policy, options, PAD, TEMPERATURE)


def gap(engine: VllmEngine, learner: PolicyGradientLearner) -> float:
    return SyncCheck(engine, learner, learner.policy.config.vocab_size, engine.max_length, 1e9)()


def train(engine: VllmEngine, learner: PolicyGradientLearner) -> list[float]:
    engine.sync(learner.policy, learner.policy_version)
    gaps = [gap(engine, learner)]
    for step in range(2):
        learner.update(build_groups(step), Stream(0).at(step))
        gaps.append(gap(engine, learner))
        engine.sync(learner.policy, learner.policy_version)
        gaps.append(gap(engine, learner))
    return gaps


def main(folder: Path, name: Any) -> None:
    torch.set_num_threads(1)
    dtype = getattr(torch, name)
    # This makes a process group, as training would; without one, vLLM would make its own.
    build_accelerator(LearnerOptions(deepspeed=DeepSpeedOptions(2)), bfloat16=dtype == torch.bfloat16)
    gaps: dict[str, list[float]] = {}
    for tied in (True, False):
        path = folder / f"tied-{tied}"
        policy = build_policy(path, tied).to(dtype)
        part = Vllm(dtype=name, kv_cache_gib=0.05)
        engine: Any = part.build(EngineSetup(policy, str(path), [], PAD, TEMPERATURE, max_sequences=8))
        for way in [way for way, (_, _, own) in WAYS.items() if own == tied and way != name]:
            AcceleratorState._reset_state(True)
            gaps[way] = train(engine, build_learner(folder / "unused", way, dtype))
    (folder / "gaps.json").write_text(json.dumps(gaps))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
