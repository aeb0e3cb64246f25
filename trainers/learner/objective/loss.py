"""The policy loss on padded tensors, as pure functions: every switch of the GRPO family."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from halfway.trainers.learner.learner_options import LearnerOptions

# Bound on a log-ratio before exp, far outside every clip range. Without it, an infinite ratio would turn the update
# into NaN: its gradient in a clipped branch is 0 x infinity.
LOG_RATIO_BOUND = 20.0

# Sums over the tokens of the loss, so that micro-batches add up.
TokenSums: TypeAlias = dict[str, Tensor]


def loss_denominator(num_trained_B: Sequence[int], options: LearnerOptions) -> float:
    """The divisor of the sum of `policy_loss`, for a whole mini-batch.

    Args:
        num_trained_B: number of tokens in the loss of every sequence of the mini-batch. Sequences with 0 do not count.

    Returns:
        "token": number of tokens (DAPO, Yu et al. 2025, eq. 12); "sequence": number of sequences (GRPO, Shao et al.
        2024, eq. 3); "constant": number of sequences x normalization_length (Dr. GRPO, Liu et al. 2025, section 3.2).
        Never 0.
    """
    num_sequences = sum(num > 0 for num in num_trained_B)
    count = {
        "token": sum(num_trained_B),
        "sequence": num_sequences,
        "constant": num_sequences * options.normalization_length,
    }[options.normalization]
    return float(max(count, 1))


def policy_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    options: LearnerOptions,
    denominator: float,
    reference_logprobs_BT: Tensor | None = None,
    entropies_BT: Tensor | None = None,
) -> tuple[Tensor, TokenSums]:
    """The loss of a micro-batch, as a share of the mini-batch's loss. The shares add up exactly.

    With the importance ratio r = exp(logprob - old logprob) and the advantage A, the loss of a token is

        max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A)        PPO, Schulman et al. 2017, eq. 7; with clip_high above
                                                                  clip_low the clip-higher of DAPO, eq. 10
        and where A < 0, with dual_clip = c: at most -c A         dual-clip PPO, Ye et al. 2020
        + kl_coefficient x (q - 1 - log q)                        q = exp(reference - logprob), the k3 estimator of
                                                                  Schulman 2020, as in GRPO, eq. 4
        - entropy_coefficient x entropy

    Penalty and bonus are normalised like the rest.

    Args:
        logprobs_BT: natural-log probabilities of the tokens under the policy, with gradient; any finite value outside
            the loss.
        old_logprobs_BT: the same under the old policy, constants.
        advantages_BT: advantage of every token, including weights; one column if all tokens of a sequence have the
            same.
        mask_BT: True on the tokens in the loss. No gradient reaches an entry where it is False.
        denominator: from `loss_denominator` of the whole mini-batch.
        reference_logprobs_BT: required if kl_coefficient > 0.
        entropies_BT: entropy of the policy at each token, nats; required, with gradient, if entropy_coefficient > 0.

    Returns:
        The scalar loss; and sums over the tokens in the loss: of the ratio, of the k3 estimate of KL(old || new) in
        nats, of the tokens where a clip bound is active (`clip_low`, `clip_high`, `dual_clip`), and of the entropy
        and the KL to the reference if they are given.
    """
    # Masked before any non-linear operation, so that no value outside the mask reaches the loss or its gradient.
    log_ratio_BT = torch.where(mask_BT, logprobs_BT - old_logprobs_BT, 0)
    ratio_BT = bounded_exp(log_ratio_BT)
    low, high = 1 - options.clip_low, 1 + options.clip_high
    loss_BT = torch.maximum(-ratio_BT * advantages_BT, -ratio_BT.clamp(low, high) * advantages_BT)
    negative_BT = mask_BT & (advantages_BT < 0)
    sums = {
        "ratio": torch.where(mask_BT, ratio_BT, 0),
        "approx_kl": ratio_BT - 1 - log_ratio_BT,
        "clip_low": negative_BT & (ratio_BT < low),
        "clip_high": mask_BT & (advantages_BT > 0) & (ratio_BT > high),
        "dual_clip": torch.zeros_like(mask_BT),
    }
    if options.dual_clip > 0:
        bound_BT = -options.dual_clip * advantages_BT
        sums["dual_clip"] = negative_BT & (loss_BT > bound_BT)
        loss_BT = torch.where(negative_BT, torch.minimum(loss_BT, bound_BT), loss_BT)
    if reference_logprobs_BT is not None:
        reference_BT = torch.where(mask_BT, reference_logprobs_BT - logprobs_BT, 0)
        sums["reference_kl"] = bounded_exp(reference_BT) - 1 - reference_BT
        loss_BT = loss_BT + options.kl_coefficient * sums["reference_kl"]
    if entropies_BT is not None:
        sums["entropy"] = torch.where(mask_BT, entropies_BT, 0)
        loss_BT = loss_BT - options.entropy_coefficient * sums["entropy"]
    loss = (torch.where(mask_BT, loss_BT, 0) / _row_divisors(mask_BT, options)).sum() / denominator
    return loss, {name: values.detach().sum(dtype=torch.float32) for name, values in sums.items()}


def value_loss(
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns_BT: Tensor,
    mask_BT: Tensor,
    options: LearnerOptions,
    denominator: float,
) -> tuple[Tensor, TokenSums]:
    """The critic's loss of a micro-batch, normalised like the policy's. The shares add up exactly.

    With the value V of a token, its value V0 before the update and the return R, the loss of a token is

        max((V - R)^2, (clip(V, V0 - value_clip, V0 + value_clip) - R)^2) / 2

    or (V - R)^2 / 2 without value_clip: the clipping of OpenAI's PPO implementation (Engstrom et al. 2020, section 2).

    Args:
        values_BT: with gradient; any finite value outside the loss.
        old_values_BT, returns_BT: constants; any finite value outside the loss.

    Returns:
        The scalar loss, and the number of clipped tokens (`value_clip`), which have no gradient.
    """
    clip = options.critic.value_clip
    error_BT = torch.where(mask_BT, values_BT - returns_BT, 0)
    squares_BT, clipped_BT = error_BT.square(), torch.zeros_like(mask_BT)
    if clip > 0:
        moved_BT = torch.where(mask_BT, values_BT - old_values_BT, 0)
        bounded_BT = torch.where(mask_BT, old_values_BT - returns_BT, 0) + moved_BT.clamp(-clip, clip)
        clipped_BT = (moved_BT.abs() > clip) & (bounded_BT.square() > squares_BT)
        squares_BT = torch.where(clipped_BT, bounded_BT.square(), squares_BT)
    loss = (squares_BT / 2 / _row_divisors(mask_BT, options)).sum() / denominator
    return loss, {"value_clip": clipped_BT.sum(dtype=torch.float32)}


def _row_divisors(mask_BT: Tensor, options: LearnerOptions) -> Tensor | int:
    """Divisor of a token's loss before the denominator: the number of tokens in its sequence, (B, 1), or 1."""
    return mask_BT.sum(1, keepdim=True).clamp(min=1) if options.normalization == "sequence" else 1


def bounded_exp(log_BT: Tensor) -> Tensor:
    """exp, with the argument clipped to +-`LOG_RATIO_BOUND`."""
    return log_BT.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
