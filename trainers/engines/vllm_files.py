"""What runs inside a vLLM server: new weights by way of files. vLLM imports this module by name, before it needs it."""

from dataclasses import dataclass
from typing import Any

from safetensors.torch import load_file
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from trainers.engines.vllm_worker import repack_tied_heads

BACKEND = "halfway_files"


@dataclass
class FileInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing to agree on beforehand."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some of the weights.

    Attributes:
        path: a safetensors file that the server can read, in shared memory or on a shared disk.
    """

    path: str = ""


class FileTransfer(WeightTransferEngine):  # type: ignore[misc]
    """Takes weights from files, a few layers at a time: for hosts without NCCL."""

    init_info_cls, update_info_cls = FileInit, FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Nothing to do."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdate) -> None:
        self.model.load_weights(iter(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_heads(self.model)

    def shutdown(self) -> None:
        """Nothing to release."""


class Registration:
    """Mixed into vLLM's worker class; to import this module is all that it is for."""


def register(factory: Any = WeightTransferEngineFactory) -> None:
    """Make the backend known in this process."""
    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, FileTransfer)


register()
