"""The lab's chain of controllers learns as much on one engine as on another."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import REPOSITORY

from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.launch import commands
from halfway.experiments.starting_models.widen_heads import widen_heads

RECIPE = f"""
base: {REPOSITORY}/experiments/recipes/lab/sums.yaml
controllers: [{{prefix_sampling: {{max_share: 0.5}}}}, uniform, greso]
fill: {{groups: 16}}
rollouts: {{sync_tolerance: 1e-4}}
learner: {{lr: 2e-4}}
evaluation: {{points: 1, samples: 4, problems: 128}}
tracking: {{mlflow: false}}
"""
POLICY = REPOSITORY / "experiments" / "starting_models" / "sums"
HEAD_SIZE = 32  # vLLM's attention on the CPU does not support the lab policy's heads of size 24
ENGINES = {
    "transformers": ["rollouts.engine=transformers"],
    "vllm": ["rollouts.engine={vllm: {kv_cache_gib: 0.25, max_length: 256}}"],
    "vllm_servers": [
        "rollouts.engine={vllm_servers: {kv_cache_gib: 0.25, max_length: 256}}",
        "learner.deepspeed.zero_stage=3",
        "cluster.devices_per_node=2",
    ],
}
STEPS = 8
Z95 = 1.96


@dataclass(frozen=True)
class Learnt:
    """By how much a run's held-out pass@1 rose, with its standard error, and how far engine and learner differed."""

    rise: float
    stderr: float
    engine_gap: float


@pytest.mark.engines
def test_the_chain_learns_as_much_on_every_engine(tmp_path: Path) -> None:
    """The third engine is a vLLM server, with a learner of two ranks under ZeRO-3."""
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)")
    widen_heads(POLICY, tmp_path / "policy", HEAD_SIZE)
    (tmp_path / "engines.yaml").write_text(RECIPE)
    learnt = {engine: train(engine, tmp_path) for engine in ENGINES}
    assert all(run.rise > Z95 * run.stderr and run.engine_gap < 1e-4 for run in learnt.values()), learnt
    for one, other in combinations(learnt.values(), 2):
        assert abs(one.rise - other.rise) < Z95 * math.hypot(one.stderr, other.stderr), learnt


def train(engine: str, folder: Path) -> Learnt:
    """Train a run in its own processes."""
    recipe = folder / "engines.yaml"
    overrides = [*ENGINES[engine], f"budget.steps={STEPS}", f"checkpoint.every={STEPS}", f"output={folder}"]
    overrides += [f"name={engine}", f"model.path={folder / 'policy'}", "cluster.port=29651"]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    words = [sys.executable, "-m", "halfway.experiments.cli", "run", str(recipe), *overrides]
    if engine == "vllm_servers":
        [command] = commands(load_run_config(recipe, overrides), recipe, ["localhost"], overrides)
        words, environment = list(command.words), environment | dict(command.environment)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    evaluations = [json.loads(line) for line in (folder / engine / "evaluations.jsonl").read_text().splitlines()]
    steps = [json.loads(line) for line in (folder / engine / "steps.jsonl").read_text().splitlines()]
    first, last = evaluations[0], evaluations[-1]
    return Learnt(
        rise=last["pass_at_1"] - first["pass_at_1"],
        stderr=math.hypot(first["stderr"], last["stderr"]),
        engine_gap=max(step["learner"].get("engine_gap", 0.0) for step in steps),
    )


# A model with wider heads computes the same, also after training.


BASE = REPOSITORY / "experiments" / "starting_models" / "sums"


@pytest.mark.parametrize("size", [32, 64])
def test_logits_and_gradients_are_those_of_the_original(tmp_path: Path, size: int) -> None:
    transformers = pytest.importorskip("transformers")
    auto: Any = transformers.AutoModelForCausalLM
    widen_heads(BASE, tmp_path, size)
    narrow, wide = auto.from_pretrained(BASE), auto.from_pretrained(tmp_path)
    tokens_BT = torch.randint(2, 43, (4, 100), generator=torch.Generator().manual_seed(0))
    logits = [model(input_ids=tokens_BT).logits for model in (narrow, wide)]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-4)
    for model, logits_BTV in zip((narrow, wide), logits, strict=True):
        torch.nn.functional.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), tokens_BT[:, 1:].flatten()).backward()
        model.norm_of_gradient = torch.nn.utils.get_total_norm(
            [p.grad for name, p in model.named_parameters() if "k_norm" not in name]
        )
    torch.testing.assert_close(wide.norm_of_gradient, narrow.norm_of_gradient, rtol=1e-3, atol=0)
    added = wide.model.layers[0].self_attn.q_proj.weight.unflatten(0, (-1, size))[:, 12 : size // 2]
    gradient = wide.model.layers[0].self_attn.q_proj.weight.grad.unflatten(0, (-1, size))[:, 12 : size // 2]
    assert added.numel() > 0 and not added.any() and not gradient.any()
