"""Log-probabilities of given tokens under a causal language model."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from halfway.trainers.learner.microbatches import SharedContexts

# Most logits in memory at once. More are computed in parts, and again in the backward pass.
MAX_LOGITS = 2**24

# Log-probability and entropy of each of M tokens, from the logits that predict them and the tokens.
Scorer: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class TokenScores(NamedTuple):
    """Scores of the masked tokens from one forward pass; see `score_tokens`."""

    logprobs_BT: Tensor
    entropies_BT: Tensor
    hidden_MD: Tensor | None


def token_logprobs(
    model: nn.Module, tokens_BT: Tensor, mask_BT: Tensor, temperature: float = 1.0, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute natural-log probabilities and entropies (nats) of the masked tokens, see `score_tokens`."""
    scores = score_tokens(model, tokens_BT, mask_BT, temperature, entropy_gradient)
    return scores.logprobs_BT, scores.entropies_BT


def score_tokens(
    model: nn.Module,
    tokens_BT: Tensor,
    mask_BT: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
    hidden: bool = False,
    **given: Any,
) -> TokenScores:
    """Compute natural-log probabilities of the masked tokens, and entropies in nats of their distributions.

    The distribution is softmax(logits / temperature), as in sampling, in float32 at least. If the model allows it
    (models of `transformers` that take `logits_to_keep`), logits are computed only at masked positions. If there are
    many, and they come straight from a linear layer, they are computed in parts, so memory grows with the hidden size,
    not with the vocabulary.

    Args:
        model: a model of `transformers`, possibly wrapped for distributed training.
        tokens_BT: right-padded. Padding needs no attention mask: in a causal model nothing to the right of a token
            reaches it. Without a mask, attention skips the upper triangle and copies no heads to match queries.
        mask_BT: the tokens to score; never the first of a row, which has no context.
        entropy_gradient: whether the entropies have a gradient, which costs memory.
        hidden: whether to return the last hidden states too.
        given: further arguments of the model's forward pass.

    Returns:
        Two (B, T) tensors, 0 where the mask is False. Entry t belongs to token t, predicted from tokens 0..t-1. With
        `hidden` also the hidden states that predict the M masked tokens, in row-major order.
    """
    wanted_BT = mask_BT[:, 1:]
    columns_C = wanted_BT.any(0).nonzero()[:, 0]
    positions = {"logits_to_keep": columns_C} if _keeps_logits(model) else {}
    wanted_BC = wanted_BT[:, columns_C]
    targets_M = tokens_BT[:, 1:][:, columns_C][wanted_BC]

    def score(logits_MV: Tensor, targets_M: Tensor) -> tuple[Tensor, Tensor]:
        return _score(logits_MV, targets_M, temperature, entropy_gradient)

    states: list[Tensor] = []

    def forward() -> Tensor:
        wanted = {"output_hidden_states": True} if hidden else {}
        output = model(input_ids=tokens_BT, **{"use_cache": False, **positions, **wanted, **given})
        states[:] = [output.hidden_states[-1]] if hidden else []
        logits_BCV: Tensor = output.logits
        return logits_BCV

    scored = None
    head = output_layer(model) if positions else None
    if head is not None and len(targets_M) * head.out_features > MAX_LOGITS:
        scored = _score_in_parts(head, forward, wanted_BC, targets_M, score)
    if scored is None:
        logits_BCV = forward() if positions else forward()[:, columns_C]
        # One row per masked token, in row-major order, as masked_scatter fills them.
        scored = score(logits_BCV[wanted_BC], targets_M)
    logprobs_M, entropies_M = scored
    zeros_BT = torch.zeros(mask_BT.shape, dtype=logprobs_M.dtype, device=logprobs_M.device)
    return TokenScores(
        zeros_BT.masked_scatter(mask_BT, logprobs_M),
        zeros_BT.masked_scatter(mask_BT, entropies_M),
        before(states[0], mask_BT) if hidden else None,
    )


