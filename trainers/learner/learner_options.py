"""Options of the learner: loss, critic, adapters and backend; frozen values, without heavy imports."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from halfway.curriculum import require


def list_changes(options: Any) -> dict[str, Any]:
    """List the options that differ from their defaults, for a message."""
    defaults = vars(type(options)())
    return {name: value for name, value in vars(options).items() if value != defaults[name]}


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters: instead of a weight matrix, train two small matrices whose product is added to it.

    Engines sample from the sum, rounded to their type. In bfloat16 the rounding loses most of a small product, so
    samples lag behind the adapters: use an engine with dtype=float32, or a correction (`learner.mismatch`).

    Attributes:
        rank: inner size of the product; 0 = no adapters, all weights are trained.
        alpha: the product is multiplied by alpha / rank.
        targets: layers, by the last parts of their names; "all-linear" = all linear layers but the output layer.
    """

    rank: int = 0
    alpha: float = 32.0
    targets: tuple[str, ...] = ("all-linear",)

    def __post_init__(self) -> None:
        require(self.rank >= 0, "model.lora.rank", self.rank, "give 0 (= no adapters) or a rank such as 16")
        require(self.alpha > 0, "model.lora.alpha", self.alpha, "give a positive number such as 32")
        named = len(self.targets) > 0 and all(self.targets)
        require(named, "model.lora.targets", self.targets, "list at least one name, or give all-linear")


