"""The learner: from groups to new weights, with one process or many."""

import copy
import errno
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import Tensor, nn

from curriculum.errors import UserError
from curriculum.groups import Group
from curriculum.rollouts import FloatArray, IntArray, Rollout
from curriculum.streams import Stream
from trainers.batch import (
    Batch,
    Floats,
    Padded,
    TrainingSequence,
    make_batch,
    make_sequence,
    pad,
    split_microbatches,
    split_minibatches,
)
from trainers.critic import Critic, valued
from trainers.gae import with_targets
from trainers.loss import TokenSums, loss_denominator, policy_loss, value_loss
from trainers.mismatch import mismatch_weights
from trainers.options import LearnerOptions
from trainers.scoring import TokenScores, score_tokens

POLICY_FOLDER = "policy"
OPTIMIZER_FILE = "optimizer.pt"
COUNTERS_FILE = "learner.json"


class Learner:
    """Owns the policy and improves it from groups of rollouts, by the loss in `trainers.loss`.

    The policy stays in eval mode, so that dropout is off and its log-probabilities are those of the distribution that
    was sampled. Nothing here draws from torch's generators: equal groups, streams and weights give equal updates (bit
    for bit on one device with the same number of threads).

    With `options.advantage` "gae" this is PPO (Schulman et al. 2017): every token has an advantage of its own, from a
    critic that learns by `trainers.loss.value_loss`.

    On several processes each calls `update` with the same groups; micro-batches are dealt out among them.
    """

    def __init__(
        self,
        policy: nn.Module,
        options: LearnerOptions,
        pad_token_id: int,
        temperature: float = 1.0,
        accelerator: Accelerator | None = None,
    ):
        """
        Args:
            policy: a causal language model of `transformers`, with the weights the run starts from, also when it is
                resumed: the reference of the KL penalty is a frozen copy of what is given here, and `load` leaves it.
                It is trained in place.
            pad_token_id: any valid token; it is never attended to.
            temperature: the one rollouts are sampled at.
            accelerator: where and how to compute; by default accelerate's own choice for this process.
        """
        self.options = options
        self.pad_token_id = pad_token_id
        self.temperature = temperature
        self._accelerator = accelerator or Accelerator()
        self._reference = _frozen_copy(policy).to(self._accelerator.device) if options.kl_coefficient > 0 else None
        self._reference_digest = "" if self._reference is None else _digest(self._reference)
        optimizer = torch.optim.AdamW(
            policy.parameters(), options.lr, options.betas, options.eps, weight_decay=options.weight_decay
        )
        # Not prepared: a prepared schedule advances once for every process.
        self._schedule = _schedule(optimizer, options)
        self._model, self._optimizer = self._accelerator.prepare(policy, optimizer)
        self._model.eval()
        self._critic = Critic(self.policy, options, self._accelerator) if options.advantage == "gae" else None
        self._version = 0

    @property
    def policy(self) -> Any:
        """The policy itself, unwrapped; the same module for the life of the learner."""
        return self._accelerator.unwrap_model(self._model)

    @property
    def policy_version(self) -> int:
        """How many calls of `update` have changed the weights. A call with nothing to train on does not count, nor one
        that warms up the critic."""
        return self._version

    def update(self, groups: Sequence[Group], stream: Stream) -> dict[str, float]:
        """Train on the groups: num_epochs passes of num_minibatches optimizer steps each.

        Nothing to train on is legal: the weights, the schedule and `policy_version` stay, and `empty` is 1.

        Args:
            stream: shuffles the sequences into mini-batches.

        Returns:
            `empty` (0 or 1), `optimizer_steps`, `sequences`, `tokens` (both counted once, not once an epoch) and
            `left_out/REASON` in rollouts. Unless empty also, as means over the optimizer steps, `loss` and `grad_norm`
            (before clipping); `lr` of the last step; and as means over the tokens in the loss the sums of
            `policy_loss` and `mismatch_weights`, and `engine_gap`: |old log-probability - the engine's|, in nats. With
            a critic also `value_loss` and `critic_grad_norm` like the policy's, the sums of `value_loss`, the metrics
            of `trainers.gae.with_targets`, and `warming_up` (0 or 1: only the critic was trained).

        Raises:
            UserError: if a loss or a gradient norm is not finite. The optimizer step is not taken.
        """
        batch = make_batch(groups, self.options)
        if not batch.sequences:
            return _counts(batch, 0)
        sequences, targets = self._with_targets(self._with_logprobs(batch.sequences))
        steps: list[dict[str, float]] = []
        lr = self._schedule.get_last_lr()[0]
        for epoch in range(self.options.num_epochs):
            for minibatch in split_minibatches(sequences, self.options.num_minibatches, stream.at(epoch)):
                lr = self._schedule.get_last_lr()[0]
                steps.append(self._step(minibatch))
        self._version += not self._warming_up
        if self._critic is not None:
            self._critic.end_update()
        return {**_counts(batch, len(steps)), **_means(steps), **targets, "lr": float(lr)}

    def with_values(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with the critic's present values on their turns (`Turn.values_T`)."""
        generated = [rollout for group in groups for rollout in group.rollouts if rollout.num_generated > 0]
        prompts = [g.prompt_tokens_P for g in groups for rollout in g.rollouts if rollout.num_generated > 0]
        sequences = [make_sequence(prompt_P, r, 0.0) for prompt_P, r in zip(prompts, generated, strict=True)]
        values = iter(self._score(self._values, sequences)) if sequences else iter(())

        def appraise(rollout: Rollout, num_prompt: int) -> Rollout:
            if rollout.num_generated > 0:
                return valued(rollout, next(values)[num_prompt:].astype(np.float32))
            length = sum(len(turn.tokens_T) + len(turn.observation_tokens_O) for turn in rollout.turns)
            return valued(rollout, np.zeros(length, np.float32))

        return [replace(g, rollouts=tuple(appraise(r, len(g.prompt_tokens_P)) for r in g.rollouts)) for g in groups]

    def logprobs(self, context_P: IntArray, tokens_T: IntArray) -> FloatArray:
        """Natural-log probability of each token after the context, under the present weights."""
        length = len(context_P) + len(tokens_T)
        mask_T = np.arange(length) >= len(context_P)
        sequence = TrainingSequence(np.concatenate([context_P, tokens_T]), mask_T, 0.0, np.zeros(length, np.float32))
        [scored_T] = self._score(self._logprobs_of(self._model), [sequence])
        return scored_T[mask_T].astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write the policy as a Hugging Face folder, `policy/`, and optimizer, schedule and counters beside it.

        Raises:
            OSError: if a file cannot be written, for example on a full disk.
        """
        if not self._accelerator.is_main_process:
            return
        try:
            self.policy.save_pretrained(folder / POLICY_FOLDER)
        except SafetensorError as error:
            raise _as_os_error(error) from error
        # Through memory, since torch reports a full disk as an internal error without saying so.
        buffer = io.BytesIO()
        torch.save({"optimizer": self._optimizer.state_dict(), "steps": self._schedule.last_epoch}, buffer)
        (folder / OPTIMIZER_FILE).write_bytes(buffer.getbuffer())
        if self._critic is not None:
            self._critic.save(folder)
        counters = {"policy_version": self._version, "reference": self._reference_digest}
        (folder / COUNTERS_FILE).write_text(json.dumps(counters))

    def load(self, folder: Path) -> None:
        """Continue from what `save` wrote; later updates are those of the learner that was saved, bit for bit.

        The reference is not in the checkpoint: it is the policy that this learner was made with. Neither are learning
        rate, schedule and the settings of AdamW, which are those of this learner's options: a run that diverged can go
        on with a lower learning rate.

        Raises:
            UserError: if the checkpoint is of another model, or its run started from other weights while a KL penalty
                is on, or it has no critic, or one of another kind, while this learner has one.
        """
        counters = json.loads((folder / COUNTERS_FILE).read_text())
        if counters["reference"] != self._reference_digest:
            raise UserError(
                f"learner: the KL reference of {folder} is not this run's; "
                "resume with the starting model and the learner.kl_coefficient that wrote the checkpoint"
            )
        policy = self.policy
        try:
            saved = type(policy).from_pretrained(folder / POLICY_FOLDER, dtype=policy.dtype)
            policy.load_state_dict(saved.state_dict())
        except RuntimeError as error:
            raise UserError(
                f"learner: the model of {folder} is not this run's; resume with the model that wrote the checkpoint"
            ) from error
        state = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        optimizer = self._optimizer.optimizer
        for group in optimizer.param_groups:
            options = self.options
            group |= {"betas": options.betas, "eps": options.eps, "weight_decay": options.weight_decay}
        self._schedule = _schedule(optimizer, self.options, steps=state["steps"])
        if self._critic is not None:
            self._critic.load(folder)
        self._version = counters["policy_version"]

    def _with_logprobs(self, sequences: Sequence[TrainingSequence]) -> Sequence[TrainingSequence]:
        """Add what is computed once, before the first step: old log-probabilities if needed, and the reference's."""
        options = self.options
        if options.old_logprobs == "learner" and options.num_minibatches * options.num_epochs > 1:
            scored = self._score(self._logprobs_of(self._model), sequences)
            sequences = [replace(s, old_logprobs_T=row_T) for s, row_T in zip(sequences, scored, strict=True)]
        if self._reference is not None:
            scored = self._score(self._logprobs_of(self._reference), sequences)
            sequences = [replace(s, reference_logprobs_T=row_T) for s, row_T in zip(sequences, scored, strict=True)]
        return sequences

    def _with_targets(
        self, sequences: Sequence[TrainingSequence]
    ) -> tuple[Sequence[TrainingSequence], dict[str, float]]:
        """Add what the critic has to say before the first step, if there is one; and metrics of it."""
        if self._critic is None:
            return sequences, {}
        values = self._score(self._values, sequences)
        filled, metrics = with_targets(sequences, values, self.options.critic)
        return filled, {**metrics, "warming_up": float(self._warming_up)}

    @torch.no_grad()
    def _score(self, score: Callable[[Padded], Tensor], sequences: Sequence[TrainingSequence]) -> list[Floats]:
        """What `score` gives the tokens in the loss, an array a sequence. Every process gets all of them."""
        own: dict[int, Floats] = {}
        for positions, _ in self._share(sequences):
            padded = pad([sequences[i] for i in positions], self.pad_token_id)
            for i, row_T in zip(positions, score(padded).cpu().numpy(), strict=True):
                own[i] = row_T[: sequences[i].length]
        scored = {i: row_T for part in gather_object([own]) for i, row_T in part.items()}
        return [scored[i] for i in range(len(sequences))]

    def _step(self, minibatch: Sequence[TrainingSequence]) -> dict[str, float]:
        """One optimizer step. Returns `loss`, `grad_norm`, `tokens`, and the sums over tokens."""
        num_trained = [sequence.num_trained for sequence in minibatch]
        denominator = loss_denominator(num_trained, self.options)
        share = self._share(minibatch)
        parts: list[dict[str, Tensor]] = []
        for number, (positions, weight) in enumerate(share, start=1):
            with self._microbatch(last=number == len(share)):
                loss, part = self._loss([minibatch[i] for i in positions], denominator)
                # Processes average their gradients; what is wanted is the sum.
                self._accelerator.backward(loss * (weight * self._accelerator.num_processes))
            parts.append({name: weight * value for name, value in part.items()})
        sums = torch.stack([torch.stack([part[name] for part in parts]).sum() for name in parts[0]])
        totals = dict(zip(parts[0], self._accelerator.reduce(sums, "sum").tolist(), strict=True))
        max_norm = self.options.max_grad_norm or math.inf
        norm = float(self._accelerator.clip_grad_norm_(self._model.parameters(), max_norm))
        self._require_finite("loss", totals["loss"])
        self._require_finite("gradient norm", norm)
        if self._critic is not None:
            totals["critic_grad_norm"] = self._critic.gradient_norm()
            self._require_finite("value loss", totals["value_loss"])
            self._require_finite("critic's gradient norm", totals["critic_grad_norm"])
            self._critic.step(lr_factor(self._critic.steps, self.options))
        if not self._warming_up:
            self._optimizer.step()
            self._schedule.step()
        self._optimizer.zero_grad()
        return {**totals, "grad_norm": norm, "tokens": sum(num_trained)}

    @property
    def _warming_up(self) -> bool:
        return self._critic is not None and self._critic.warming_up

    @contextmanager
    def _microbatch(self, last: bool) -> Iterator[None]:
        """The scope of a forward and backward pass; gradients are averaged over processes at the last one only."""
        critic = nullcontext() if self._critic is None else self._critic.microbatch(last)
        with nullcontext() if last else self._accelerator.no_sync(self._model), critic:
            yield

    def _loss(self, sequences: Sequence[TrainingSequence], denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        """What to minimise in one micro-batch; and the losses and sums over tokens."""
        padded = pad(sequences, self.pad_token_id)
        with torch.set_grad_enabled(not self._warming_up):
            scores = self._scores(self._model, padded, hidden=self._critic is not None and self._critic.shared)
            loss, sums = self._policy_loss(scores, padded, denominator)
        sums = {"loss": loss.detach(), **sums}
        if self._critic is None:
            return loss, sums
        value, value_sums = self._value_loss(self._critic, scores.hidden_MD, padded, denominator)
        total = self.options.critic.value_coefficient * value
        return total if self._warming_up else loss + total, {**sums, "value_loss": value.detach(), **value_sums}

    def _policy_loss(self, scores: TokenScores, padded: Padded, denominator: float) -> tuple[Tensor, TokenSums]:
        mask_BT = self._tensor(padded.mask_BT)
        logprobs_BT = scores.logprobs_BT
        old, reference = padded.old_logprobs_BT, padded.reference_logprobs_BT
        old_BT = logprobs_BT.detach() if old is None else self._tensor(old)
        engine_BT = self._tensor(padded.engine_logprobs_BT)
        advantages_BT = self._tensor(padded.advantages_BT).to(logprobs_BT.dtype)
        mismatch: TokenSums = {}
        if self.options.mismatch != "none":
            weights_BT, mismatch = mismatch_weights(old_BT, engine_BT, mask_BT, self.options)
            advantages_BT = advantages_BT * weights_BT
        loss, sums = policy_loss(
            logprobs_BT,
            old_BT,
            advantages_BT,
            mask_BT,
            self.options,
            denominator,
            None if reference is None else self._tensor(reference),
            scores.entropies_BT,
        )
        gaps_BT = torch.where(mask_BT, old_BT - engine_BT, 0)
        return loss, {**sums, **mismatch, "engine_gap": gaps_BT.abs().sum()}

    def _value_loss(
        self, critic: Critic, hidden_MD: Tensor | None, padded: Padded, denominator: float
    ) -> tuple[Tensor, TokenSums]:
        mask_BT = self._tensor(padded.mask_BT)
        tokens_BT, attention_BT = self._tensor(padded.tokens_BT), self._tensor(padded.attention_BT)
        values_BT = critic.values(tokens_BT, attention_BT, mask_BT, hidden_MD)
        old_BT = self._tensor(padded.values_BT).to(values_BT.dtype)
        returns_BT = self._tensor(padded.returns_BT).to(values_BT.dtype)
        return value_loss(values_BT, old_BT, returns_BT, mask_BT, self.options, denominator)

    def _scores(self, model: nn.Module, padded: Padded, hidden: bool = False) -> TokenScores:
        """Log-probabilities and entropies of the tokens in the loss, see `score_tokens`."""
        return score_tokens(
            model,
            self._tensor(padded.tokens_BT),
            self._tensor(padded.attention_BT),
            self._tensor(padded.mask_BT),
            self.temperature,
            entropy_gradient=self.options.entropy_coefficient > 0,
            hidden=hidden,
        )

    def _logprobs_of(self, model: nn.Module) -> Callable[[Padded], Tensor]:
        return lambda padded: self._scores(model, padded).logprobs_BT

    def _values(self, padded: Padded) -> Tensor:
        assert self._critic is not None, "values need learner.advantage=gae, which the configuration checks"
        tensors = (self._tensor(array_BT) for array_BT in (padded.tokens_BT, padded.attention_BT, padded.mask_BT))
        return self._critic.values(*tensors)

    def _share(self, sequences: Sequence[TrainingSequence]) -> list[tuple[list[int], float]]:
        """This process's micro-batches as positions, each with its weight.

        All processes get equally many, as collective operations need: where one is missing, one that another process
        has takes its place, with weight 0.
        """
        parts = split_microbatches(sequences, self.options.max_microbatch_tokens)
        first, stride = self._accelerator.process_index, self._accelerator.num_processes
        rounds = math.ceil(len(parts) / stride)
        dealt = [first + i * stride for i in range(rounds)]
        return [(parts[i], 1.0) if i < len(parts) else (parts[-1], 0.0) for i in dealt]

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(values, device=self._accelerator.device)

    def _require_finite(self, what: str, value: float) -> None:
        if math.isfinite(value):
            return
        self._optimizer.zero_grad()
        if self._critic is not None:
            self._critic.drop_gradients()
        raise UserError(
            f"learner: the {what} is {value} at update {self._version + 1}; lower learner.lr or learner.max_grad_norm "
            "in the run's config.yaml and resume; the step was not taken and the last checkpoint is intact"
        )


def _schedule(
    optimizer: torch.optim.Optimizer, options: LearnerOptions, steps: int = 0
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule of the options after `steps` optimizer steps; it sets the optimizer's learning rate."""
    for group in optimizer.param_groups:
        group["initial_lr"] = options.lr
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, options), last_epoch=steps - 1)


def lr_factor(step: int, options: LearnerOptions) -> float:
    """The learning rate of optimizer step `step` (from 0), as a share of its peak.

    It rises linearly from 1 / warmup_steps to 1 over the first `warmup_steps` steps, then stays, or falls linearly or
    by a half cosine, such that step `total_updates` would be the first with 0.
    """
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    if options.schedule == "constant":
        return 1.0
    span = max(1, options.total_updates - options.warmup_steps)
    done = min(1.0, (step - options.warmup_steps) / span)
    return 1 - done if options.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def _counts(batch: Batch, optimizer_steps: int) -> dict[str, float]:
    return {
        "empty": float(not batch.sequences),
        "optimizer_steps": float(optimizer_steps),
        "sequences": float(len(batch.sequences)),
        "tokens": float(sum(sequence.num_trained for sequence in batch.sequences)),
        **{f"left_out/{reason}": float(count) for reason, count in batch.left_out.items()},
    }


def _means(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over optimizer steps for what belongs to a step, over tokens for what belongs to a token."""
    by_step = ("loss", "grad_norm", "value_loss", "critic_grad_norm")
    tokens = sum(step["tokens"] for step in steps)
    return {
        name: sum(step[name] for step in steps) / (len(steps) if name in by_step else tokens)
        for name in steps[0]
        if name != "tokens"
    }


def _frozen_copy(policy: nn.Module) -> nn.Module:
    return copy.deepcopy(policy).requires_grad_(False).eval()


def _digest(module: nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, values in module.state_dict().items():
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _as_os_error(error: SafetensorError) -> OSError:
    """The operating system's error behind a failed write; it is only in the text of the library's own."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]) if number else errno.EIO, str(error))
