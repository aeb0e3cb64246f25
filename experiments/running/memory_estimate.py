"""Estimates whether a run fits into the memory of its machines. Needs no torch.

All figures are in bytes unless a name says GiB.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from halfway.curriculum import UserError
from halfway.experiments.config.run import RunConfig
from halfway.trainers.distributed.cluster import ShapeOptions
from halfway.trainers.engines.part import GIB, bytes_of
from halfway.trainers.learner.learner_options import DeepSpeedOptions

# Memory for a rank's CUDA context and communication buffers, and of its programs where there is no GPU (measured).
RANK_EXTRA_GIB, PROGRAMS_GIB = 2.0, 0.5
# Copies of the largest tensor that a plain optimizer step makes (AdamW's denominator), and a backward pass (sums of the
# embedding's gradient).
COPIES = 2
# Activation bytes per token in units of the hidden size: for a whole layer (Korthikanti et al. 2022, without the
# attention matrix, which fused kernels never hold), and for a layer's input, all that checkpointing keeps of it.
LAYER_FACTOR, INPUT_FACTOR = 34, 2
# DeepSpeed's default allowance for host memory that its estimators leave out.
BUFFER_FACTOR = 1.5


@dataclass(frozen=True)
class Need:
    """The need of one part of the run for one kind of memory.

    Attributes:
        limit_gib: available memory; 0 = not checked.
        remedy: engine options that reduce the need.
    """

    what: str
    where: str
    parts: Mapping[str, float]
    limit_gib: float
    remedy: str

    @property
    def gib(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        return not 0 < self.limit_gib < self.gib

    def __str__(self) -> str:
        parts = " + ".join(f"{what} {gib:.1f}" for what, gib in self.parts.items() if gib >= 0.05)
        limit = f" of {self.limit_gib:g}" if self.limit_gib else ""
        return f"{self.what}: {self.gib:.1f}{limit} GiB of {self.where} ({parts})"


def zero_states(
    weights: int, largest: int, options: DeepSpeedOptions, devices_per_node: int, nodes: int
) -> tuple[int, int]:
    """Bytes of host and device memory for weights, gradients and optimizer in mixed precision under ZeRO.

    The figures are those of DeepSpeed's `estimate_zero2_model_states_mem_needs` and
    `estimate_zero3_model_states_mem_needs`. Stage 1 keeps all 16-bit gradients on each device, and stage 0 everything.

    Args:
        largest: number of parameters of the largest layer, which stage 3 gathers whole.
    """
    devices = devices_per_node * nodes
    if options.zero_stage == 3:
        share = 1 / nodes
        device = 4 * largest
        if options.offload_parameters:
            return int(weights * max(4 * devices_per_node, 18 * share) * BUFFER_FACTOR), device
        if options.offload_optimizer:
            host = weights * max(4 * devices_per_node, 16 * share) * BUFFER_FACTOR
            return int(host), device + int(2 * weights / devices)
        return int(weights * 4 * devices_per_node * BUFFER_FACTOR), device + int(18 * weights / devices)
    host = int(weights * 4 * devices_per_node * BUFFER_FACTOR)
    if options.zero_stage == 0:
        return host, 20 * weights
    gradients = 2 * weights if options.zero_stage == 2 else 4 * weights
    if options.offload_optimizer:
        return int(weights * max(4 * devices, 16) * BUFFER_FACTOR), gradients
    spread = 18 if options.zero_stage == 2 else 16
    return host, gradients + int(spread * weights / devices)


def rank_parts(config: RunConfig, shape: ShapeOptions) -> tuple[float, dict[str, float]]:
    """GiB of host memory for the ranks of a node, and GiB of device memory for one rank, by part."""
    learner, cluster, size = config.learner, config.cluster, bytes_of(config.model.dtype)
    trained, frozen = shape.weights, 0
    if config.model.lora.rank:
        # An adapter adds about two matrices beside each weight of a layer: rank x (the sum of its two sides).
        sides = shape.layer_weights / shape.hidden_size + 9 * shape.hidden_size
        trained, frozen = int(config.model.lora.rank * sides * shape.num_hidden_layers), shape.weights
    largest = max(shape.embedding, shape.layer_weights)
    if learner.deepspeed.zero_stage is None:
        host, states = 0, trained * 4 * (4 if frozen else size)
    else:
        host, states = zero_states(trained, largest, learner.deepspeed, cluster.devices_per_node, cluster.train_nodes)
        if size != 2:
            states = int(states * 16 / 20)  # there is no second copy in 16 bits
    spread = cluster.ranks if learner.deepspeed.zero_stage == 3 else 1
    reference = shape.weights if learner.kl_coefficient and not frozen else 0
    longest = learner.max_microbatch_tokens
    layer = LAYER_FACTOR * shape.hidden_size * longest * size / 2
    factor = INPUT_FACTOR if learner.activation_checkpointing else LAYER_FACTOR
    activations = shape.num_hidden_layers * factor * shape.hidden_size * longest * size / 2 + layer
    # DeepSpeed's figures assume 16-bit gradients that add up over micro-batches; here they have 32 bits.
    wide = size == 2 and learner.deepspeed.zero_stage in (2, 3) and not learner.deepspeed.offload_optimizer
    copied = shape.weights if learner.deepspeed.zero_stage == 3 and config.rollouts.engine.part.uses_module else 0
    plain = learner.deepspeed.zero_stage is None and not frozen
    parts = {
        "weights, gradients, optimizer": (states + frozen * size / spread) / GIB,
        "gradients in 32 bits": (2 * trained / cluster.ranks if wide else 0) / GIB,
        "copy to sample from": copied * size / GIB,
        "reference": reference * size / GIB,
        "activations": activations / GIB,
        "log-probabilities": 4 * 4 * 2**24 / GIB,
        "copies of the embedding": (COPIES * shape.embedding * size if plain else 0) / GIB,
        "context": RANK_EXTRA_GIB if cluster.gpus else PROGRAMS_GIB,
    }
    return host / GIB, parts


def estimate(config: RunConfig) -> Iterator[Need]:
    """The needs of a run for every kind of memory; empty if the sizes of the model are unknown."""
    shape, cluster = config.shape, config.cluster
    if shape is None or not shape.known:
        return
    host, rank = rank_parts(config, shape)
    engine = config.rollouts.engine.part.memory(config.planned(shape), shape)
    sampling, updating, beside = (
        {what: size / GIB for what, size in parts.items()} for parts in (engine.sampling, engine.updating, engine.host)
    )
    device = "a device" if cluster.gpus else "memory"
    on_host = {"ranks": host}
    if cluster.rollout_nodes > 0:
        yield Need("a rank", device, rank, cluster.device_gib, engine.remedy)
        yield Need("an engine", device, sampling, cluster.device_gib, engine.remedy)
    else:
        states = {k: v for k, v in rank.items() if k not in ("activations", "log-probabilities")}
        yield Need("a rank, in the update", device, _joined(rank, updating), cluster.device_gib, engine.remedy)
        yield Need("a rank, in the rollouts", device, _joined(states, sampling), cluster.device_gib, engine.remedy)
        on_host |= {what: gib * cluster.devices_per_node for what, gib in beside.items()}
    yield Need("a training host", "its memory", on_host, cluster.host_gib, engine.remedy)


def require_room(config: RunConfig) -> list[Need]:
    """Estimate the needs of a run. Raises UserError if it does not fit."""
    needs = list(estimate(config))
    for need in needs:
        if not need.fits:
            limit = "cluster.host_gib" if need.where == "its memory" else "cluster.device_gib"
            raise UserError(
                f"{limit}: {need}; raise learner.deepspeed.zero_stage, offload, use more devices, or lower "
                f"learner.max_microbatch_tokens{f' or {need.remedy}' if need.remedy else ''}"
            )
    return needs


def _joined(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {what: one.get(what, 0.0) + other.get(what, 0.0) for what in {**one, **other}}
