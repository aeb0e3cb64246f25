"""Groups that do not train by their rewards alone: weighed, advised, stored, extended, hinted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_harness import PAD, assert_close, gradients, make_group, make_turn, plain_logprobs
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Group, Origin, Problem, Request, Rollout, Turn, UserError
from halfway.curriculum.prefix import hint_of
from halfway.trainers.learner.batch import WEIGHED_OUT, make_batch
from halfway.trainers.learner.microbatches import pad
from halfway.trainers.learner.options import CriticOptions, LearnerOptions

OPTIONS = LearnerOptions(lr=1e-3)
PROMPT = [3, 4, 5]
RESPONSES = [[7, 8, 9], [10, 11], [12, 13, 14, 15], [16]]


def group_of(successes: Sequence[bool], replayed: int = 0) -> Group:
    made = [Rollout((make_turn(tokens, replayed),), ok) for tokens, ok in zip(RESPONSES, successes, strict=False)]
    return make_group(PROMPT, made)


def expected(
    model: Qwen3ForCausalLM, terms: Sequence[tuple[Sequence[int], Sequence[float], Sequence[float]]], tokens: int
) -> dict[str, torch.Tensor]:
    """The gradient of -sum over tokens of coefficient x log-probability / number of tokens.

    Args:
        terms: response tokens, coefficient of each, and which of them count (1 or 0).
    """
    model.zero_grad()
    for response, factors, counts in terms:
        logprobs_T = plain_logprobs(model, PROMPT + list(response))[len(PROMPT) :]
        loss = -(logprobs_T * torch.as_tensor(factors) * torch.as_tensor(counts)).sum() / tokens
        loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_weights_scale_advantages_and_zero_takes_a_rollout_out_of_the_loss(tiny_model: Qwen3ForCausalLM) -> None:
    group = group_of([True, False, False, False]).weighed([1.0, 0.5, 0.0, 2.0])
    batch = make_batch([group], OPTIONS)
    assert batch.left_out[WEIGHED_OUT] == 1
    # The baseline is of all four: one success of four has 1, a failure -1/3 (leave one out).
    assert pad(batch.sequences, PAD).advantages_BT[:, 0].tolist() == pytest.approx([1.0, -1 / 6, -2 / 3])
    seen, _ = gradients(tiny_model, [group], OPTIONS)
    terms = [([7, 8, 9], [1.0] * 3, [1] * 3), ([10, 11], [-1 / 6] * 2, [1] * 2), ([16], [-2 / 3], [1])]
    assert_close(seen, expected(tiny_model, terms, tokens=6), 1e-4)


def test_all_ones_train_as_no_weights_do(tiny_model: Qwen3ForCausalLM) -> None:
    plain = group_of([True, False, True, False])
    left, _ = gradients(tiny_model, [plain], OPTIONS)
    right, _ = gradients(tiny_model, [plain.weighed([1.0] * 4)], OPTIONS)
    assert_close(left, right, 1e-7)


def test_a_degenerate_group_trains_with_the_advantages_given_token_by_token(tiny_model: Qwen3ForCausalLM) -> None:
    failed = group_of([False, False])
    assert not failed.teaches
    given = (np.asarray([-0.1, -0.2, -0.3]), np.asarray([0.4, 0.0]))
    advised = failed.advised(advantages_NT=given)
    assert advised.teaches and not advised.weighed([0.0, 0.0]).teaches
    mixed = group_of([True, False])
    seen, _ = gradients(tiny_model, [advised, mixed], OPTIONS)
    terms = [(RESPONSES[i], given[i], [1] * len(RESPONSES[i])) for i in range(2)]
    terms += [([7, 8, 9], [1.0] * 3, [1] * 3), ([10, 11], [-1.0] * 2, [1] * 2)]
    assert_close(seen, expected(tiny_model, terms, tokens=10), 1e-4)


def test_advantages_of_rollouts_replace_the_learner_s(tiny_model: Qwen3ForCausalLM) -> None:
    seen, _ = gradients(tiny_model, [group_of([True, True]).advised(np.asarray([0.25, -0.5]))], OPTIONS)
    terms = [([7, 8, 9], [0.25] * 3, [1] * 3), ([10, 11], [-0.5] * 2, [1] * 2)]
    assert_close(seen, expected(tiny_model, terms, tokens=5), 1e-4)


def test_advantages_and_a_critic_are_refused_together() -> None:
    options = replace(OPTIONS, advantage="gae", critic=CriticOptions())
    with pytest.raises(UserError, match=r"learner\.advantage: 'gae' is not acceptable; a controller gives advantages"):
        make_batch([group_of([True, True]).advised(np.zeros(2))], options)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_stored_group_keeps_the_policy_that_wrote_it_as_its_denominator(
    tiny_model: Qwen3ForCausalLM, minibatches: int
) -> None:
    options = replace(OPTIONS, num_minibatches=minibatches, lr=1e-30)
    fresh = group_of([True, False])
    with torch.no_grad():
        now = [plain_logprobs(tiny_model, PROMPT + tokens)[3:].numpy() for tokens in RESPONSES[2:]]
    # The policy that wrote them thought each token less likely by a tenth: all ratios are 1.1, inside the clip range.
    old = [values - np.float32(np.log(1.1)) for values in now]
    rollouts = tuple(
        Rollout((Turn(np.asarray(t, np.int32), lp, -lp, policy_version=0),), ok)
        for t, lp, ok in zip(RESPONSES[2:], old, (True, False), strict=True)
    )
    written = replace(make_group(PROMPT, list(rollouts)))
    stored = replace(written, request=Request(Problem("p", "", ""), 2, Origin.STORED, stored=written))
    seen, metrics = gradients(tiny_model, [fresh, stored], options)
    tokens = 10
    assert metrics["ratio"] == pytest.approx((5 * 1.0 + 5 * 1.1) / tokens, rel=1e-5)
    if minibatches == 1:
        terms = [([7, 8, 9], [1.0] * 3, [1] * 3), ([10, 11], [-1.0] * 2, [1] * 2)]
        terms += [(RESPONSES[2], [1.1] * 4, [1] * 4), (RESPONSES[3], [-1.1], [1])]
        assert_close(seen, expected(tiny_model, terms, tokens), 1e-4)


def test_a_group_written_by_two_policies_trains_like_any_other(tiny_model: Qwen3ForCausalLM) -> None:
    first, more = group_of([True, False]), group_of([True, False, False, False])
    whole = replace(more, rollouts=first.rollouts + more.rollouts[2:])
    seen, _ = gradients(tiny_model, [whole], OPTIONS)
    terms = [(RESPONSES[i], [(1.0, -1 / 3)[i > 0]] * len(RESPONSES[i]), [1] * len(RESPONSES[i])) for i in range(4)]
    assert_close(seen, expected(tiny_model, terms, tokens=10), 1e-4)


def test_no_gradient_reaches_a_hint(tiny_model: Qwen3ForCausalLM) -> None:
    """The first token of each response is the hint's: context of the loss, and no part of it."""
    hint = hint_of(Problem("p", "", "", solution="ab"), 1)
    plain = group_of([True, False, False], replayed=1)
    group = replace(plain, request=replace(plain.request, hint=hint, origin=Origin.HINTED))
    batch = make_batch([group], OPTIONS)
    assert [sequence.mask_T.tolist().index(True) for sequence in batch.sequences] == [4, 4, 4]
    assert [sequence.num_trained for sequence in batch.sequences] == [2, 1, 3]
    seen, metrics = gradients(tiny_model, [group], OPTIONS)
    assert metrics["tokens"] == 6
    terms = [
        (RESPONSES[i], [(1.0, -0.5)[i > 0]] * len(RESPONSES[i]), [0] + [1] * (len(RESPONSES[i]) - 1)) for i in range(3)
    ]
    assert_close(seen, expected(tiny_model, terms, tokens=6), 1e-4)
