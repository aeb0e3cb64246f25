"""The learner's weights for an engine, one tensor at a time, never the whole model at once."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from halfway.trainers.learner.adapters import BASE, adapter_parameters, layer_matrices, merge


def named_weights(policy: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight of the policy under its Hugging Face name, tied weights once, with the adapters added.

    A weight sharded by ZeRO-3 is gathered while the caller holds it. Gathering is collective: every process must run
    through the whole iterator.
    """
    adapters = adapter_parameters(policy)
    for name, parameter in policy.named_parameters():
        if name in adapters:
            continue
        weight = full_tensor(parameter)
        matrices = layer_matrices(policy, name)
        if matrices is not None:
            down, up, factor = matrices
            weight = merge(weight, full_tensor(down), full_tensor(up), factor)
        yield name.replace(f"{BASE}.", "."), weight


def checkpoint_weights(policy: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights with the names and shapes of checkpoints, as vLLM needs them. Collective, like `named_weights`.

    transformers keeps the experts of a layer in one tensor; checkpoints have tensors for each.
    """
    from transformers.core_model_loading import revert_weight_conversion

    model: Any = policy
    for name, weight in named_weights(policy):
        yield from revert_weight_conversion(model, {name: weight}).items()


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of `source` to `target`, a whole model of the same kind. Collective, like `named_weights`."""
    own = dict(target.named_parameters())
    with torch.no_grad():
        for name, weight in named_weights(source):
            own[name].copy_(weight)


def full_tensor(parameter: nn.Parameter) -> Tensor:
    """A whole parameter: itself, detached, or a gathered copy if ZeRO-3 has only a part of it here."""
    if not is_partitioned(parameter):
        return parameter.detach()
    from importlib import import_module

    zero: Any = import_module("deepspeed").zero
    with zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


def is_partitioned(parameter: nn.Parameter) -> bool:
    """True if ZeRO-3 manages the parameter."""
    return "ds_id" in vars(parameter)
