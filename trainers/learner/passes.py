"""Forward passes of policy, reference and critic over this process's share of the sequences of an update."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from halfway.trainers.learner.adapters import adapters_off
from halfway.trainers.learner.batch import Floats, TrainingSequence
from halfway.trainers.learner.critic import Critic
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.microbatches import Padded, contexts_dominate, pad, scatter
from halfway.trainers.learner.objective.loss import TokenSums, policy_loss, value_loss
from halfway.trainers.learner.objective.mismatch import lag_sums, mismatch_weights
from halfway.trainers.learner.scoring import TokenScores, score_after_contexts, score_tokens


@dataclass(frozen=True)
class Passes:
    """Scores sequences, and computes the losses of micro-batches.

    Attributes:
        model: the policy, prepared by the accelerator.
        reference: the reference policy; None = the policy without its adapters.
        sharing: whether the policy can continue from a shared context.
    """

    model: nn.Module
    reference: nn.Module | None
    critic: Critic | None
    options: LearnerOptions
    pad_token_id: int
    temperature: float
    accelerator: Accelerator
    sharing: bool = False

    def microbatches(self, sequences: Sequence[TrainingSequence]) -> list[tuple[list[int], Padded, float]]:
        """This process's micro-batches: indices of the sequences, the padded sequences, and a weight, 0 or 1."""
        share = self._shares_contexts(sequences)
        return [
            (positions, self._pad([sequences[i] for i in positions], share), weight)
            for positions, weight in self.shares(sequences)[self.accelerator.process_index]
        ]

    def shares(self, sequences: Sequence[TrainingSequence]) -> list[list[tuple[list[int], float]]]:
        """The micro-batches of every process, the same for sequences without contents; see `scatter`."""
        options = self.options
        bounds = (options.max_microbatch_tokens, self.accelerator.num_processes, options.max_padding)
        return scatter(sequences, *bounds, self._shares_contexts(sequences))

    def _shares_contexts(self, sequences: Sequence[TrainingSequence]) -> bool:
        options = self.options
        if options.share_contexts is not None:
            return options.share_contexts
        possible = self.sharing and not options.activation_checkpointing and options.deepspeed.zero_stage != 3
        return possible and contexts_dominate(sequences)

    def _pad(self, sequences: Sequence[TrainingSequence], share: bool) -> Padded:
        return pad(sequences, self.pad_token_id, self.accelerator.device, share)

    def logprobs(self, sequences: Sequence[TrainingSequence]) -> list[Floats]:
        """Log-probabilities of the tokens in the loss under the policy, one array per sequence, on every process."""
        return self._score(sequences, lambda padded: self._tokens(self.model, padded).logprobs_BT)

    def reference_logprobs(self, sequences: Sequence[TrainingSequence]) -> list[Floats]:
        """Like `logprobs`, under the reference policy."""
        scope: AbstractContextManager[None] = nullcontext()
        if self.reference is None:
            scope = adapters_off(self.accelerator.unwrap_model(self.model))
        with scope:
            return self._score(sequences, lambda padded: self._tokens(self.reference or self.model, padded).logprobs_BT)

    def values(self, sequences: Sequence[TrainingSequence]) -> list[Floats]:
        """Values of the critic, in the form of `logprobs`."""
        critic = self.critic
        assert critic is not None, "values need learner.advantage=gae, which the configuration checks"
        return self._score(sequences, lambda padded: critic.values(padded.tokens_BT, padded.mask_BT))

    def loss(
        self, padded: Padded, denominator: float, lags: Sequence[int] = (), first: bool = False
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss to minimise in one micro-batch, and the losses and sums over its tokens.

        Args:
            lags: the lags for `lag_sums`.
            first: whether the weights are still those before the update, for the comparison with the engine.
        """
        critic = self.critic
        warming_up = critic is not None and critic.warming_up
        with torch.set_grad_enabled(not warming_up):
            scores = self._tokens(self.model, padded, hidden=critic is not None and critic.shared)
            loss, sums = self._policy_loss(scores, padded, denominator, lags, first)
        sums = {"loss": loss.detach(), **sums}
        if critic is None:
            return loss, sums
        values_BT = critic.values(padded.tokens_BT, padded.mask_BT, scores.hidden_MD)
        assert padded.values_BT is not None and padded.returns_BT is not None
        old_BT, returns_BT = padded.values_BT.to(values_BT.dtype), padded.returns_BT.to(values_BT.dtype)
        value, value_sums = value_loss(values_BT, old_BT, returns_BT, padded.mask_BT, self.options, denominator)
        total = self.options.critic.value_coefficient * value
        return total if warming_up else loss + total, {**sums, "value_loss": value.detach(), **value_sums}

    def _policy_loss(
        self, scores: TokenScores, padded: Padded, denominator: float, lags: Sequence[int], first: bool
    ) -> tuple[Tensor, TokenSums]:
        logprobs_BT, mask_BT = scores.logprobs_BT, padded.mask_BT
        old_BT = logprobs_BT.detach() if padded.old_logprobs_BT is None else padded.old_logprobs_BT
        advantages_BT = padded.advantages_BT.to(logprobs_BT.dtype)
        weights_BT, mismatch = None, dict[str, Tensor]()
        if self.options.mismatch != "none":
            weights_BT, mismatch = mismatch_weights(old_BT, padded.engine_logprobs_BT, mask_BT, self.options)
            advantages_BT = advantages_BT * weights_BT
        loss, sums = policy_loss(
            logprobs_BT,
            old_BT,
            advantages_BT,
            mask_BT,
            self.options,
            denominator,
            padded.reference_logprobs_BT,
            scores.entropies_BT,
        )
        sums = {**sums, **mismatch}
        if first:
            on_time_BT = mask_BT if padded.lags_BT is None else mask_BT & (padded.lags_BT == 0)
            gaps_BT = torch.where(on_time_BT, logprobs_BT.detach() - padded.engine_logprobs_BT, 0)
            sums |= {"engine_gap": gaps_BT.abs().sum(), "on_time": on_time_BT.sum()}
        # If the old log-probabilities are the engine's, the learner's own are the current ones.
        own_BT = torch.where(old_BT == padded.engine_logprobs_BT, logprobs_BT.detach(), old_BT)
        gaps_BT = torch.where(mask_BT, own_BT - padded.engine_logprobs_BT, 0)
        if lags:
            assert padded.lags_BT is not None
            sums |= lag_sums(lags, padded.lags_BT, mask_BT, gaps_BT, weights_BT)
        return loss, sums

    def _tokens(self, model: nn.Module, padded: Padded, hidden: bool = False) -> TokenScores:
        """Log-probabilities and entropies of the tokens in the loss, see `score_tokens`."""
        gradient = self.options.entropy_coefficient > 0
        if padded.shared is not None:
            return score_after_contexts(model, padded.shared, padded.mask_BT, self.temperature, gradient, hidden)
        return score_tokens(model, padded.tokens_BT, padded.mask_BT, self.temperature, gradient, hidden)

    @torch.no_grad()
    def _score(self, sequences: Sequence[TrainingSequence], score: Callable[[Padded], Tensor]) -> list[Floats]:
        own: dict[int, Floats] = {}
        for positions, padded, weight in self.microbatches(sequences):
            for i, row_T in zip(positions, score(padded).cpu().numpy(), strict=True):
                own |= {i: row_T[: sequences[i].length]} if weight else {}
        scored = {i: row_T for part in gather_object([own]) for i, row_T in part.items()}
        return [scored[i] for i in range(len(sequences))]
