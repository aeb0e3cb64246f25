"""Correction for an engine that does not sample from exactly the learner's distribution.

Engine and learner compute the same policy with different kernels, often in different precision, so a sampled token has
probability q in the engine and p in the learner. With its loss weighted by p / q, the expectation is that under the
learner's distribution. Truncating or masking large weights bounds the variance.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.objective.loss import TokenSums, bounded_exp


def mismatch_weights(
    learner_logprobs_BT: Tensor, engine_logprobs_BT: Tensor, mask_BT: Tensor, options: LearnerOptions
) -> tuple[Tensor, TokenSums]:
    """Weights of the tokens in the loss, constants.

    With p / q of a token, or of a whole sequence (the product over its tokens in the loss):

        "token_truncated", "sequence_truncated"    min(p / q, cap): truncated importance sampling, Ionides 2008; for
                                                   engine mismatch Yao et al. 2025
        "token_masked", "sequence_masked"          p / q where floor <= p / q <= cap, else 0

    No product includes tokens outside the mask, such as a prefix's. A token with weight 0 still counts in the
    denominator of the loss.

    Args:
        learner_logprobs_BT: natural log, computed before the update. If the engine sampled with the same weights, the
            factor corrects for the engine; if it sampled with older weights, for their age too. Together with the
            clipped ratio to these log-probabilities, that is decoupled PPO (Hilton et al. 2022; AReaL, Fu et al. 2025).
        engine_logprobs_BT: natural log, recorded at sampling.

    Returns:
        The weights, 0 outside the mask; and sums over the tokens in the loss: of the weight and its square, of the
        tokens with a ratio above the cap or, for the masked kinds, below the floor (`mismatch_bounded`), and of the k3
        estimate of KL(engine || learner) in nats.
    """
    log_ratio_BT = torch.where(mask_BT, learner_logprobs_BT.detach() - engine_logprobs_BT, 0)
    kl_BT = bounded_exp(log_ratio_BT) - 1 - log_ratio_BT
    if options.mismatch.startswith("sequence"):
        ratio_BT = bounded_exp(log_ratio_BT.sum(1, keepdim=True)).expand_as(log_ratio_BT)
    else:
        ratio_BT = bounded_exp(log_ratio_BT)
    outside_BT = ratio_BT > options.mismatch_cap
    if options.mismatch.endswith("masked"):
        outside_BT = outside_BT | (ratio_BT < options.mismatch_floor)
        weights_BT = torch.where(outside_BT, 0, ratio_BT)
    else:
        weights_BT = ratio_BT.clamp(max=options.mismatch_cap)
    weights_BT = torch.where(mask_BT, weights_BT, 0)
    sums = {
        "mismatch_weight": weights_BT,
        "mismatch_square": weights_BT.square(),
        "mismatch_bounded": mask_BT & outside_BT,
        "mismatch_kl": kl_BT,
    }
    return weights_BT, {name: values.sum(dtype=torch.float32) for name, values in sums.items()}


def lag_sums(
    lags: Sequence[int], lags_BT: Tensor, mask_BT: Tensor, gaps_BT: Tensor, weights_BT: Tensor | None
) -> TokenSums:
    """Sums over the tokens of each lag: their number, |gap|, and the correction's weight and its square.

    Args:
        gaps_BT: learner's minus engine's log-probability, 0 outside the mask.
        weights_BT: from `mismatch_weights`; None = no correction.
    """
    values = {"tokens": mask_BT, "engine_gap": gaps_BT.abs()}
    if weights_BT is not None:
        values |= {"mismatch_weight": weights_BT, "mismatch_square": weights_BT.square()}
    return {
        f"lag_{lag}/{name}": value_BT[lags_BT == lag].sum(dtype=torch.float32)
        for lag in lags
        for name, value_BT in values.items()
    }


def effective(means: Mapping[str, float], lags: Sequence[int]) -> dict[str, float]:
    """Replace mean squared weights by effective sample sizes, and the sums of each lag by means over its tokens.

    The effective sample size of weights w, as a share of the n tokens, is (sum w)^2 / (n sum w^2), Kish 1965: 1 if all
    are equal. Every lag has `tokens`, its share of all tokens, `engine_gap` and `effective_sample_size`.
    """
    found = dict(means)
    for prefix in ("", *(f"lag_{lag}/" for lag in lags)):
        tokens = found.get(f"{prefix}tokens", 1.0)
        if prefix:
            found[f"{prefix}engine_gap"] /= max(tokens, 1e-12)
        square = found.pop(f"{prefix}mismatch_square", None)
        if square is None:
            continue
        weight = found.pop(f"{prefix}mismatch_weight") if prefix else found["mismatch_weight"]
        found[f"{prefix}effective_sample_size"] = weight**2 / (tokens * square) if square else 0.0
    return found
