"""Trains the lab's policy in TRL, with or without a chain: for tests, and for measurements by hand."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from paths import REPOSITORY

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MODEL = REPOSITORY / "experiments" / "starting_models" / "sums"
GROUPS, SIZE = 4, 4


@cache
def problems(number: int = 32) -> Any:
    """The lab's running sums."""
    from halfway.curriculum import ProblemSet, Stream
    from halfway.curriculum.registries import SOURCES

    return ProblemSet(SOURCES.get("running_sums")().load(number, Stream(0)).problems)


def passed(prompts: Sequence[str], completions: Sequence[str], id: Sequence[str], **_: Any) -> list[float]:
    """A reward function that asks the lab's verifier: 1.0 for each completion that passes, otherwise 0.0."""
    from halfway.curriculum.tasks.verifiers.verify import verify_all

    found = {problem.id: problem for problem in problems()}
    return [float(good) for good in verify_all([found[name] for name in id], completions)]


def config(folder: Path, steps: int, **changes: Any) -> Any:
    from trl import GRPOConfig

    options: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": GROUPS * SIZE // 2,
        "gradient_accumulation_steps": 2,
        "num_generations": SIZE,
        "max_completion_length": 40,
        "max_steps": steps,
        "learning_rate": 3e-4,
        "beta": 0.0,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "lr_scheduler_type": "constant",
        "loss_type": "dapo",
        "disable_tqdm": True,
        "scale_rewards": "none",
        "seed": 0,
    }
    return GRPOConfig(**options | changes)


def policy() -> tuple[Any, Any]:
    """The lab's model and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    return (
        AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
        AutoTokenizer.from_pretrained(MODEL),
    )


def trainer(
    chain: Any,
    args: Any,
    reward: Callable[..., Any] | list[Any] = passed,
    given: Any = None,
    **options: Any,
) -> Any:
    """A `GRPOTrainer` whose problems are chosen by a chain."""
    from trl import GRPOTrainer

    import halfway

    model, tokenizer = policy()
    options.setdefault("processing_class", tokenizer)
    hosted = halfway.trl(chain, problems() if given is None else given, reward, args, **options)
    return GRPOTrainer(model, **hosted)


def losses(trained: Any) -> list[float]:
    return [entry["loss"] for entry in trained.state.log_history if "loss" in entry]


def no_tokens() -> Any:
    from halfway.curriculum.rollouts import NO_TOKENS

    return NO_TOKENS
