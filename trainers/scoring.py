"""Log-probabilities of given tokens under a causal language model."""

import inspect
from typing import NamedTuple

import torch
from torch import Tensor, nn


class TokenScores(NamedTuple):
    """What one forward pass says of the masked tokens; see `score_tokens`."""

    logprobs_BT: Tensor
    entropies_BT: Tensor
    hidden_MD: Tensor | None


def token_logprobs(
    model: nn.Module,
    tokens_BT: Tensor,
    attention_BT: Tensor,
    mask_BT: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Natural-log probability of the masked tokens, and the entropy of what each came from, as in `score_tokens`."""
    scores = score_tokens(model, tokens_BT, attention_BT, mask_BT, temperature, entropy_gradient)
    return scores.logprobs_BT, scores.entropies_BT


def score_tokens(
    model: nn.Module,
    tokens_BT: Tensor,
    attention_BT: Tensor,
    mask_BT: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
    hidden: bool = False,
) -> TokenScores:
    """Natural-log probability of the masked tokens, and the entropy in nats of the distribution each came from.

    The distribution is softmax(logits / temperature), the one that rollouts are sampled from, in float32 at least.
    Logits are computed only at the positions that some row of the mask needs, where the model can do that (models of
    `transformers` that take `logits_to_keep`), and normalised only at those that the mask names.

    Args:
        tokens_BT: right-padded.
        attention_BT: 1 on tokens, 0 on padding.
        mask_BT: the tokens asked for; never the first of a row, which has no context.
        entropy_gradient: whether the entropies carry a gradient; it costs memory.
        hidden: whether to return the last hidden states too; for models of `transformers`.

    Returns:
        Two (B, T) tensors, 0 where the mask is False. Entry t belongs to token t, predicted from tokens 0..t-1. And, if
        asked for, the hidden states that predict the M masked tokens, in row-major order.
    """
    wanted_BT = mask_BT[:, 1:]
    columns_C = wanted_BT.any(0).nonzero()[:, 0]
    kept = {"logits_to_keep": columns_C} if _keeps_logits(model) else {}
    wanted = {"output_hidden_states": True} if hidden else {}
    output = model(input_ids=tokens_BT, attention_mask=attention_BT, use_cache=False, **kept, **wanted)
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
    return TokenScores(
        zeros_BT.masked_scatter(mask_BT, logprobs_M),
        zeros_BT.masked_scatter(mask_BT, entropies_M),
        before(output.hidden_states[-1], mask_BT) if hidden else None,
    )


def before(hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """The hidden states that the M masked tokens follow, in row-major order: (M, D). The first token has none."""
    hidden_MD: Tensor = hidden_BTD[:, :-1][mask_BT[:, 1:]]
    return hidden_MD


def _keeps_logits(model: nn.Module) -> bool:
    inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    return "logits_to_keep" in inspect.signature(inner.forward).parameters
