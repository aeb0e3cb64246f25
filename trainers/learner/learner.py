"""The learner: updates the policy from groups, with one process or many."""

import copy
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from halfway.curriculum import FloatArray, Group, IntArray, Stream, UserError, refusal
from halfway.curriculum.stored import join
from halfway.curriculum.support.atomic import ANOTHER, read_json
from halfway.trainers.distributed.collectives import lost_processes
from halfway.trainers.learner.adapters import add_adapters, has_adapters, require_same_scale
from halfway.trainers.learner.backend import POLICY_FOLDER, Backend, PlainBackend, os_errors
from halfway.trainers.learner.batch import Batch, Floats, TrainingSequence, continuation, lags_of, make_batch
from halfway.trainers.learner.critic import Critic, generated_sequences, value_groups
from halfway.trainers.learner.gae import with_targets
from halfway.trainers.learner.learner_options import LearnerOptions, LoraOptions
from halfway.trainers.learner.microbatches import count_minibatches, split_minibatches
from halfway.trainers.learner.objective.loss import loss_denominator
from halfway.trainers.learner.objective.mismatch import effective
from halfway.trainers.learner.passes import Passes
from halfway.trainers.learner.scoring import shares_contexts
from halfway.trainers.learner.sharing import Share, divide

COUNTERS_FILE = "learner.json"
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class Counters(msgspec.Struct):
    """The fields of `COUNTERS_FILE`."""

    reference: str
    policy_version: Count
    optimizer_steps: Count


