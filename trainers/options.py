"""The settings of learner, rollouts, fill, budget, evaluation and checkpoints: frozen values, no heavy import."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from halfway.curriculum.support.errors import UserError


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise the one-line error for a field whose value is not acceptable."""
    if not condition:
        raise UserError(f"{field}: {value!r} is not acceptable; {remedy}")


def changed(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, for a message."""
    defaults = vars(type(options)())
    return {name: value for name, value in vars(options).items() if value != defaults[name]}


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters: train two small matrices beside a weight, whose product is added to it, in its place.

    Engines sample from the sum, rounded to their type. In bfloat16 that loses most of a product that is still small, so
    that samples lag behind the adapters: take rollouts.vllm.dtype=float32 or a correction (`learner.mismatch`).

    Attributes:
        rank: inner size of the product; 0 = no adapters, all weights are trained.
        alpha: the product is multiplied by alpha / rank.
        targets: the layers, by the last parts of their names; "all-linear" = all but the output layer.
    """

    rank: int = 0
    alpha: float = 32.0
    targets: tuple[str, ...] = ("all-linear",)

    def __post_init__(self) -> None:
        require(self.rank >= 0, "model.lora.rank", self.rank, "give 0 (= no adapters) or a rank such as 16")
        require(self.alpha > 0, "model.lora.alpha", self.alpha, "give a positive number such as 32")
        named = len(self.targets) > 0 and all(self.targets)
        require(named, "model.lora.targets", self.targets, "give at least one name, or all-linear")


@dataclass(frozen=True)
class CriticOptions:
    """The critic of PPO (`learner.advantage: gae`): what it is, how it learns, and how advantages come from it.

    Attributes:
        kind: "shared" = a value head on the policy's own trunk, which both losses then train; "separate" = a model of
            its own that starts as a copy of the policy's trunk, at the price of its memory and time.
        lr: peak learning rate of what is the critic's own: the head, or the separate model with its head. Schedule,
            AdamW and gradient clipping are the learner's.
        gamma: discount of a generated token. Tokens that the policy did not write take no time.
        gae_lambda: 1 = reward minus value, unbiased; less trusts the critic more.
        value_clip: a value counts as if it had moved by at most this from the one before the update; 0 = no clip.
        value_coefficient: weight of the value loss.
        whiten: advantages get mean 0 and variance 1 over all tokens of the batch.
        warmup_steps: so many first updates train the critic alone. A shared trunk then stands still too.
    """

    kind: Literal["shared", "separate"] = "shared"
    lr: float = 1e-5
    gamma: float = 1.0
    gae_lambda: float = 1.0
    value_clip: float = 0.2
    value_coefficient: float = 0.5
    whiten: bool = True
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        require(0 < self.lr < math.inf, "learner.critic.lr", self.lr, "give a positive number such as 1e-5")
        require(0 < self.gamma <= 1, "learner.critic.gamma", self.gamma, "give a number above 0, at most 1")
        share = self.gae_lambda
        require(0 <= share <= 1, "learner.critic.gae_lambda", share, "give a number from 0 to 1")
        require(self.value_clip >= 0, "learner.critic.value_clip", self.value_clip, "give 0 (= off) or more")
        weight = self.value_coefficient
        require(weight > 0, "learner.critic.value_coefficient", weight, "give a positive number such as 0.5")
        steps = self.warmup_steps
        require(steps >= 0, "learner.critic.warmup_steps", steps, "give 0 (= off) or a number of updates")


@dataclass(frozen=True)
class DeepSpeedOptions:
    """Training with DeepSpeed. Precision is that of model.dtype; with bfloat16 the optimizer keeps float32 weights,
    and at stages 2 and 3 the gradients of micro-batches add up in float32.

    Attributes:
        zero_stage: what is spread over the processes: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also
            weights; null = without DeepSpeed.
        offload_optimizer: keep the optimizer's state in the host's memory, from stage 1.
        offload_parameters: keep the weights there, at stage 3.
        persistence_threshold: at stage 3, tensors with fewer elements are not spread.
    """

    zero_stage: int | None = None
    offload_optimizer: bool = False
    offload_parameters: bool = False
    persistence_threshold: int = 100_000

    def __post_init__(self) -> None:
        stage = self.zero_stage
        require(stage in (None, 0, 1, 2, 3), "learner.deepspeed.zero_stage", stage, "give null, 0, 1, 2 or 3")
        level = stage or 0
        offload, parameters = self.offload_optimizer, self.offload_parameters
        require(level >= 1 or not offload, "learner.deepspeed.offload_optimizer", offload, "needs zero_stage=1 or more")
        require(level == 3 or not parameters, "learner.deepspeed.offload_parameters", parameters, "needs zero_stage=3")
        threshold = self.persistence_threshold
        require(threshold >= 0, "learner.deepspeed.persistence_threshold", threshold, "give 0 or more")


@dataclass(frozen=True)
class LearnerOptions:
    """GRPO, the GRPO++ backbone and PPO, every switch a plain field (defaults: clip-high, leave-one-out, no KL).

    Attributes:
        lr: peak learning rate of AdamW.
        betas, eps, weight_decay: AdamW.
        max_grad_norm: global gradient-norm clip; 0 disables it.
        schedule: learning-rate schedule after `warmup_steps` updates.
        warmup_steps: updates over which the learning rate rises to its peak; 0 = none.
        total_updates: length of linear and cosine schedules, in optimizer steps; ignored by "constant".
        advantage: "leave_one_out", "mean" = reward minus the mean of the other rollouts, or of the whole group (GRPO);
            "gae" = generalized advantage estimation with a critic, one advantage a token (PPO).
        critic: for advantage=gae.
        divide_by_std: divide a group's advantages by the standard deviation of its rewards.
        clip_low, clip_high: the importance ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: upper bound on the loss of negative advantages, as a multiple of it (> 1); 0 disables it.
        normalization: "token" = sum over tokens / number of tokens in the batch; "sequence" = mean over sequences of
            the mean over their tokens; "constant" = sum over tokens / (number of sequences x normalization_length).
        normalization_length: tokens, for "constant".
        kl_coefficient: weight of the KL penalty to the reference (the starting policy); 0 = no reference is kept.
        entropy_coefficient: weight of the entropy bonus; 0 = none.
        compact_filtering: rollouts cut by a token or turn limit take no part in the loss (they stay in the baseline).
            A critic does not learn from them either; without the filter, being cut is the end of the episode to it:
            its reward comes at the last token, and no value is assumed beyond.
        old_logprobs: where the denominator of the importance ratio comes from: "engine" = recorded at sampling;
            "learner" = recomputed before the first update (free when each batch is used once: ratio is exactly 1).
        mismatch: correction where engine and learner give the sampled tokens other probabilities (see
            `halfway.trainers.learner.mismatch`); needs old_logprobs=learner. "none" suits an engine that shares the
            learner's weights and precision.
        mismatch_cap, mismatch_floor: bounds of the ratio learner / engine; the floor is for the masked kinds.
        num_minibatches: optimizer steps per epoch, whatever the size of the batch.
        minibatch_groups: the alternative: groups per optimizer step. Larger batches then get more steps: as many as
            bring the mini-batches, of whole groups, closest to this size; 0 = unused.
        num_epochs: passes over the batch.
        max_microbatch_tokens: padded tokens in one forward pass; gradients accumulate over micro-batches.
        max_padding: a micro-batch takes no sequence that is shorter than its longest by more than this share, so that
            work is about proportional to real tokens; 1 = as few micro-batches as fit.
        activation_checkpointing: keep only the input of each layer for the backward pass and compute the rest again:
            less memory, about a third more work.
        deepspeed: sharded training.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    total_updates: int = 0
    advantage: Literal["leave_one_out", "mean", "gae"] = "leave_one_out"
    critic: CriticOptions = field(default_factory=CriticOptions)
    divide_by_std: bool = False
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 0.0
    normalization: Literal["token", "sequence", "constant"] = "token"
    normalization_length: int = 0
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0
    compact_filtering: bool = True
    old_logprobs: Literal["engine", "learner"] = "learner"
    mismatch: Literal["none", "token_truncated", "token_masked", "sequence_truncated", "sequence_masked"] = "none"
    mismatch_cap: float = 2.0
    mismatch_floor: float = 0.5
    num_minibatches: int = 1
    minibatch_groups: int = 0
    num_epochs: int = 1
    max_microbatch_tokens: int = 16384
    max_padding: float = 0.25
    activation_checkpointing: bool = False
    deepspeed: DeepSpeedOptions = field(default_factory=DeepSpeedOptions)

    def __post_init__(self) -> None:
        require(0 < self.lr < math.inf, "learner.lr", self.lr, "give a positive number such as 1e-6")
        within = all(0 <= beta < 1 for beta in self.betas)
        require(within, "learner.betas", self.betas, "give two numbers from 0 to below 1, such as [0.9, 0.95]")
        require(self.eps > 0, "learner.eps", self.eps, "give a positive number such as 1e-8")
        require(0 < self.clip_low < 1, "learner.clip_low", self.clip_low, "give a number between 0 and 1")
        require(self.clip_high > 0, "learner.clip_high", self.clip_high, "give a positive number such as 0.28")
        require(self.dual_clip == 0 or self.dual_clip > 1, "learner.dual_clip", self.dual_clip, "give 0 or above 1")
        require(self.num_minibatches >= 1, "learner.num_minibatches", self.num_minibatches, "give at least 1")
        held = self.minibatch_groups
        require(held >= 0, "learner.minibatch_groups", held, "give 0 (= use num_minibatches) or a number of groups")
        require(
            held == 0 or self.num_minibatches == 1,
            "learner.num_minibatches",
            self.num_minibatches,
            f"minibatch_groups={held} sets the number of mini-batches; leave num_minibatches at 1, or that at 0",
        )
        require(self.num_epochs >= 1, "learner.num_epochs", self.num_epochs, "give at least 1")
        require(
            self.normalization != "constant" or self.normalization_length > 0,
            "learner.normalization_length",
            self.normalization_length,
            "normalization=constant needs a length in tokens, for example rollouts.max_response_tokens",
        )
        for name in ("normalization_length", "total_updates"):
            require(vars(self)[name] >= 0, f"learner.{name}", vars(self)[name], "give 0 (= unused) or more")
        require(
            self.schedule == "constant" or self.total_updates > self.warmup_steps,
            "learner.total_updates",
            self.total_updates,
            f"schedule={self.schedule} needs the number of optimizer steps it spans, more than warmup_steps",
        )
        require(
            self.advantage == "gae" or self.critic == CriticOptions(),
            "learner.critic",
            changed(self.critic),
            f"advantage={self.advantage} has no critic; use learner.advantage=gae, or leave learner.critic out",
        )
        require(
            self.advantage != "gae" or not self.divide_by_std,
            "learner.divide_by_std",
            self.divide_by_std,
            "advantage=gae has no groups to divide in; use learner.critic.whiten",
        )
        stage = self.deepspeed.zero_stage
        require(
            self.advantage != "gae" or stage is None,
            "learner.deepspeed.zero_stage",
            stage,
            "advantage=gae trains its critic without DeepSpeed only; give null",
        )
        for name in ("weight_decay", "max_grad_norm", "warmup_steps", "kl_coefficient", "entropy_coefficient"):
            require(vars(self)[name] >= 0, f"learner.{name}", vars(self)[name], "give 0 (= off) or more")
        require(
            self.mismatch == "none" or self.old_logprobs == "learner",
            "learner.mismatch",
            self.mismatch,
            "old_logprobs=engine corrects through the clipped ratio itself; use old_logprobs=learner, or none",
        )
        require(self.mismatch_cap >= 1, "learner.mismatch_cap", self.mismatch_cap, "give at least 1")
        floor = self.mismatch_floor
        require(0 <= floor <= 1, "learner.mismatch_floor", floor, "give a number from 0 to 1")
        tokens = self.max_microbatch_tokens
        require(tokens >= 1, "learner.max_microbatch_tokens", tokens, "give at least 1")
        padding = self.max_padding
        require(0 <= padding <= 1, "learner.max_padding", padding, "give a share from 0 to 1, such as 0.25")


@dataclass(frozen=True)
class VllmOptions:
    """Sampling with vLLM.

    Attributes:
        dtype: of weights and cache; "auto" = model.dtype.
        max_length: most tokens of prompt and response together; 0 = what the model was made for.
        kv_cache_gib: memory for the key-value cache, GiB. It is taken as given, whatever is free at the start.
        block_size: tokens in a block of the cache. Only whole blocks of a shared context are computed once.
        eager: run without compiling. Compiling takes half a minute once, and sampling gets faster.
        entropies: whether to know the entropy of every sampled token. vLLM does not tell it, so the learner's policy
            computes it after sampling, in a forward pass of its own; false = entropies are NaN.
    """

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_length: int = 0
    kv_cache_gib: float = 1.0
    block_size: int = 32
    eager: bool = True
    entropies: bool = False

    def __post_init__(self) -> None:
        require(self.max_length >= 0, "rollouts.vllm.max_length", self.max_length, "give 0 (= the model's) or more")
        size = self.kv_cache_gib
        require(size > 0, "rollouts.vllm.kv_cache_gib", size, "give a positive number of GiB")
        block = self.block_size
        require(block >= 16 and block % 16 == 0, "rollouts.vllm.block_size", block, "give a multiple of 16")


@dataclass(frozen=True)
class ServerOptions:
    """vLLM servers.

    Attributes:
        addresses: "host:port" of servers that are already running, with the flags that `rollouts.engine=vllm_servers`
            starts its own with; none = start `count` servers on this host.
        count: servers to start.
        transfer: how weights are handed over: "files" that all servers can read; or "broadcast" to all of them at once,
            by NCCL between GPUs, each process on one of its own, and by gloo between CPUs; there a server that was lost
            comes back at the next sync.
        folder: for the files, shared memory on one host, a shared disk on several; and for the servers' logs.
        start_seconds: how long a server may take to answer for the first time.
        seconds: how long it may be silent over a request; what it has not answered then is sampled by another one.
            While it answers to /health, a sequence is waited for up to ten times as long.
        rounds: how often the sequences of one call are sent out until all are answered.
        tensor_parallel: devices that one server splits the model over.
        sleep: whether the servers clear their devices during the update, which the learner then has to itself; for
            servers that share devices with it. One that only starts is ended then, and started again at the sync.
    """

    addresses: tuple[str, ...] = ()
    count: int = 1
    transfer: Literal["files", "broadcast"] = "files"
    folder: str = "/dev/shm"
    start_seconds: float = 300.0
    seconds: float = 120.0
    rounds: int = 5
    tensor_parallel: int = 1
    sleep: bool = False

    def __post_init__(self) -> None:
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            numbered = port.isdecimal() and 0 < int(port) < 2**16
            require(bool(host) and numbered, "rollouts.servers.addresses", address, "write host:port")
        different = len(set(self.addresses)) == len(self.addresses)
        require(different, "rollouts.servers.addresses", list(self.addresses), "name each server once")
        require(self.folder != "", "rollouts.servers.folder", self.folder, "give a folder such as /dev/shm")
        for name in ("count", "rounds", "tensor_parallel"):
            require(vars(self)[name] >= 1, f"rollouts.servers.{name}", vars(self)[name], "give at least 1")
        for name in ("start_seconds", "seconds"):
            require(vars(self)[name] > 0, f"rollouts.servers.{name}", vars(self)[name], "give a positive number")


@dataclass(frozen=True)
class RolloutOptions:
    """How the policy is sampled.

    Attributes:
        engine: registered name of the engine.
        num_rollouts: N, rollouts a group.
        temperature: divides the logits before sampling; log-probabilities are those of the tempered distribution.
        max_response_tokens: limit on all response tokens of an episode, replayed ones included.
        max_sequences: sequences decoded at once.
        sync_tolerance: after every weight sync, engine and learner must give tokens after a fixed context
            log-probabilities that differ by at most this many nats, or the run stops; 0 = no check. In float32 they
            agree to 1e-4; in bfloat16 differences of 0.06 (0.3 M parameters) to 0.6 (135 M) were seen.
        vllm: settings of the engines "vllm" and "vllm_servers".
        servers: further ones of "vllm_servers".
    """

    engine: str = "transformers"
    num_rollouts: int = 8
    temperature: float = 1.0
    max_response_tokens: int = 128
    max_sequences: int = 512
    sync_tolerance: float = 0.0
    vllm: VllmOptions = field(default_factory=VllmOptions)
    servers: ServerOptions = field(default_factory=ServerOptions)

    def __post_init__(self) -> None:
        require(self.num_rollouts >= 2, "rollouts.num_rollouts", self.num_rollouts, "a group needs at least 2 rollouts")
        require(self.temperature > 0, "rollouts.temperature", self.temperature, "give a positive number")
        limit = self.max_response_tokens
        require(limit >= 2, "rollouts.max_response_tokens", limit, "give at least 2 tokens")
        require(self.max_sequences >= 1, "rollouts.max_sequences", self.max_sequences, "give at least 1")
        room = self.vllm.max_length if self.engine in ("vllm", "vllm_servers") else 0
        require(
            room == 0 or limit < room,
            "rollouts.max_response_tokens",
            limit,
            f"rollouts.vllm.max_length={room} is for prompt and response together; lower the one or raise the other",
        )
        tolerance = self.sync_tolerance
        require(tolerance >= 0, "rollouts.sync_tolerance", tolerance, "give 0 (= no check) or a number of nats")


@dataclass(frozen=True)
class FillOptions:
    """How a training batch is filled.

    Attributes:
        policy: "once" = one round of `groups` requests, train on what `degenerate` leaves of it; "refill" = further
            rounds until `groups` groups are not degenerate (DAPO dynamic sampling), at most `max_rounds`.
        groups: groups in a training batch.
        max_rounds: bound on the rounds of a step; a step that is still short trains on what it has and says so.
        request: size of a round under "refill": "fixed" = always the size of the first; "adaptive" = GRESO's law.
        request_factor: size of the first round as a multiple of `groups`, rounded up; 1.5 in
            GRESO's scripts, those for dynamic sampling included.
        request_groups: the same as a number of groups; 0 = by `request_factor`.
        min_request: smallest adaptive request, in groups.
        safety: beta of the adaptive law.
        degenerate: groups in which all rollouts passed or none did: "drop" = they do not train (the group filter);
            "keep" = they train like others. A critic learns from them; without one they only count as tokens.
        surplus: non-degenerate groups beyond `groups`: "discard", or "carry" into the next step's batch.
    """

    policy: Literal["once", "refill"] = "once"
    groups: int = 32
    max_rounds: int = 10
    request: Literal["fixed", "adaptive"] = "fixed"
    request_factor: float = 1.0
    request_groups: int = 0
    min_request: int = 1
    safety: float = 1.25
    degenerate: Literal["drop", "keep"] = "drop"
    surplus: Literal["discard", "carry"] = "discard"

    def __post_init__(self) -> None:
        require(self.groups >= 1, "fill.groups", self.groups, "give at least 1")
        require(self.max_rounds >= 1, "fill.max_rounds", self.max_rounds, "give at least 1")
        factor, request = self.request_factor, self.request_groups
        require(0 < factor < math.inf, "fill.request_factor", factor, "give a positive number such as 1.5")
        require(request >= 0, "fill.request_groups", request, "give 0 (= by fill.request_factor) or more")
        require(
            request == 0 or factor == 1,
            "fill.request_groups",
            request,
            f"fill.request_factor={factor:g} says the same in other words; leave it at 1, or this at 0",
        )
        require(self.min_request >= 1, "fill.min_request", self.min_request, "give at least 1")
        require(self.safety >= 1, "fill.safety", self.safety, "give at least 1")
        require(
            self.policy == "refill" or self.request == "fixed",
            "fill.request",
            self.request,
            "an adaptive request needs fill.policy=refill",
        )
        require(
            self.policy == "once" or self.degenerate == "drop",
            "fill.degenerate",
            self.degenerate,
            "fill.policy=refill goes on until enough groups are not degenerate; use fill.policy=once to keep them",
        )
        require(
            self.policy == "refill" or self.surplus == "discard",
            "fill.surplus",
            self.surplus,
            "fill.policy=once leaves no surplus to carry; use fill.policy=refill",
        )

    @property
    def first_request(self) -> int:
        """Groups in the first round under "refill"."""
        # The small subtrahend keeps an exact product, such as 1.1 x 10, from being raised by one.
        return self.request_groups or math.ceil(self.request_factor * self.groups - 1e-9)


@dataclass(frozen=True)
class Budget:
    """How long a run trains. Exactly one of the four is given; arms of a comparison share it.

    Attributes:
        rollouts: rollouts generated for training.
        tokens: tokens generated for training.
        steps: learner steps.
        seconds: wall-clock seconds of the loop, without evaluation and checkpoints.
    """

    rollouts: int | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        given = {k: v for k, v in vars(self).items() if v is not None}
        require(len(given) == 1, "budget", given, "give exactly one of rollouts, tokens, steps, seconds")
        require(next(iter(given.values())) > 0, f"budget.{self.unit}", self.total, "give a positive number")

    @property
    def unit(self) -> str:
        return next(k for k, v in vars(self).items() if v is not None)

    @property
    def total(self) -> float:
        return float(getattr(self, self.unit))


@dataclass(frozen=True)
class EvaluationOptions:
    """Held-out pass@1, the mean of `samples` sampled attempts a problem.

    Attributes:
        points: evaluations after the start, evenly spaced over the budget, the last one at its end; 0 = none.
        samples: attempts a problem.
        problems: size of the held-out set; these problems never train.
    """

    points: int = 4
    samples: int = 8
    problems: int = 128

    def __post_init__(self) -> None:
        require(self.points >= 0, "evaluation.points", self.points, "give 0 or more")
        require(self.samples >= 1, "evaluation.samples", self.samples, "give at least 1")
        require(self.problems >= 0, "evaluation.problems", self.problems, "give 0 or more")


@dataclass(frozen=True)
class CheckpointOptions:
    """When the run can be resumed from.

    Attributes:
        every: steps between checkpoints; the last step always writes one.
        keep: newest checkpoints kept.
    """

    every: int = 10
    keep: int = 2

    def __post_init__(self) -> None:
        require(self.every >= 1, "checkpoint.every", self.every, "give at least 1")
        require(self.keep >= 1, "checkpoint.keep", self.keep, "give at least 1")
