"""A model with wider heads computes the same, also after training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from paths import REPOSITORY
from widen import widen_heads

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
