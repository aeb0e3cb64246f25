from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learner_harness import OPTIONS, gradients, make_group
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Group, Rollout, Turn, UserError
from halfway.trainers.learner.objective.mismatch import mismatch_weights
from halfway.trainers.learner.options import LearnerOptions
from halfway.trainers.learner.scoring import token_logprobs

# Ratios learner / engine of two sequences; the first token of each is context, with a ratio that must not matter.
RATIOS = [[100.0, 0.4, 1.0, 3.0], [0.01, 0.9, 1.25, 1.0]]
MASK_BT = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 0]]).bool()


def weights(kind: Any, cap: float = 2.0, floor: float = 0.5) -> tuple[list[list[float]], dict[str, float]]:
    settings = LearnerOptions(mismatch=kind, mismatch_cap=cap, mismatch_floor=floor)
    engine_BT = torch.full((2, 4), -1.5, dtype=torch.float64)
    learner_BT = (engine_BT + torch.tensor(RATIOS, dtype=torch.float64).log()).requires_grad_()
    weights_BT, sums = mismatch_weights(learner_BT, engine_BT, MASK_BT, settings)
    assert not weights_BT.requires_grad
    return weights_BT.tolist(), {name: value.item() for name, value in sums.items()}


@pytest.mark.parametrize(
    ("kind", "cap", "floor", "expected", "bounded"),
    [
        ("token_truncated", 2.0, 0.5, [[0, 0.4, 1, 2], [0, 0.9, 1.25, 0]], 1),
        ("token_masked", 2.0, 0.5, [[0, 0, 1, 0], [0, 0.9, 1.25, 0]], 2),
        ("token_masked", 4.0, 0.0, [[0, 0.4, 1, 3], [0, 0.9, 1.25, 0]], 0),
        ("sequence_truncated", 2.0, 0.5, [[0, 1.2, 1.2, 1.2], [0, 1.125, 1.125, 0]], 0),
        ("sequence_truncated", 1.15, 0.5, [[0, 1.15, 1.15, 1.15], [0, 1.125, 1.125, 0]], 3),
        ("sequence_masked", 1.15, 0.5, [[0, 0, 0, 0], [0, 1.125, 1.125, 0]], 3),
        ("sequence_masked", 2.0, 1.0, [[0, 1.2, 1.2, 1.2], [0, 1.125, 1.125, 0]], 0),
    ],
)
def test_weights_have_the_closed_form(
    kind: str, cap: float, floor: float, expected: list[list[float]], bounded: int
) -> None:
    actual, sums = weights(kind, cap, floor)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert sums["mismatch_bounded"] == bounded
    assert sums["mismatch_weight"] == pytest.approx(np.sum(expected), rel=1e-6)


def test_the_kl_estimate_is_that_of_the_tokens_in_the_loss() -> None:
    in_loss = np.asarray([0.4, 1.0, 3.0, 0.9, 1.25])
    _, sums = weights("sequence_masked")
    assert sums["mismatch_kl"] == pytest.approx((in_loss - 1 - np.log(in_loss)).sum(), rel=1e-6)


def shifted_groups(model: Qwen3ForCausalLM, shift: float) -> list[Group]:
    """Two rollouts behind a prefix, their engine log-probabilities below the learner's by a constant."""
    rollouts = []
    for i in range(2):
        tokens_T = np.asarray([7, 8, 20 + i, 21 + i, 22], np.int32)
        read_BT = torch.tensor([[4, 5, 6, *tokens_T.tolist()]])
        with torch.no_grad():
            logprobs_BT, _ = token_logprobs(model, read_BT, torch.arange(8)[None] >= 3)
        engine_T = logprobs_BT[0, 3:].numpy() - shift
        engine_T[:2] = 50.0  # at replayed tokens, where it would dominate everything
        rollouts.append(Rollout((Turn(tokens_T, engine_T, engine_T, 0, "end", 2),), i == 0))
    return [make_group([4, 5, 6], rollouts)]


@pytest.mark.parametrize(
    ("kind", "shift", "factor"),
    [
        ("none", 0.3, 1.0),
        ("token_truncated", 0.3, np.exp(0.3)),
        ("token_truncated", 0.9, 2.0),
        ("token_masked", 0.9, 0.0),
        ("token_masked", -0.5, np.exp(-0.5)),
        ("sequence_truncated", 0.2, np.exp(0.6)),  # three tokens are in the loss
        ("sequence_masked", 0.3, 0.0),
    ],
)
def test_the_gradient_of_an_update_is_weighted(
    tiny_model: Qwen3ForCausalLM, kind: Any, shift: float, factor: float
) -> None:
    tiny_model.double()
    groups = shifted_groups(tiny_model, shift)
    plain, _ = gradients(tiny_model, groups, OPTIONS)
    actual, metrics = gradients(tiny_model, groups, replace(OPTIONS, mismatch=kind))
    for name, values in plain.items():
        torch.testing.assert_close(actual[name], factor * values, rtol=1e-4, atol=1e-6)
    assert metrics.get("mismatch_weight", 1.0) == pytest.approx(factor, rel=1e-6)
    assert metrics["engine_gap"] == pytest.approx(abs(shift), rel=1e-6)


def test_correction_and_engine_denominator_exclude_each_other() -> None:
    with pytest.raises(UserError, match=r"^learner.mismatch: 'token_masked' .*old_logprobs=learner"):
        LearnerOptions(mismatch="token_masked", old_logprobs="engine")
