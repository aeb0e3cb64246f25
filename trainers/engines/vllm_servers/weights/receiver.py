"""Receives new weights inside a vLLM server, from files or by a broadcast.

vLLM imports this module by name, before it needs it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from halfway.trainers.distributed.ports import own_address, use_interface_towards
from halfway.trainers.engines.vllm.worker import repack_tied_heads
from halfway.trainers.engines.vllm_servers.server_options import BACKEND
from halfway.trainers.engines.vllm_servers.weights.private_store import join_store
from halfway.trainers.engines.vllm_servers.weights.transfer import broadcast, make_group


@dataclass
class Init(WeightTransferInitInfo):  # type: ignore[misc]
    """A process group for broadcasts, in which the learner has rank 0.

    Attributes:
        address, port, key: address and key of the learner's store, see `private_store`.
        rank: rank of this server's first worker.
        size: size of the group.
        seconds: longest wait for a member.
    """

    address: str
    port: int
    key: str
    rank: int
    size: int
    seconds: float


@dataclass
class Update(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some of the weights.

    Attributes:
        path: a safetensors file that the server can read; empty = a broadcast, in the order of the lists.
        names, dtypes, shapes: those of the broadcast tensors.
    """

    path: str = ""
    names: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)


class Receiver(WeightTransferEngine):  # type: ignore[misc]
    """Loads new weights into a vLLM worker, a few layers at a time: from a file or by broadcast."""

    init_info_cls, update_info_cls = Init, Update
    _group: Any = None
    _seconds = 0.0

    def init_transfer_engine(self, init_info: Init) -> None:
        """Join the learner's group; leave an earlier one."""
        address, port = init_info.address, init_info.port
        use_interface_towards(address)
        store = join_store(address, port, init_info.key, init_info.size, init_info.seconds)
        rank = init_info.rank + self.parallel_config.rank
        own = own_address(f"{address}:{port}")
        self._seconds = init_info.seconds
        self._group = make_group(store, rank, init_info.size, str(self.device), own, init_info.seconds)

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: Update) -> None:
        from_file = load_file(update_info.path).items() if update_info.path else ()
        self.model.load_weights(iter(from_file) if update_info.path else self._broadcast(update_info))

    def _broadcast(self, update_info: Update) -> Iterator[tuple[str, Tensor]]:
        assert self._group is not None, "a broadcast before its group"
        for name, dtype, shape in zip(update_info.names, update_info.dtypes, update_info.shapes, strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
            broadcast(self._group, weight, self._seconds)
            yield name, weight

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_heads(self.model)

    def shutdown(self) -> None:
        self._group = None


class Registration:
    """Mixed into vLLM's worker class so that vLLM imports this module."""


def register(factory: Any = WeightTransferEngineFactory) -> None:
    """Register `Receiver` with vLLM in this process."""
    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, Receiver)


register()