class PolicyGradientLearner:
    """Owns the policy and improves it from groups of rollouts, by the loss in
    `halfway.trainers.learner.objective.loss`.

    The policy stays in eval mode: dropout is off, and its log-probabilities come from the sampled distribution. Nothing
    here draws from torch's generators: equal groups, streams and weights give equal updates (bit for bit on one device
    with the same number of threads).

    With `options.advantage` "gae" this is PPO (Schulman et al. 2017): every token has its own advantage, from a critic
    that learns by `halfway.trainers.learner.objective.loss.value_loss`.

    On several processes each calls `update` with the same groups, or one makes the `shares` of all and each calls
    `update_with` its own; either way, the sequences are scattered over them by length.
    """

    def __init__(
        self,
        policy: nn.Module,
        options: LearnerOptions,
        pad_token_id: int,
        temperature: float = 1.0,
        accelerator: Accelerator | None = None,
        tokenizer: Any = None,
        lora: LoraOptions | None = None,
    ):
        """
        Args:
            policy: a causal language model of `transformers` with the run's initial weights, also on resuming: the
                reference of the KL penalty is a frozen copy of them, which `load` does not change. Trained in place.
            pad_token_id: any valid token; it is never attended to.
            temperature: sampling temperature of the rollouts.
            accelerator: device and precision; default: accelerate's own choice for this process.
            tokenizer: saved with the policy, so that the checkpoint folder can be loaded as a model.
            lora: adapters to add to the policy, in place, and to train instead of its weights; rank 0 = none.
        """
        wanted = options.share_contexts
        if wanted is None:
            config: Any = policy.config
            wanted = config._attn_implementation != "flash_attention_2"  # tried on no GPU
        sharing = wanted and shares_contexts(policy)
        if options.share_contexts and not sharing:
            raise refusal(
                "learner.share_contexts",
                True,
                "give false; the model's cache does not keep all keys and values (a sliding window, or no attention)",
            )
        if lora is not None and lora.rank:
            add_adapters(policy, lora)
        self.options = options
        self.tokenizer = tokenizer
        # Checked before DeepSpeed shards the weights.
        self._adapted = has_adapters(policy)
        self._reference = _frozen_copy(policy) if options.kl_coefficient > 0 and not self._adapted else None
        start = policy if self._adapted else self._reference
        self._start_digest = "" if start is None else _digest(start)
        self._layers = enable_checkpointing(policy) if options.activation_checkpointing else []
        self._backend = build_backend(policy, options, accelerator)
        self._model, self._accelerator = self._backend.model, self._backend.accelerator
        self._model.eval()
        if self._reference is not None:
            self._reference.to(self._accelerator.device)
        self._critic = Critic(self.policy, options, self._accelerator) if options.advantage == "gae" else None
        self._passes = Passes(
            self._model, self._reference, self._critic, options, pad_token_id, temperature, self._accelerator, sharing
        )
        self._optimizer_steps = 0
        self._version = 0

    @property
    def policy(self) -> Any:
        """The unwrapped policy; the same module for the life of the learner."""
        return self._backend.policy

    @property
    def policy_version(self) -> int:
        """Number of `update` calls that changed the weights, without empty updates and critic warm-up."""
        return self._version

    def update(self, groups: Sequence[Group], stream: Stream, spent: float = 0.0) -> dict[str, float]:
        """Train on the groups: num_epochs passes, each with one optimizer step per mini-batch.

        If there is nothing to train on, weights, schedule and `policy_version` do not change, and `empty` is 1.

        Args:
            stream: shuffles the sequences into mini-batches.
            spent: share of the run's budget spent before this step, in [0, 1), for schedules that follow it.

        Returns:
            `empty` (0 or 1), `optimizer_steps`, `sequences`, `tokens` (both counted once, not once per epoch),
            `trained_tokens` (of whole sequences, prompts and replays included, in every epoch: the cost of the passes)
            and `left_out/REASON` in rollouts. Unless empty also, as means over the optimizer steps, `loss` and
            `grad_norm` (before clipping); `lr` of the last step; and as means over the tokens in the loss the sums of
            `policy_loss` and `mismatch_weights`. `engine_gap` is the mean of |learner's log-probability - engine's| in
            nats before any correction, over the tokens of the first optimizer step that weights of this version
            sampled; absent if there are none. With a critic also `value_loss` and `critic_grad_norm` like the policy's,
            the sums of `value_loss`, the metrics of `halfway.trainers.learner.gae.with_targets`, and
            `warming_up` (0 or 1: only the critic was trained).

        Raises:
            UserError: if a loss or a gradient norm is not finite; the optimizer step is not taken.
        """
        return self._update(make_batch(groups, self.options), stream, spent)

    def shares(self, groups: Sequence[Group], stream: Stream) -> list[Share]:
        """Divide the groups into one share per process, for `update_with` and the same stream."""
        batch = make_batch(groups, self.options, join)
        sequences = batch.sequences
        passes = [self._list_unscored(sequences)]
        passes += [list(sequences)] if self.options.kl_coefficient > 0 or self._critic is not None else []
        for epoch in range(self.options.num_epochs):
            passes += split_minibatches(sequences, self.options, stream.at(epoch))
        return self._divide(batch, passes)

    def _divide(self, batch: Batch, passes: Iterable[Sequence[TrainingSequence]]) -> list[Share]:
        """Divide a batch among the processes for passes over these sequences of it."""
        positions = {id(sequence): i for i, sequence in enumerate(batch.sequences)}
        reads: list[set[int]] = [set() for _ in range(self._accelerator.num_processes)]
        for part in filter(None, passes):
            for read, microbatches in zip(reads, self._passes.shares(part), strict=True):
                read.update(positions[id(part[i])] for own, _ in microbatches for i in own)
        return divide(batch, reads)

    def update_with(self, share: Share, stream: Stream, spent: float = 0.0) -> dict[str, float]:
        """Like `update`, with this process's share."""
        return self._update(share.batch(), stream, spent)

    def _update(self, batch: Batch, stream: Stream, spent: float) -> dict[str, float]:
        if not batch.sequences:
            return _counts(batch, 0, 0)
        sequences, targets = self._with_targets(self._with_logprobs(batch.sequences))
        lags = lags_of(sequences)
        steps: list[dict[str, float]] = []
        lr = 0.0
        for epoch in range(self.options.num_epochs):
            for minibatch in split_minibatches(sequences, self.options, stream.at(epoch)):
                lr = self.options.lr * lr_factor(self._optimizer_steps, self.options, spent)
                steps.append(self._step(minibatch, lr, spent, lags, not steps))
                self._optimizer_steps += not self._warming_up
        self._version += not self._warming_up
        if self._critic is not None:
            self._critic.end_update()
        counts, means = _counts(batch, len(steps), self.options.num_epochs), effective(_means(steps), lags)
        return {**counts, **means, **targets, "lr": lr}

    def with_values(self, groups: Sequence[Group], values: Sequence[Floats] | None = None) -> list[Group]:
        """Add the critic's current values to the turns of the groups (`Turn.values_T`).

        Args:
            values: what `values_with` returned for these groups; None = they are computed here.
        """
        return value_groups(groups, self._values(generated_sequences(groups)) if values is None else values)

    def value_shares(self, groups: Sequence[Group]) -> list[Share]:
        """Divide the groups into one share per process, for `values_with`."""
        batch = Batch(tuple(generated_sequences(groups, join)))
        return self._divide(batch, [batch.sequences])

    def values_with(self, share: Share) -> list[Floats]:
        """Compute the values of all sequences of `generated_sequences`, on every process with its own share."""
        return self._values(share.batch().sequences)

    def _values(self, sequences: Sequence[TrainingSequence]) -> list[Floats]:
        return self._passes.values(sequences) if sequences else []

    def logprobs(self, context_P: IntArray, tokens_T: IntArray) -> FloatArray:
        """Compute the natural-log probability of each token after the context, under the current weights."""
        sequence = continuation(context_P, tokens_T)
        [scored_T] = self._passes.logprobs([sequence])
        return scored_T[sequence.mask_T].astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write the policy as a Hugging Face folder, `policy/`, and optimizer, schedule and counters beside it.

        Raises:
            OSError: if a file cannot be written, as on a full disk.
        """
        self._backend.save(folder)
        if self._accelerator.is_main_process:
            if self.tokenizer is not None:
                with os_errors():
                    self.tokenizer.save_pretrained(folder / POLICY_FOLDER)
            if self._critic is not None:
                self._critic.save(folder)
            counters = {
                "policy_version": self._version,
                "optimizer_steps": self._optimizer_steps,
                "reference": self._start_digest,
            }
            (folder / COUNTERS_FILE).write_text(json.dumps(counters))

    def load(self, folder: Path) -> None:
        """Load a checkpoint of `save`; later updates equal those of the saved learner, bit for bit.

        The checkpoint does not contain the reference, which is this learner's initial policy. Learning rate, schedule
        and the settings of AdamW come from this learner's options, so a run that diverged can continue with a lower
        learning rate.

        Raises:
            UserError: if the checkpoint belongs to another model, if its run started from other weights while a KL
                penalty is on, or if this learner has a critic and the checkpoint has none or another kind.
        """
        counters = read_json(folder / COUNTERS_FILE, ANOTHER, Counters)
        if counters["reference"] != self._start_digest:
            what, option = "KL reference", "learner.kl_coefficient"
            if self._adapted:
                what, option = "base model of the adapters", "model.lora"
            raise UserError(
                f"learner: {folder} was written with another {what}; "
                f"resume with the starting model and the {option} that wrote the checkpoint"
            )
        if self._adapted:
            require_same_scale(self.policy, folder)
        self._backend.load(folder)
        if self._critic is not None:
            self._critic.load(folder)
        self._version, self._optimizer_steps = counters["policy_version"], counters["optimizer_steps"]

    def _with_logprobs(self, sequences: Sequence[TrainingSequence]) -> Sequence[TrainingSequence]:
        """Add log-probabilities from before the first step: old ones if needed, and the reference's."""
        options = self.options
        if unscored := self._list_unscored(sequences):
            scored = iter(self._passes.logprobs(unscored))
            sequences = [
                s if s.old_logprobs_T is not None else replace(s, old_logprobs_T=next(scored)) for s in sequences
            ]
        if options.kl_coefficient > 0:
            rows = self._passes.reference_logprobs(sequences)
            sequences = [replace(s, reference_logprobs_T=row_T) for s, row_T in zip(sequences, rows, strict=True)]
        return sequences

    def _list_unscored(self, sequences: Sequence[TrainingSequence]) -> list[TrainingSequence]:
        """The sequences that need old log-probabilities from the policy; none if the ratio of all is 1."""
        lacking = [sequence for sequence in sequences if sequence.old_logprobs_T is None]
        several = count_minibatches(sequences, self.options) * self.options.num_epochs > 1
        return lacking if several or len(lacking) < len(sequences) else []

    def _with_targets(
        self, sequences: Sequence[TrainingSequence]
    ) -> tuple[Sequence[TrainingSequence], dict[str, float]]:
        """Add the critic's values and targets from before the first step, if there is one; returns its metrics too."""
        if self._critic is None:
            return sequences, {}
        filled, metrics = with_targets(sequences, self._passes.values(sequences), self.options.critic)
        return filled, {**metrics, "warming_up": float(self._warming_up)}

    def _step(
        self, minibatch: Sequence[TrainingSequence], lr: float, spent: float, lags: Sequence[int], first: bool
    ) -> dict[str, float]:
        """Take one optimizer step. Returns `loss`, `grad_norm`, `tokens`, and the sums over tokens."""
        num_trained = [sequence.num_trained for sequence in minibatch]
        denominator = loss_denominator(num_trained, self.options)
        microbatches = self._passes.microbatches(minibatch)
        parts: list[dict[str, Tensor]] = []
        for number, (_, padded, weight) in enumerate(microbatches, start=1):
            with self._microbatch(last=number == len(microbatches)):
                loss, sums = self._passes.loss(padded, denominator, lags, first)
                # The processes average their gradients; this turns the mean into the sum.
                self._backend.backward(loss * (weight * self._accelerator.num_processes))
            parts.append({name: weight * value for name, value in sums.items()})
        sums_S = torch.stack([torch.stack([part[name] for part in parts]).sum() for name in parts[0]])
        totals = dict(zip(parts[0], self._accelerator.reduce(sums_S, "sum").tolist(), strict=True))
        self._require_finite("loss", totals["loss"])
        norms = self._apply(totals, lr, spent)
        return {**totals, **norms, "tokens": sum(num_trained)}

    def _apply(self, totals: Mapping[str, float], lr: float, spent: float) -> dict[str, float]:
        """Take the optimizer step of policy and critic. Returns their gradient norms before clipping."""
        norm = self._backend.gradient_norm()
        if norm is not None:
            self._require_finite("gradient norm", norm)
        norms = {}
        if self._critic is not None:
            norms["critic_grad_norm"] = self._critic.gradient_norm()
            self._require_finite("value loss", totals["value_loss"])
            self._require_finite("critic's gradient norm", norms["critic_grad_norm"])
            self._critic.step(lr_factor(self._critic.steps, self.options, spent))
        if self._warming_up:
            self._backend.drop_gradients()
            return {**norms, "grad_norm": norm or 0.0}
        late_norm = self._backend.step(lr)
        if norm is None:
            assert late_norm is not None
            norm = late_norm
            self._require_finite("gradient norm", norm, taken=True)
        return {**norms, "grad_norm": norm}

    @property
    def _warming_up(self) -> bool:
        return self._critic is not None and self._critic.warming_up

    @contextmanager
    def _microbatch(self, last: bool) -> Iterator[None]:
        """The scope of a forward and backward pass; only the last one averages gradients over processes."""
        critic = nullcontext() if self._critic is None else self._critic.microbatch(last)
        with self._backend.microbatch(last), critic, checkpointing(self._layers):
            yield

    def _require_finite(self, what: str, value: float, taken: bool = False) -> None:
        if math.isfinite(value):
            return
        self._backend.drop_gradients()
        if self._critic is not None:
            self._critic.drop_gradients()
        outcome = "the weights are damaged" if taken else "the step was not taken"
        raise UserError(
            f"learner: the {what} is {value} at update {self._version + 1}; lower learner.lr or learner.max_grad_norm "
            f"in the run's config.yaml and resume; {outcome} and the last checkpoint is intact"
        )


