"""LoRA (Hu et al. 2021): trains small matrices beside the policy's linear layers, whose weights stay fixed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfway.curriculum import require
from halfway.curriculum.support.atomic import ANOTHER, read_json
from halfway.curriculum.support.extras import blaming, load_extra
from halfway.trainers.learner.learner_options import LoraOptions

ADAPTER_FOLDER, WEIGHTS_FILE = "adapter", "adapter_model.safetensors"
NAME = "default"
# peft's names of the parts of a layer: the original layer, and the two matrices.
BASE, DOWN, UP = ".base_layer", f".lora_A.{NAME}", f".lora_B.{NAME}"
# peft's prefix of the names in a file.
PREFIX = "base_model.model."


def add_adapters(policy: Any, options: LoraOptions) -> None:
    """Put adapters into the policy, in place, and freeze the rest. They add nothing yet: one matrix is zero.

    torch's global generator initialises the other matrix. The adapters are in float32, whatever the policy's type.

    Raises:
        UserError: if peft is not installed, or the policy lacks the target layers.
    """
    peft = load_extra("peft", "model.lora", "lora")
    targets = linear_layers(policy) if options.targets == ("all-linear",) else list(options.targets)
    config = peft.LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=0.0,
        target_modules=targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=policy.config.name_or_path,
    )
    remedy = "name layers of the model"
    with blaming(f"model.lora.targets: {list(options.targets)} do not fit the model", remedy, ValueError):
        peft.inject_adapter_in_model(config, policy, adapter_name=NAME)
    for parameter in adapter_parameters(policy).values():
        parameter.data = parameter.data.float()


def linear_layers(policy: Any) -> list[str]:
    """List the last parts of the names of all linear layers but the output layer."""
    output = policy.get_output_embeddings()
    linear = [name for name, module in policy.named_modules() if isinstance(module, nn.Linear) and module is not output]
    return sorted({name.rpartition(".")[2] for name in linear})


def has_adapters(policy: nn.Module) -> bool:
    return any(DOWN in name for name, _ in policy.named_parameters())


def adapter_parameters(policy: nn.Module) -> dict[str, nn.Parameter]:
    """The matrices of the adapters, by name."""
    return {name: p for name, p in policy.named_parameters() if DOWN in name or UP in name}


def layer_matrices(policy: nn.Module, name: str) -> tuple[nn.Parameter, nn.Parameter, float] | None:
    """Find the two matrices and the factor of a weight's adapter; None if it has none.

    Args:
        name: name of a parameter.
    """
    if not name.endswith(f"{BASE}.weight"):
        return None
    layer: Any = policy.get_submodule(name.removesuffix(f"{BASE}.weight"))
    return layer.lora_A[NAME].weight, layer.lora_B[NAME].weight, float(layer.scaling[NAME])


def merge(weight: Tensor, down_RI: Tensor, up_OR: Tensor, factor: float) -> Tensor:
    """Add an adapter's product to its weight, in the weight's type."""
    return (weight.float() + factor * (up_OR.float() @ down_RI.float())).to(weight.dtype)


@contextmanager
def adapters_off(policy: nn.Module) -> Iterator[None]:
    """Switch the adapters off in a `with` block: the policy computes as the base model."""
    layers: list[Any] = [module for name, module in policy.named_modules() if "lora_A" in dict(module.named_children())]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def save_adapters(policy: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write a folder that peft can read.

    Args:
        weights: the matrices, as from `adapter_parameters`.
    """
    from safetensors.torch import save_file

    path = folder / ADAPTER_FOLDER
    policy.peft_config[NAME].save_pretrained(path)
    named = {f"{PREFIX}{name.replace(f'.{NAME}.', '.')}": weight.contiguous() for name, weight in weights.items()}
    save_file(named, path / WEIGHTS_FILE)


def require_same_scale(policy: Any, folder: Path) -> None:
    """Refuse adapters that were trained with another factor: the policy would differ from the saved one.

    Raises:
        UserError: if `alpha` differs from the checkpoint's.
    """
    file = folder / ADAPTER_FOLDER / "adapter_config.json"
    if not file.exists():
        return  # another model, which `load_adapters` reports
    saved, own = read_json(file, ANOTHER)["lora_alpha"], policy.peft_config[NAME].lora_alpha
    require(saved == own, "model.lora.alpha", own, f"{folder} was trained with {saved}; resume with that")


def load_adapters(policy: nn.Module, folder: Path) -> None:
    """Load the folder of `save_adapters`.

    Raises:
        RuntimeError: if it does not fit these adapters.
    """
    from safetensors.torch import load_file

    saved: dict[str, Tensor] = {}
    with suppress(FileNotFoundError):
        saved = load_file(folder / ADAPTER_FOLDER / WEIGHTS_FILE)
    own = {f"{PREFIX}{name.replace(f'.{NAME}.', '.')}": p for name, p in adapter_parameters(policy).items()}
    if {name: p.shape for name, p in own.items()} != {name: weight.shape for name, weight in saved.items()}:
        raise RuntimeError(f"{folder / ADAPTER_FOLDER} does not hold the adapters of this model")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])
