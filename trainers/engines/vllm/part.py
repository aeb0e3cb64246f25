"""The engine `vllm` as a registered part."""

from dataclasses import dataclass
from typing import ClassVar

from halfway.trainers.engines.contract import Engine, EngineSetup
from halfway.trainers.engines.vllm.vllm_options import VllmOptions


@dataclass(frozen=True)
class Vllm(VllmOptions):
    """Sampling with vLLM in this process, from a copy of the weights: continuous batching, prefix caching.

    Attributes:
        entropies: whether to compute the entropy of every sampled token. vLLM does not report entropies, so the
            learner's policy computes them in an extra forward pass; false = entropies are NaN.
    """

    name: ClassVar[str] = "vllm"

    entropies: bool = False

    @property
    def uses_module(self) -> bool:
        return self.entropies

    def build(self, setup: EngineSetup) -> Engine:
        from halfway.trainers.engines.vllm.engine import vllm_engine

        return vllm_engine(self, setup, self.entropies)
