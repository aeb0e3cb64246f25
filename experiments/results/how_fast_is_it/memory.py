"""Compares the memory that `halfway validate` predicts with what a process takes, for models of three sizes on a CPU.

    python experiments/results/how_fast_is_it/memory.py [--sizes 46M 135M 362M]

A random Llama samples full responses and is updated twice from them, in a process of its own, whose peak is VmHWM of
/proc/self/status. The largest needs 9 GiB. Prints a table.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.running.memory_estimate import estimate
from halfway.experiments.scripts import script, script_parser

SHARED = {"head_dim": 64, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, Any]] = {
    "46M": {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1536, "num_attention_heads": 8},
    "135M": {"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536, "num_attention_heads": 9},
    "362M": {"hidden_size": 960, "num_hidden_layers": 32, "intermediate_size": 2560, "num_attention_heads": 15},
}
"""The last two are SmolLM2's."""
KEYS = {"46M": 4, "135M": 3, "362M": 5}
TOKENS = {"46M": 2048, "135M": 1024, "362M": 512}
"""Of a micro-batch, fewer where the model is slower."""
PROMPT, RESPONSE = 32, 32


def config(size: str, checkpointing: bool) -> RunConfig:
    """The run whose memory is predicted: every micro-batch is full."""
    shape = SHARED | SHAPES[size] | {"num_key_value_heads": KEYS[size], "vocab_size": 49152}
    sequences = TOKENS[size] // (PROMPT + RESPONSE)
    return parse_run_config(
        {
            "name": "memory",
            "problems": {"source": {"running_sums": {}}},
            "model": {"path": "none"},
            "controllers": ["uniform"],
            "fill": {"groups": 2},
            "rollouts": {"num_rollouts": sequences // 2, "max_response_tokens": RESPONSE, "max_sequences": sequences},
            "learner": {
                "lr": 1e-5,
                "max_microbatch_tokens": TOKENS[size],
                "activation_checkpointing": checkpointing,
            },
            "budget": {"steps": 2},
            "threads": 1,
            "cluster": {"model": shape},
        }
    )


def peak_gib(size: str, checkpointing: bool) -> float:
    """Sample and update twice in this process. Returns the most memory that it ever held."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn
    from halfway.trainers.engines.contract import EngineSetup
    from halfway.trainers.engines.transformers.engine import TransformersEngine
    from halfway.trainers.learner.learner import PolicyGradientLearner

    run = config(size, checkpointing)
    torch.set_num_threads(run.threads)
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM
    learner = PolicyGradientLearner(model(LlamaConfig(**vars(run.cluster.model))), run.learner, 0)
    engine = TransformersEngine(EngineSetup(learner.policy, "none", [], 0, max_sequences=run.rollouts.max_sequences))
    prompt_P = np.arange(1, PROMPT + 1, dtype=np.int32)
    for step in range(2):
        count = run.rollouts.max_sequences
        done = engine.generate([prompt_P] * count, [RESPONSE] * count, list(range(count)))
        rollouts = [
            Rollout((Turn(each.tokens_T, each.logprobs_T, each.entropies_T, step),), i % 2 == 0)
            for i, each in enumerate(done)
        ]
        half = count // 2
        groups = [
            Group(Request(Problem("p", "", ""), half), prompt_P, tuple(rollouts[i : i + half])) for i in (0, half)
        ]
        assert learner.update(groups, Stream(0).at(step))["sequences"] == 2 * half
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


def predicted_gib(size: str, checkpointing: bool) -> dict[str, float]:
    """The estimated memory of the rank, by part, in the phase that needs more."""
    needs = [need for need in estimate(config(size, checkpointing)) if need.what.startswith("a rank")]
    return dict(max(needs, key=lambda need: need.gib).parts)


def measured_gib(size: str, checkpointing: bool) -> float:
    """`peak_gib` in a fresh process."""
    words = [sys.executable, __file__, "--only", json.dumps([size, checkpointing])]
    return float(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


@script
def main() -> int:
    """Print a row for every size, with and without checkpointing of activations."""
    parser = script_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--only", help="measure this model alone, and print its peak memory")
    arguments = parser.parse_args()
    if arguments.only:
        print(peak_gib(*json.loads(arguments.only)))
        return 0
    print("| model | tokens of a micro-batch | checkpointing | predicted, GiB | measured, GiB | ratio |")
    print("|---|---:|---|---:|---:|---:|")
    for checkpointing in (False, True):
        for size in arguments.sizes:
            predicted, measured = sum(predicted_gib(size, checkpointing).values()), measured_gib(size, checkpointing)
            row = f"{predicted:.2f} | {measured:.2f} | {predicted / measured:.2f}"
            print(f"| {size} | {TOKENS[size]} | {'yes' if checkpointing else 'no'} | {row} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
