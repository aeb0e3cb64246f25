"""Samples and syncs with vLLM in this process, and writes the results.

It is a program, since vLLM changes its process. Its arguments are the folder to work in and the engine's dtype; it
writes `results.pt`.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from halfway.curriculum import UserError
from halfway.curriculum.rollouts import IntArray
from halfway.experiments.starting_models.warm_start import WarmStart, build_model, build_tokenizer
from halfway.trainers.engines.contract import Completion, EngineSetup
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.engines.vllm import worker
from halfway.trainers.engines.vllm.engine import VllmEngine
from halfway.trainers.engines.vllm.part import Vllm
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions

END, PAD, TEMPERATURE = 1, 0, 0.7
TOLERANCE = 1e-4


def build_policy(folder: Path, tied: bool = True) -> Any:
    """A policy with random weights, large enough that the next token depends on the whole context.

    Args:
        tied: whether the output layer shares the embedding's weight.
    """
    torch.manual_seed(0)
    model = build_model(WarmStart(hidden=64, heads=2, layers=2))
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() * 1.1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.ndim == 2 else 1)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return model.eval()


def calls() -> tuple[list[Any], list[int], list[int]]:
    """Contexts in groups of four, one of them longer than two cache blocks, with mixed limits and 64-bit seeds."""
    rng = np.random.default_rng(0)
    contexts = [rng.integers(2, 40, length).astype(np.int32) for length in (1, 7, 80)]
    seeds = [int(seed) for seed in rng.integers(0, 2**64, 12, dtype=np.uint64)]
    return [context for context in contexts for _ in range(4)], [24, 1, 12, 40] * 3, seeds


def plain(completions: list[Completion]) -> list[dict[str, Any]]:
    return [asdict(completion) for completion in completions]


@torch.no_grad()
def logprobs_by_one_pass(model: torch.nn.Module, context_P: IntArray, tokens_T: IntArray) -> torch.Tensor:
    """Log-probabilities of all tokens at each position, (T, V), from one pass over this sequence alone."""
    sequence = torch.as_tensor(np.concatenate([context_P, tokens_T]), dtype=torch.int64)[None]
    return torch.log_softmax(model(input_ids=sequence).logits[0].double() / TEMPERATURE, -1)[len(context_P) - 1 : -1]


def change(policy: nn.Module, seed: int, size: float = 0.3) -> None:
    """Change the weights at random, including the embedding and with it a tied output layer."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(size * parameter.std() * noise if parameter.ndim == 2 else 0)


def verdict(check: SyncCheck) -> float | str:
    """The gap that the check finds, in nats, or the message of its error."""
    try:
        return check()
    except UserError as error:
        return str(error)


def syncs(engine: VllmEngine, policy: nn.Module, check: SyncCheck) -> dict[str, float | str]:
    """The verdicts of the check after correct and incorrect ways to hand over new weights."""

    def half_done(skip: str) -> Callable[[], None]:
        def sync() -> None:
            whole = getattr(engine, skip)
            setattr(engine, skip, lambda: None)
            engine.sync(policy, 1)
            setattr(engine, skip, whole)

        return sync

    def not_repacked() -> None:
        repack = worker.repack_tied_heads
        worker.repack_tied_heads = lambda model: None
        engine.sync(policy, 1)
        worker.repack_tied_heads = repack

    ways: dict[str, Callable[[], None]] = {
        "right": lambda: engine.sync(policy, 1),
        "not synced": lambda: None,
        "right after that": lambda: engine.sync(policy, 1),
        "cache kept": half_done("forget"),
        "cache emptied at last": engine.forget,
        "output layer not repacked": not_repacked,
    }
    verdicts: dict[str, float | str] = {"before": verdict(check)}
    for number, (name, sync) in enumerate(ways.items()):
        if name != "cache emptied at last":
            change(policy, number)
        sync()
        verdicts[name] = verdict(check)
    return verdicts


def main(folder: Path, dtype: Any) -> None:
    torch.set_num_threads(1)
    policy = build_policy(folder)
    part = Vllm(dtype=dtype, kv_cache_gib=0.05, entropies=True)
    engine: Any = part.build(EngineSetup(policy, str(folder), [END], PAD, TEMPERATURE, max_sequences=8))
    contexts, limits, seeds = calls()
    first = engine.generate(contexts, limits, seeds)
    results: dict[str, Any] = {"first": plain(first), "again": plain(engine.generate(contexts, limits, seeds))}
    reported: dict[int, Completion] = {}
    whole, engine._policy = engine._policy, None  # entropies are known at the end only
    engine.generate(contexts, limits, seeds, reported.__setitem__)
    engine._policy = whole
    results |= {"reported": list(reported), "reported completions": plain([reported[i] for i in sorted(reported)])}
    order = np.random.default_rng(1).permutation(len(contexts)).tolist()
    shuffled = engine.generate(*([values[i] for i in order] for values in (contexts, limits, seeds)))
    results |= {"order": order, "shuffled": plain(shuffled)}
    try:
        engine.generate([contexts[-1]], [1000], [0])
    except UserError as error:
        results["too long"] = str(error)
    learner = PolicyGradientLearner(policy, LearnerOptions(), PAD, TEMPERATURE)
    check = SyncCheck(engine, learner, policy.config.vocab_size, engine.max_length, TOLERANCE)
    results["syncs"] = syncs(engine, policy, check)
    results["synced"] = plain(engine.generate(contexts, limits, seeds))
    torch.save(results, folder / "results.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