@dataclass(frozen=True)
class CriticOptions:
    """The critic of PPO (`learner.advantage: gae`): its model, its training, and its advantages.

    Attributes:
        kind: "shared" = a value head on the policy's own trunk, which both losses train; "separate" = a second model,
            initially a copy of the policy's trunk, which costs memory and time.
        lr: peak learning rate of the critic's own weights: the head, or the separate model with its head. Schedule,
            AdamW settings and gradient clipping are those of the learner.
        gamma: discount per generated token; other tokens are not discounted.
        gae_lambda: 1 = reward minus value, unbiased; smaller values trust the critic more.
        value_clip: largest change of a value per update that the value loss counts; 0 = no clip.
        value_coefficient: weight of the value loss.
        whiten: true = normalise advantages to mean 0 and variance 1 over all tokens of the batch.
        warmup_steps: number of initial updates that train only the critic, with a shared trunk frozen.
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
    """Training with DeepSpeed, in the precision of model.dtype.

    With bfloat16 the optimizer keeps float32 weights, and at stages 2 and 3 gradients accumulate in float32.

    Attributes:
        zero_stage: ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 also gradients, 3 also weights; null =
            without DeepSpeed.
        offload_optimizer: true = keep the optimizer state in host memory; from stage 1.
        offload_parameters: true = keep the weights in host memory; at stage 3.
        persistence_threshold: at stage 3, tensors with fewer elements are not sharded.
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
    """Options of GRPO, the GRPO++ backbone and PPO (defaults: clip-high, leave-one-out, no KL).

    Attributes:
        lr: peak learning rate of AdamW.
        betas, eps, weight_decay: settings of AdamW.
        max_grad_norm: global gradient-norm clip; 0 disables it.
        schedule: learning-rate schedule after `warmup_steps` updates.
        warmup_steps: updates over which the learning rate rises to its peak; 0 = none.
        total_updates: length of linear and cosine schedules, in optimizer steps; 0 = the whole budget of the run, which
            treats arms alike that make different numbers of updates from equal budgets. Ignored by "constant".
        advantage: "leave_one_out", "mean" = reward minus the mean of the other rollouts, or of the whole group (GRPO);
            "gae" = generalized advantage estimation with a critic, one advantage per token (PPO).
        critic: critic for advantage=gae.
        divide_by_std: true = divide the advantages of a group by the standard deviation of its rewards.
        clip_low, clip_high: the importance ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: upper bound on the loss of a negative advantage, as a multiple of its absolute value (> 1); 0
            disables it.
        normalization: "token" = sum over tokens / number of tokens in the batch; "sequence" = mean over sequences of
            the mean over their tokens; "constant" = sum over tokens / (number of sequences x normalization_length).
        normalization_length: length in tokens, for "constant".
        kl_coefficient: weight of the KL penalty to the reference (the starting policy); 0 = no reference is kept.
        entropy_coefficient: weight of the entropy bonus; 0 = none.
        compact_filtering: true = truncated rollouts are left out of the loss, and of the critic's, but stay in the
            baseline. With false, a critic treats the cut as the end of the episode, with the reward at the last token
            and no value beyond.
        old_logprobs: denominator of the importance ratio: "engine" = recorded at sampling; "learner" = recomputed
            before the first update (free if each batch is used once: the ratio is exactly 1). Stored groups, and with
            mismatch=none also surplus of an earlier step, keep the recorded values.
        mismatch: correction for different probabilities of the sampled tokens in engine and learner (see
            `halfway.trainers.learner.objective.mismatch`); needs old_logprobs=learner. "none" suits an engine with the
            learner's weights and precision.
        mismatch_cap, mismatch_floor: bounds of the ratio learner / engine; the floor is for the masked kinds.
        num_minibatches: optimizer steps per epoch, whatever the size of the batch.
        minibatch_groups: alternative to `num_minibatches`: groups per optimizer step. The number of steps is chosen so
            that mini-batches of whole groups come closest to this size; 0 = unused.
        num_epochs: number of passes over the batch.
        max_microbatch_tokens: padded tokens in one forward pass; gradients accumulate over micro-batches.
        max_padding: a sequence may be shorter than the longest of its micro-batch by at most this share, so that work
            is about proportional to the number of real tokens; 1 = as few micro-batches as possible.
        share_contexts: true = process a context shared by several rollouts of a group, a prompt or a replayed prefix,
            only once; the loss is the same up to rounding. That needs a model whose cache keeps all keys and values,
            without activation_checkpointing or zero_stage 3. null = where it is possible and pays: in batches whose
            contexts have at least 128 tokens, on average, and are longer than the rest; not with flash_attention_2.
        activation_checkpointing: true = keep only the input of each layer for the backward pass and recompute the rest,
            which takes less memory and about a third more work.
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
    share_contexts: bool | None = None
    activation_checkpointing: bool = False
    deepspeed: DeepSpeedOptions = field(default_factory=DeepSpeedOptions)

    def __post_init__(self) -> None:
        self._check_optimizer()
        self._check_minibatches()
        self._check_schedule()
        self._check_advantages()
        self._check_loss()

    def _check_optimizer(self) -> None:
        require(0 < self.lr < math.inf, "learner.lr", self.lr, "give a positive number such as 1e-6")
        within = all(0 <= beta < 1 for beta in self.betas)
        require(within, "learner.betas", self.betas, "give two numbers from 0 to below 1, such as [0.9, 0.95]")
        require(self.eps > 0, "learner.eps", self.eps, "give a positive number such as 1e-8")
        require(0 < self.clip_low < 1, "learner.clip_low", self.clip_low, "give a number between 0 and 1")
        require(self.clip_high > 0, "learner.clip_high", self.clip_high, "give a positive number such as 0.28")
        require(self.dual_clip == 0 or self.dual_clip > 1, "learner.dual_clip", self.dual_clip, "give 0 or above 1")

    def _check_minibatches(self) -> None:
        require(self.num_minibatches >= 1, "learner.num_minibatches", self.num_minibatches, "give at least 1")
        held = self.minibatch_groups
        require(held >= 0, "learner.minibatch_groups", held, "give 0 (= use num_minibatches) or a number of groups")
        one = held == 0 or self.num_minibatches == 1
        remedy = f"minibatch_groups={held} sets their number; set num_minibatches=1, or minibatch_groups=0"
        require(one, "learner.num_minibatches", self.num_minibatches, remedy)
        require(self.num_epochs >= 1, "learner.num_epochs", self.num_epochs, "give at least 1")

    def _check_schedule(self) -> None:
        known = self.normalization != "constant" or self.normalization_length > 0
        remedy = "normalization=constant needs a length in tokens, for example rollouts.max_response_tokens"
        require(known, "learner.normalization_length", self.normalization_length, remedy)
        for name in ("normalization_length", "total_updates"):
            require(vars(self)[name] >= 0, f"learner.{name}", vars(self)[name], "give 0 (= unused) or more")
        updates, warm = self.total_updates, self.warmup_steps
        remedy = f"schedule={self.schedule} needs more than warmup_steps={warm}, or 0 for the run's whole budget"
        require(self.schedule == "constant" or updates == 0 or updates > warm, "learner.total_updates", updates, remedy)

    def _check_advantages(self) -> None:
        gae = self.advantage == "gae"
        remedy = f"advantage={self.advantage} has no critic; use learner.advantage=gae, or leave learner.critic out"
        require(gae or self.critic == CriticOptions(), "learner.critic", list_changes(self.critic), remedy)
        remedy = "advantage=gae has no groups; use learner.critic.whiten"
        require(not (gae and self.divide_by_std), "learner.divide_by_std", self.divide_by_std, remedy)
        stage = self.deepspeed.zero_stage
        remedy = "the critic of advantage=gae does not support DeepSpeed; give null"
        require(not gae or stage is None, "learner.deepspeed.zero_stage", stage, remedy)

    def _check_loss(self) -> None:
        for name in ("weight_decay", "max_grad_norm", "warmup_steps", "kl_coefficient", "entropy_coefficient"):
            require(vars(self)[name] >= 0, f"learner.{name}", vars(self)[name], "give 0 (= off) or more")
        corrected = self.mismatch == "none" or self.old_logprobs == "learner"
        remedy = "old_logprobs=engine corrects by the clipped ratio; use old_logprobs=learner, or mismatch=none"
        require(corrected, "learner.mismatch", self.mismatch, remedy)
        require(self.mismatch_cap >= 1, "learner.mismatch_cap", self.mismatch_cap, "give at least 1")
        floor = self.mismatch_floor
        require(0 <= floor <= 1, "learner.mismatch_floor", floor, "give a number from 0 to 1")
        tokens = self.max_microbatch_tokens
        require(tokens >= 1, "learner.max_microbatch_tokens", tokens, "give at least 1")
        remedy = "activation_checkpointing keeps no keys and values to share; turn one off"
        require(not (self.share_contexts and self.activation_checkpointing), "learner.share_contexts", True, remedy)
        remedy = "at zero_stage=3 all processes take equally many passes; take zero_stage=2, or share_contexts=false"
        split = self.deepspeed.zero_stage == 3
        require(not (self.share_contexts and split), "learner.share_contexts", True, remedy)
        padding = self.max_padding
        require(0 <= padding <= 1, "learner.max_padding", padding, "give a share from 0 to 1, such as 0.25")