def saved_version(folder: Path) -> int:
    """Read the policy version of a checkpoint's weights."""
    return int(read_json(folder / COUNTERS_FILE, ANOTHER, Counters).get("policy_version", 0))


def build_backend(policy: nn.Module, options: LearnerOptions, accelerator: Accelerator | None) -> Backend:
    """Make the backend: DeepSpeed's if the options ask for it. Raises UserError if a process is lost meanwhile."""
    with lost_processes():
        if options.deepspeed.zero_stage is not None:
            from halfway.trainers.learner.deepspeed import DeepSpeedBackend

            return DeepSpeedBackend(policy, options, accelerator)
        return PlainBackend(policy, options, accelerator)


def enable_checkpointing(policy: Any) -> list[nn.Module]:
    """Prepare the policy's layers to recompute their activations. Returns these layers."""
    layers: Any = import_module("transformers.modeling_layers")
    if hasattr(policy, "activation_checkpointing_enable"):  # its name in newer versions of `transformers`
        policy.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return [module for module in policy.modules() if isinstance(module, layers.GradientCheckpointingLayer)]


@contextmanager
def checkpointing(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Recompute the layers' activations in a `with` block, which `transformers` allows only in train mode.

    Their submodules stay in eval mode, so dropout stays off.
    """
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def lr_factor(step: int, options: LearnerOptions, spent: float = 0.0) -> float:
    """Learning rate of optimizer step `step` (from 0), as a share of its peak.

    It rises linearly from 1 / warmup_steps to 1 over the first `warmup_steps` steps, then stays constant, or falls
    linearly or by a half cosine. It reaches 0 at step `total_updates`; if that is 0, at the end of the run's budget, of
    which the share `spent`, in [0, 1), is used.
    """
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    if options.schedule == "constant":
        return 1.0
    done = spent
    if options.total_updates:
        done = min(1.0, (step - options.warmup_steps) / (options.total_updates - options.warmup_steps))
    return 1 - done if options.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def _counts(batch: Batch, optimizer_steps: int, epochs: int) -> dict[str, float]:
    return {
        "empty": float(not batch.sequences),
        "optimizer_steps": float(optimizer_steps),
        "sequences": float(len(batch.sequences)),
        "tokens": float(sum(sequence.num_trained for sequence in batch.sequences)),
        "trained_tokens": float(epochs * sum(sequence.length for sequence in batch.sequences)),
        **{f"left_out/{reason}": float(count) for reason, count in batch.left_out.items()},
    }


def _means(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over optimizer steps for quantities per step, and over tokens for quantities per token."""
    by_step = ("loss", "grad_norm", "value_loss", "critic_grad_norm")
    tokens, gap, on_time = sum(step["tokens"] for step in steps), steps[0]["engine_gap"], steps[0]["on_time"]
    means = {
        name: sum(step[name] for step in steps) / (len(steps) if name in by_step else tokens)
        for name in steps[0]
        if name not in ("tokens", "engine_gap", "on_time")
    }
    return means | ({"engine_gap": gap / on_time} if on_time else {})


def _frozen_copy(policy: nn.Module) -> nn.Module:
    return copy.deepcopy(policy).requires_grad_(False).eval()


def _digest(module: nn.Module) -> str:
    """Hash the frozen weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, values in module.named_parameters():
        if values.requires_grad:
            continue
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
