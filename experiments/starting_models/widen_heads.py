"""Copies a model with larger heads, for engines whose attention does not support the head sizes of tiny models.

    python -m halfway.experiments.starting_models.widen_heads experiments/starting_models/sums TARGET 32

`sums_wide` is `sums` with heads of 32 instead of 24: the same function up to rounding.
"""

import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def widen_heads(source: Path, target: Path, size: int) -> None:
    """Write a Qwen3 model that computes the same with heads of `size`: added weights and their gradients are zero.

    Each head's entries keep their rotary pairs and frequencies. The added zeros lower the root mean square that divides
    queries and keys, and attention divides by the square root of the head size. For queries the two effects cancel; for
    keys the norm's weight corrects the difference.

    Args:
        source: folder of model and tokenizer.
        target: folder to write.
        size: new head size, even and larger than the present one.
    """
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(source, dtype="float32")
    config = model.config
    old = config.head_dim
    assert config.model_type == "qwen3" and size > old and size % 2 == 0 and not config.attention_bias
    # Entry i is rotated together with entry i + half.
    entries = torch.cat([torch.arange(old // 2), torch.arange(old // 2) + size // 2])

    def spread(weight: Tensor, dim: int) -> Tensor:
        before, after = weight.shape[:dim], weight.shape[dim + 1 :]
        wide = torch.zeros(*before, weight.shape[dim] // old, size, *after, dtype=weight.dtype)
        wide.index_copy_(dim + 1, entries, weight.reshape(*before, -1, old, *after))
        return wide.flatten(dim, dim + 1)

    weights = model.state_dict()
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            weights[name] = spread(weight, 0)
        elif name.endswith("o_proj.weight"):
            weights[name] = spread(weight, 1)
        elif name.endswith("q_norm.weight"):
            weights[name] = spread(weight, 0)
        elif name.endswith("k_norm.weight"):
            weights[name] = spread(weight, 0) * math.sqrt(old / size)
    config.head_dim = size
    config.rope_parameters = config.rope_parameters | {
        "rope_theta": config.rope_parameters["rope_theta"] ** (size / old)
    }
    wide = type(model)(config)
    wide.load_state_dict(weights)
    wide.save_pretrained(target)
    tokenizer: Any = transformers.AutoTokenizer
    tokenizer.from_pretrained(source).save_pretrained(target)


if __name__ == "__main__":
    widen_heads(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
