"""Correction for an engine that does not sample from exactly the learner's distribution.

Engine and learner compute the same policy with different kernels, often in different precision, so a sampled token has
probability q in the engine and p in the learner. Weighting its loss by p / q makes the expectation the one under the
learner's distribution; large weights are truncated or masked, which bounds the variance.
"""

import torch
from torch import Tensor

from halfway.trainers.learner.objective.loss import TokenSums, bounded_exp
from halfway.trainers.learner.options import LearnerOptions


def mismatch_weights(
    learner_logprobs_BT: Tensor, engine_logprobs_BT: Tensor, mask_BT: Tensor, options: LearnerOptions
) -> tuple[Tensor, TokenSums]:
    """The factor on the loss of each token, a constant.

    With p / q of a token, or of a whole sequence (the product over its tokens in the loss):

        "token_truncated", "sequence_truncated"    min(p / q, cap): truncated importance sampling, Ionides 2008; for
                                                   engine mismatch Yao et al. 2025
        "token_masked", "sequence_masked"          p / q where floor <= p / q <= cap, else 0

    Tokens outside the mask, such as a prefix's, take no part in any product. A token whose weight is 0 still
    counts in the denominator of the loss.

    Args:
        learner_logprobs_BT: natural log, computed before the update from the weights that the engine had when it
            sampled.
        engine_logprobs_BT: as recorded at sampling.

    Returns:
        The weights, 0 outside the mask; and sums over the tokens in the loss: of the weight, of the tokens whose ratio
        was above the cap or, where masked, below the floor (`mismatch_bounded`), and of the k3 estimate of
        KL(engine || learner) in nats.
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
    sums = {"mismatch_weight": weights_BT, "mismatch_bounded": mask_BT & outside_BT, "mismatch_kl": kl_BT}
    return weights_BT, {name: values.sum(dtype=torch.float32) for name, values in sums.items()}
