"""Weights as an engine gets them carry the names and shapes of checkpoints, also of mixtures of experts."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from halfway.trainers.learner.weights import checkpoint_weights, named_weights
from halfway.trainers.policy import prepare_torch

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 20,
    "num_experts_per_tok": 2,
}
QWEN = (Qwen3MoeForCausalLM, Qwen3MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=8))
MIXTRAL = (MixtralForCausalLM, MixtralConfig(**SIZES, num_local_experts=4))


@pytest.mark.parametrize(("kind", "config"), [QWEN, MIXTRAL])
@pytest.mark.parametrize("loaded", [False, True])
def test_experts_come_one_by_one_as_in_a_checkpoint(kind: type, config: object, loaded: bool, tmp_path: Path) -> None:
    """transformers holds them in one tensor, whose name vLLM does not know (verl#6896)."""
    model = kind(config)
    model.save_pretrained(tmp_path)
    if loaded:
        model = kind.from_pretrained(tmp_path, dtype="auto")
    saved, sent = load_file(tmp_path / "model.safetensors"), dict(checkpoint_weights(model))
    assert sent.keys() == saved.keys() and all(torch.equal(sent[name], saved[name]) for name in saved)
    assert not sent.keys() <= dict(named_weights(model)).keys()


def test_new_tensors_are_not_filled_first() -> None:
    """torch fills them with NaN when it is to be deterministic, by a kernel of their own each."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        prepare_torch(0, 0)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(deterministic)
