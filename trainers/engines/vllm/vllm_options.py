"""Options of both vLLM engines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from halfway.curriculum import IntArray, UserError, require
from halfway.trainers.distributed.cluster import ShapeOptions
from halfway.trainers.engines.part import GIB, EngineMemory, EnginePart, PlannedRun, bytes_of

LARGEST_SEED = 2**63 - 1
# Share of a GPU that must be free before vLLM starts: small, since the learner may be on the same GPU. vLLM would size
# its cache by this share, but we set the size. On a CPU, vLLM reads it only if no size is set.
FREE_SHARE = 0.001
# Memory of an engine on its device besides weights and cache: CUDA's context, graphs, communication buffers.
EXTRA_GIB = 3.0
GPU_DEVICE = Path("/dev/nvidiactl")
# In vLLM 0.32. Its attention on GPUs supports every multiple of 8 up to 256.
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


@dataclass(frozen=True)
class VllmOptions(EnginePart):
    """Sampling with vLLM.

    Attributes:
        dtype: type of weights and cache; "auto" = model.dtype. A CPU that refuses an instruction of vLLM's bfloat16
            kernels ends the process with SIGILL; take float32 there.
        max_length: maximum number of tokens of prompt and response together; 0 = the model's own maximum.
        kv_cache_gib: GiB for the key-value cache, reserved at the start however much is free.
        block_size: tokens per block of the cache. Sequences share only whole blocks of a context.
        eager: whether to run without compiling. Compiling takes about 30 s, then sampling is faster.
    """

    name: ClassVar[str]

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_length: int = 0
    kv_cache_gib: float = 1.0
    block_size: int = 32
    eager: bool = True

    def __post_init__(self) -> None:
        self._require("max_length", self.max_length >= 0, "give 0 (= the model's) or more")
        self._require("kv_cache_gib", self.kv_cache_gib > 0, "give a positive number of GiB")
        self._require("block_size", self.block_size >= 16 and self.block_size % 16 == 0, "give a multiple of 16")

    def _require(self, option: str, condition: bool, remedy: str) -> None:
        """Raise the one-line error for an option with an invalid value."""
        require(condition, f"{self.name}.{option}", getattr(self, option), remedy)

    def weight_dtype(self, policy_dtype: str) -> str:
        """The type of the engine's weights, by its name in torch."""
        return policy_dtype if self.dtype == "auto" else self.dtype

    @property
    def samples_here(self) -> bool:
        """True if vLLM runs on the machines of the run, not on servers given by address."""
        return True

    def check(self, run: PlannedRun) -> None:
        """Refuse lengths that the engine cannot hold, and head sizes that vLLM does not support on a CPU."""
        super().check(run)
        if run.shape is None or run.cluster.gpus or GPU_DEVICE.exists() or not self.samples_here:
            return
        size = run.shape.head_dim or run.shape.hidden_size // run.shape.num_attention_heads
        taken = ", ".join(map(str, CPU_HEAD_SIZES))
        remedy = (
            f"its heads have {size} entries and vLLM on a CPU takes {taken}; use experiments/starting_models/sums_wide "
            "or widen yours: python -m halfway.experiments.starting_models.widen_heads MODEL TARGET 32"
        )
        require(size in CPU_HEAD_SIZES, "model.path", run.model_path, remedy)

    def device_parts(self, run: PlannedRun, shape: ShapeOptions, devices: int = 1) -> dict[str, float]:
        """Bytes on each device that the model is split over, by part."""
        return {
            "engine's weights": shape.weights * bytes_of(self.weight_dtype(run.dtype)) / devices,
            "cache": self.kv_cache_gib * GIB,
            "logits": 2 * 4.0 * run.max_sequences * shape.vocab_size,
            "context": EXTRA_GIB * GIB,
        }

    def memory(self, run: PlannedRun, shape: ShapeOptions) -> EngineMemory:
        parts = self.device_parts(run, shape)
        return EngineMemory(parts, parts, remedy=f"rollouts.engine.{self.name}.kv_cache_gib")


def sampling_parameters(temperature: float, limit: int, seed: int, end_tokens: Sequence[int]) -> dict[str, Any]:
    """The parameters of vLLM with which a sequence is sampled, here or by a server."""
    return {
        "temperature": temperature,
        "max_tokens": limit,
        "seed": seed & LARGEST_SEED,
        "stop_token_ids": list(end_tokens),
        "ignore_eos": True,  # the model's own; ours are above
        "logprobs": 0,  # of the sampled token alone
        "detokenize": False,
    }


def require_length(field: str, contexts: Sequence[IntArray], limits: Sequence[int], most: int) -> None:
    """Raise UserError if a context and its limit together exceed `most`: a server would silently lower the limit."""
    longest = max((len(c) + n for c, n in zip(contexts, limits, strict=True)), default=0)
    if longest > most:
        raise UserError(
            f"{field}.max_length: a prompt and its response may need {longest} tokens, but the engine holds {most}; "
            "raise it, or lower rollouts.max_response_tokens"
        )