def score_after_contexts(
    model: nn.Module,
    shared: SharedContexts,
    mask_BT: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
    hidden: bool = False,
) -> TokenScores:
    """Compute `score_tokens` with every context read once; the sequences that share it use its keys and values.

    Gradients flow through these keys and values, so they are equal up to rounding.
    """
    given_UP = shared.given_UP.long()
    cache = _empty_cache(model)
    model(
        input_ids=shared.tokens_UP,
        attention_mask=None if shared.given_UP.all() else given_UP,
        position_ids=(given_UP.cumsum(1) - 1).clamp(min=0),
        **{cache_name(model): cache},
        use_cache=True,
        logits_to_keep=1,
    )
    cache.batch_select_indices(shared.of_B)
    own_mask_BR, lengths_B = shared.own_mask_BR, given_UP.sum(1)[shared.of_B]
    columns_R = torch.arange(own_mask_BR.shape[1], device=lengths_B.device)
    scores = score_tokens(
        model,
        shared.own_tokens_BR,
        own_mask_BR,
        temperature,
        entropy_gradient,
        hidden,
        attention_mask=torch.cat([given_UP[shared.of_B], torch.ones_like(own_mask_BR, dtype=torch.long)], 1),
        position_ids=lengths_B[:, None] + columns_R,
        **{cache_name(model): cache},
        use_cache=True,
    )
    # The masked tokens have the same order in both layouts.
    logprobs_BT, entropies_BT = (
        torch.zeros(mask_BT.shape, dtype=scored_BR.dtype, device=mask_BT.device).masked_scatter(
            mask_BT, scored_BR[own_mask_BR]
        )
        for scored_BR in (scores.logprobs_BT, scores.entropies_BT)
    )
    return TokenScores(logprobs_BT, entropies_BT, scores.hidden_MD)


def shares_contexts(model: nn.Module) -> bool:
    """True if a model can continue from a shared context: its cache keeps all keys and values."""
    layers = _empty_cache(model).layers
    return _keeps_logits(model) and bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def _empty_cache(model: nn.Module) -> DynamicCache:
    inner: Any = _unwrap(model)
    return DynamicCache(config=inner.config)


def before(hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Select the hidden states that predict the M masked tokens, in row-major order: (M, D)."""
    hidden_MD: Tensor = hidden_BTD[:, :-1][mask_BT[:, 1:]]
    return hidden_MD


def _score(logits_MV: Tensor, targets_M: Tensor, temperature: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    if temperature != 1:  # dividing by 1 would cost one more pass over all logits
        logits_MV = logits_MV / temperature
    all_MV = torch.log_softmax(logits_MV, -1)
    logprobs_M = all_MV.gather(-1, targets_M[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies_M = -(all_MV.exp() * all_MV).sum(-1)
    return logprobs_M, entropies_M


def _score_in_parts(
    head: nn.Linear, forward: Callable[[], Tensor], wanted_BC: Tensor, targets_M: Tensor, score: Scorer
) -> tuple[Tensor, Tensor] | None:
    """Compute scores in a forward pass whose output layer returns them instead of logits.

    The layer does so inside its own `forward`, where sharded weights are whole. None if the model does more with its
    logits than return them.
    """
    rows = max(1, MAX_LOGITS // head.out_features)
    made: list[Tensor] = []

    def score_rows(hidden_RH: Tensor, targets_R: Tensor) -> tuple[Tensor, Tensor]:
        return score(nn.functional.linear(hidden_RH, head.weight, head.bias), targets_R)

    def score_all(hidden_BCH: Tensor) -> Tensor:
        parts = zip(torch.split(hidden_BCH[wanted_BC], rows), torch.split(targets_M, rows), strict=True)
        scored: list[Any] = [checkpoint(score_rows, *part, use_reentrant=False) for part in parts]
        made.append(torch.stack([torch.cat(values) for values in zip(*scored, strict=True)]))
        return made[0]

    original = head.forward
    head.forward = score_all  # type: ignore[method-assign, assignment]
    try:
        returned = forward()
    finally:
        head.forward = original  # type: ignore[method-assign]
    if len(made) != 1 or returned.data_ptr() != made[0].data_ptr():
        return None
    return returned[0], returned[1]


def output_layer(model: nn.Module) -> nn.Linear | None:
    """Find the layer whose output is the model's unchanged logits; None if there is none."""
    inner: Any = _unwrap(model)
    config = inner.config.to_dict()
    # Settings of models that change logits after this layer.
    if any(config.get(name) for name in ("final_logit_softcapping", "logit_scale", "logits_scaling")):
        return None
    head = inner.get_output_embeddings()
    return head if type(head) is nn.Linear else None


def cache_name(model: nn.Module) -> str:
    """Name of the model's argument for its cache: `cache` in newer versions of `transformers`."""
    return "cache" if "cache" in _arguments(model) else "past_key_values"


def _keeps_logits(model: nn.Module) -> bool:
    return "logits_to_keep" in _arguments(model)


def _arguments(model: nn.Module) -> Iterable[str]:
    return inspect.signature(_unwrap(model).forward).parameters


def _unwrap(model: nn.Module) -> nn.Module:
    """The model without the wrappers of training, which call it `module`."""
    return dict(model.named_children()).get("module", model)
