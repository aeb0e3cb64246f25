"""Log-probabilities of given tokens under a causal language model."""

import inspect

import torch
from torch import Tensor, nn


def token_logprobs(
    model: nn.Module,
    tokens_BT: Tensor,
    attention_BT: Tensor,
    mask_BT: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Natural-log probability of the masked tokens, and the entropy in nats of the distribution each came from.

    The distribution is softmax(logits / temperature), the one that rollouts are sampled from, in float32 at least.
    Logits are computed only at the positions that some row of the mask needs, where the model can do that (models of
    `transformers` that take `logits_to_keep`), and normalised only at those that the mask names.

    Args:
        tokens_BT: right-padded.
        attention_BT: 1 on tokens, 0 on padding.
        mask_BT: the tokens asked for; never the first of a row, which has no context.
        entropy_gradient: whether the entropies carry a gradient; it costs memory.

    Returns:
        Two (B, T) tensors, 0 where the mask is False. Entry t belongs to token t, predicted from tokens 0..t-1.
    """
    wanted_BT = mask_BT[:, 1:]
    columns_C = wanted_BT.any(0).nonzero()[:, 0]
    kept = {"logits_to_keep": columns_C} if _keeps_logits(model) else {}
    output = model(input_ids=tokens_BT, attention_mask=attention_BT, use_cache=False, **kept)
    logits_BCV = output.logits if kept else output.logits[:, columns_C]
    wanted_BC = wanted_BT[:, columns_C]
    # One row for each masked token, in the row-major order that masked_scatter fills in.
    logits_MV = logits_BCV[wanted_BC]
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32)) / temperature
    all_MV = torch.log_softmax(logits_MV, -1)
    targets_M = tokens_BT[:, 1:][:, columns_C][wanted_BC]
    logprobs_M = all_MV.gather(-1, targets_M[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies_M = -(all_MV.exp() * all_MV).sum(-1)
    zeros_BT = torch.zeros(mask_BT.shape, dtype=all_MV.dtype, device=all_MV.device)
    return zeros_BT.masked_scatter(mask_BT, logprobs_M), zeros_BT.masked_scatter(mask_BT, entropies_M)


def _keeps_logits(model: nn.Module) -> bool:
    inner = dict(model.named_children()).get("module", model)  # what wraps a model for training calls it so
    return "logits_to_keep" in inspect.signature(inner.forward).parameters
