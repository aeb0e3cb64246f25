"""Copies a model with larger heads, for engines whose attention does not support the head sizes of tiny models.

    python -m halfway.experiments.starting_models.widen_heads experiments/starting_models/sums TARGET 32

`sums_wide` is `sums` with heads of 32 instead of 24: the same function up to rounding.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfway.curriculum import UserError, require
from halfway.curriculum.support.atomic import replacing_folder
from halfway.experiments.scripts import script, script_parser


def widen_heads(source: Path, target: Path, size: int) -> None:
    """Write a Qwen3 model that computes the same with heads of `size`: added weights and their gradients are zero.

    Each head's entries keep their rotary pairs and frequencies. The added zeros lower the root mean square that divides
    queries and keys, and attention divides by the square root of the head size. For queries the two effects cancel; for
    keys the norm's weight corrects the difference.

    Args:
        source: folder of model and tokenizer.
        target: folder to write.
        size: new head size, even and larger than the present one.

    Raises:
        UserError: if the source is not a Qwen3 model without biases, or the size does not suit it.
    """
    import transformers

    if not (source / "config.json").is_file():
        raise UserError(f"{source}: is not the folder of a model; give one with a config.json")
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(source, dtype="float32")
    config = model.config
    if config.model_type != "qwen3" or config.attention_bias:
        raise UserError(f"{source}: is a model of type {config.model_type}; give a Qwen3 model without biases")
    old = config.head_dim
    require(size > old and size % 2 == 0, "size", size, f"give an even number above {old}, the heads' size now")
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
    tokenizer: Any = transformers.AutoTokenizer
    with replacing_folder(target) as partial:
        wide.save_pretrained(partial)
        tokenizer.from_pretrained(source).save_pretrained(partial)


@script
def main(words: Sequence[str] | None = None) -> None:
    """Widen the heads of a model from the command line."""
    parser = script_parser(__doc__)
    parser.add_argument("source", type=Path, help="folder of model and tokenizer")
    parser.add_argument("target", type=Path, help="folder to write; an earlier one is replaced")
    parser.add_argument("size", type=int, help="new head size, even and larger than the present one")
    chosen = parser.parse_args(words)
    widen_heads(chosen.source, chosen.target, chosen.size)


if __name__ == "__main__":
    main()
