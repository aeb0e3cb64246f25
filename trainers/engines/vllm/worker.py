"""Loads new weights inside a vLLM worker. vLLM imports this module by name."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from torch import Tensor, nn


class WeightLoader:
    """Mixed into vLLM's worker class, whose `reload_weights` and `model_runner` it uses."""

    model_runner: Any
    reload_weights: Any

    def load_named_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights of the model. Only for an engine in this process: the tensors are not copied."""
        self.reload_weights(weights_iterator=iter(weights))
        repack_tied_heads(self.model_runner.get_model())


def repack_tied_heads(model: nn.Module) -> None:
    """Repack the output layers that share their weight with the input embedding.

    On a CPU, vLLM keeps a packed copy of an output layer's weight. A reload renews the packed copies only of layers
    that it loads weights into, and a tied weight is loaded into the embedding alone. Without this function the output
    layer would silently keep the old weights.
    """
    embeddings: Any = import_module("vllm.model_executor.layers.vocab_parallel_embedding")
    owners: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        if isinstance(module, embeddings.VocabParallelEmbedding):
            owners.setdefault(id(module.weight), []).append(module)
    for modules in owners.values():
        heads: list[Any] = [module for module in modules if isinstance(module, embeddings.ParallelLMHead)]
        for head in heads if len(modules) > 1 else []:
            head.quant_method.process_weights_after_loading(head)
