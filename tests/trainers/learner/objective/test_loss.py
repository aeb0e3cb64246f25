import copy
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learner_harness import OPTIONS, gradient_by_hand, gradients, make_group, plain_logprobs, recorded_gradients
from messages import says
from torch import Tensor
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Group, Rollout, Stream, Turn, UserError
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.objective.loss import loss_denominator, policy_loss
from halfway.trainers.learner.objective.mismatch import effective, lag_sums, mismatch_weights
from halfway.trainers.learner.scoring import token_logprobs

LOW, HIGH = 0.2, 0.28
NORMALIZATIONS = ["token", "sequence", "constant"]


def options(**changes: Any) -> LearnerOptions:
    return replace(LearnerOptions(clip_low=LOW, clip_high=HIGH, normalization_length=50), **changes)


def one_token(ratio: float, advantage: float, **changes: Any) -> tuple[float, float, dict[str, float]]:
    """Loss of a single token, its derivative by the log-probability, and the metrics."""
    logprob = torch.tensor([[-1.5 + np.log(ratio)]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.5]], dtype=torch.float64)
    mask = torch.ones(1, 1, dtype=torch.bool)
    loss, sums = policy_loss(logprob, old, torch.tensor([[advantage]]).double(), mask, options(**changes), 1.0)
    loss.backward()
    return loss.item(), logprob.grad.item(), {name: value.item() for name, value in sums.items()}


def random_batch(seed: int = 0) -> dict[str, Tensor]:
    """Five sequences, masked in the middle too, with ratios on both sides of both clip bounds and of the dual clip."""
    rng = np.random.default_rng(seed)
    mask = rng.random((5, 12)) < 0.6
    mask[:, 3] = True
    old = -rng.exponential(1.0, (5, 12))
    arrays = {
        "logprobs_BT": old + rng.normal(0, 0.6, old.shape),
        "old_logprobs_BT": old,
        "advantages_BT": np.asarray([[0.7], [-0.9], [1.1], [-0.2], [-1.3]]),
        "mask_BT": mask,
        "reference_logprobs_BT": old + rng.normal(0, 0.3, old.shape),
        "entropies_BT": rng.random(old.shape),
    }
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def whole_loss(batch: dict[str, Tensor], settings: LearnerOptions) -> Tensor:
    denominator = loss_denominator(batch["mask_BT"].sum(1).tolist(), settings)
    return policy_loss(**batch, options=settings, denominator=denominator)[0]


def test_at_ratio_one_the_gradient_is_minus_advantage_over_tokens() -> None:
    batch = random_batch()
    logprobs_BT = batch["old_logprobs_BT"].clone().requires_grad_()
    whole_loss(batch | {"logprobs_BT": logprobs_BT}, options()).backward()
    expected_BT = torch.where(batch["mask_BT"], -batch["advantages_BT"] / batch["mask_BT"].sum(), 0)
    assert logprobs_BT.grad is not None
    torch.testing.assert_close(logprobs_BT.grad, expected_BT, rtol=1e-12, atol=0)


# The four branches of the clipped surrogate, both sides of both bounds: ratio, advantage, loss, d loss / d log-ratio.
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "active"),
    [
        (1.0, 2.0, -2.0, -2.0, None),
        (1.2, 2.0, -2.4, -2.4, None),
        (1.27, 2.0, -2.54, -2.54, None),
        (1.5, 2.0, -2.56, 0.0, "clip_high"),
        (0.5, 2.0, -1.0, -1.0, None),
        (0.9, -2.0, 1.8, 1.8, None),
        (0.5, -2.0, 1.6, 0.0, "clip_low"),
        (1.5, -2.0, 3.0, 3.0, None),
        (40.0, -2.0, 80.0, 80.0, None),
    ],
)
def test_branches_of_the_clipped_surrogate(
    ratio: float, advantage: float, loss: float, gradient: float, active: str | None
) -> None:
    actual_loss, actual_gradient, sums = one_token(ratio, advantage)
    assert actual_loss == pytest.approx(loss, rel=1e-12)
    assert actual_gradient == pytest.approx(gradient, rel=1e-12)
    assert {name for name in ("clip_low", "clip_high", "dual_clip") if sums[name]} == ({active} if active else set())
    assert sums["ratio"] == pytest.approx(ratio, rel=1e-6)
    assert sums["approx_kl"] == pytest.approx(ratio - 1 - np.log(ratio), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "active"),
    [
        (2.9, -2.0, 5.8, 5.8, 0),
        (3.5, -2.0, 6.0, 0.0, 1),
        (0.5, -2.0, 1.6, 0.0, 0),
        (3.5, 2.0, -2.56, 0.0, 0),
        (0.1, 2.0, -0.2, -0.2, 0),
    ],
)
def test_dual_clip_bounds_only_the_loss_of_negative_advantages(
    ratio: float, advantage: float, loss: float, gradient: float, active: int
) -> None:
    actual_loss, actual_gradient, sums = one_token(ratio, advantage, dual_clip=3.0)
    assert (actual_loss, actual_gradient) == (pytest.approx(loss, rel=1e-12), pytest.approx(gradient, rel=1e-12))
    assert sums["dual_clip"] == active


def test_a_ratio_beyond_all_bounds_keeps_the_gradient_finite() -> None:
    for logprob in (-1e9, 1e9):
        value = torch.tensor([[logprob]], requires_grad=True)
        loss, _ = policy_loss(
            value,
            torch.zeros(1, 1),
            torch.ones(1, 1),
            torch.ones(1, 1, dtype=torch.bool),
            options(),
            1.0,
            torch.zeros(1, 1),
        )
        loss.backward()
        assert value.grad is not None and torch.isfinite(loss) and torch.isfinite(value.grad).all()


def test_k3_penalty_has_the_closed_form_and_its_gradient() -> None:
    # d/dx [exp(y - x) - 1 - (y - x)] = 1 - exp(y - x); the surrogate vanishes, since the advantage is 0.
    logprob = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([[-1.7, -1.1]], dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    settings = options(kl_coefficient=0.1)
    loss, sums = policy_loss(logprob, logprob.detach(), torch.zeros(1, 1).double(), mask, settings, 2.0, reference)
    loss.backward()
    k3 = np.exp([-0.7, 0.9]) - 1 - np.asarray([-0.7, 0.9])
    assert loss.item() == pytest.approx(0.1 * k3.sum() / 2, rel=1e-12)
    assert sums["reference_kl"].item() == pytest.approx(k3.sum(), rel=1e-6)
    np.testing.assert_allclose(logprob.grad.numpy()[0], 0.1 * (1 - np.exp([-0.7, 0.9])) / 2, rtol=1e-12)


def test_entropy_bonus_lowers_the_loss_by_its_mean() -> None:
    batch = random_batch()
    entropies_BT = batch["entropies_BT"].clone().requires_grad_()
    with_bonus = whole_loss(batch | {"entropies_BT": entropies_BT}, options(entropy_coefficient=0.01))
    with_bonus.backward()
    mean = batch["entropies_BT"][batch["mask_BT"]].mean()
    torch.testing.assert_close(with_bonus.detach(), whole_loss(batch, options()) - 0.01 * mean)
    assert entropies_BT.grad is not None
    expected_BT = -0.01 * batch["mask_BT"].double() / batch["mask_BT"].sum()
    torch.testing.assert_close(entropies_BT.grad, expected_BT)


def by_hand(batch: dict[str, Tensor], settings: LearnerOptions) -> float:
    """The whole loss in plain Python, token by token."""
    arrays = {name: values.numpy() for name, values in batch.items()}
    rows: list[list[float]] = []
    for b, mask_T in enumerate(arrays["mask_BT"]):
        losses = []
        for t in np.flatnonzero(mask_T):
            advantage = arrays["advantages_BT"][b, 0]
            ratio = np.exp(arrays["logprobs_BT"][b, t] - arrays["old_logprobs_BT"][b, t])
            objective = min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)
            if settings.dual_clip and advantage < 0:
                objective = max(objective, settings.dual_clip * advantage)
            q = np.exp(arrays["reference_logprobs_BT"][b, t] - arrays["logprobs_BT"][b, t])
            bonus = settings.entropy_coefficient * arrays["entropies_BT"][b, t]
            losses.append(-objective + settings.kl_coefficient * (q - 1 - np.log(q)) - bonus)
        rows.append(losses)
    return {
        "token": float(np.mean([loss for row in rows for loss in row])),
        "sequence": float(np.mean([np.mean(row) for row in rows])),
        "constant": float(sum(sum(row) for row in rows)) / (len(rows) * settings.normalization_length),
    }[settings.normalization]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(
    "switches", [{}, {"dual_clip": 1.5}, {"kl_coefficient": 0.2}, {"entropy_coefficient": 0.05}], ids=str
)
def test_normalizations_equal_plain_python(normalization: str, switches: dict[str, float]) -> None:
    settings = options(normalization=normalization, **switches)
    assert whole_loss(random_batch(), settings).item() == pytest.approx(by_hand(random_batch(), settings), rel=1e-12)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_sequences_without_a_trained_token_change_nothing(normalization: str) -> None:
    settings, batch = options(normalization=normalization), random_batch()
    longer = {name: torch.cat([values, values[:2]]) for name, values in batch.items()}
    longer["mask_BT"][5:] = False
    assert whole_loss(longer, settings).item() == whole_loss(batch, settings).item()


def test_the_denominator_of_nothing_is_not_zero() -> None:
    assert [loss_denominator([0, 0], options(normalization=name)) for name in NORMALIZATIONS] == [1, 1, 1]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("split", [[0, 1, 5], [0, 2, 3, 4, 5]])
def test_microbatches_add_up_to_the_whole(normalization: str, split: list[int]) -> None:
    settings = options(normalization=normalization, kl_coefficient=0.1, entropy_coefficient=0.01, dual_clip=2.0)
    batch = random_batch()
    denominator = loss_denominator(batch["mask_BT"].sum(1).tolist(), settings)
    whole, whole_sums = policy_loss(**batch, options=settings, denominator=denominator)
    parts = [{n: v[i:j] for n, v in batch.items()} for i, j in pairwise(split)]
    results = [policy_loss(**part, options=settings, denominator=denominator) for part in parts]
    torch.testing.assert_close(sum(loss for loss, _ in results), whole, rtol=1e-13, atol=0)
    for name, value in whole_sums.items():
        torch.testing.assert_close(sum(sums[name] for _, sums in results), value)


def test_nothing_outside_the_mask_reaches_loss_or_gradient() -> None:
    settings = options(kl_coefficient=0.1, entropy_coefficient=0.01, dual_clip=2.0, normalization="sequence")
    batch = random_batch()
    expected = whole_loss(batch, settings)
    for poison in (float("nan"), float("inf"), 1e30):
        poisoned = {
            name: values.masked_fill(~batch["mask_BT"], poison)
            if name.endswith(("probs_BT", "entropies_BT"))
            else values
            for name, values in batch.items()
        }
        poisoned["logprobs_BT"].requires_grad_()
        loss = whole_loss(poisoned, settings)
        loss.backward()
        gradient_BT = poisoned["logprobs_BT"].grad
        assert loss.item() == expected.item()
        assert (gradient_BT[~batch["mask_BT"]] == 0).all() and (gradient_BT[batch["mask_BT"]] != 0).any()


def test_a_nan_inside_the_mask_makes_the_loss_nan() -> None:
    batch = random_batch()
    batch["logprobs_BT"][1, 3] = float("nan")
    assert whole_loss(batch, options(dual_clip=2.0)).isnan()


def trl_loss(batch: dict[str, Tensor], settings: LearnerOptions, loss_type: str) -> Tensor:
    """TRL's own loss function on the same tensors; the stand-ins replace its model and its trainer."""
    trainer_class = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer
    mask_BT = batch["mask_BT"]
    arguments = SimpleNamespace(use_bias_correction_kl=False, delta=settings.dual_clip or None)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (batch["logprobs_BT"], batch["entropies_BT"], None),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        args=arguments,
        aux_loss_enabled=False,
        beta=settings.kl_coefficient,
        current_gradient_accumulation_steps=1,
        entropy_coef=settings.entropy_coefficient,
        epsilon_low=settings.clip_low,
        epsilon_high=settings.clip_high,
        importance_sampling_level="token",
        loss_type=loss_type,
        max_completion_length=settings.normalization_length,
        model=SimpleNamespace(training=False),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_adaptive_entropy=False,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        _entropy_bonus_enabled=settings.entropy_coefficient > 0,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    no_prompt = torch.zeros(len(mask_BT), 0, dtype=torch.int64)
    inputs = {
        "prompt_ids": no_prompt,
        "prompt_mask": no_prompt,
        "completion_ids": torch.zeros(mask_BT.shape, dtype=torch.int64),
        "completion_mask": mask_BT.to(torch.int64),
        "advantages": batch["advantages_BT"][:, 0],
        "old_per_token_logps": batch["old_logprobs_BT"],
        "ref_per_token_logps": batch["reference_logprobs_BT"],
        "num_items_in_batch": mask_BT.sum(),
    }
    loss: Tensor = trainer_class._compute_loss(trainer, None, inputs)
    return loss


@pytest.mark.parametrize(
    ("normalization", "loss_type"),
    [("token", "dapo"), ("token", "bnpo"), ("sequence", "grpo"), ("constant", "dr_grpo")],
)
@pytest.mark.parametrize(
    "switches",
    [{}, {"kl_coefficient": 0.2}, {"dual_clip": 1.5}, {"clip_high": 0.2}, {"kl_coefficient": 0.1, "dual_clip": 2.0}],
    ids=str,
)
def test_loss_and_gradient_are_those_of_trl(normalization: str, loss_type: str, switches: dict[str, float]) -> None:
    settings = options(normalization=normalization, **switches)
    results = []
    for function in (whole_loss, lambda batch, settings: trl_loss(batch, settings, loss_type)):
        batch = random_batch(3)
        batch["logprobs_BT"].requires_grad_()
        loss = function(batch, settings)
        loss.backward()
        results.append((loss.detach(), batch["logprobs_BT"].grad))
    torch.testing.assert_close(*[loss for loss, _ in results], rtol=1e-6, atol=0)
    torch.testing.assert_close(*[gradient for _, gradient in results], rtol=1e-6, atol=1e-12)


def test_entropy_bonus_per_token_is_that_of_trl() -> None:
    settings = options(entropy_coefficient=0.03)
    ours, theirs = whole_loss(random_batch(), settings), trl_loss(random_batch(), settings, "dapo")
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


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


def test_sample_size_and_mismatch_are_reported_for_all_tokens_and_by_lag() -> None:
    weights_BT = torch.tensor([[0, 1.0, 3.0, 0], [0, 2.0, 2.0, 2.0]])
    gaps_BT = torch.tensor([[0, 0.5, -1.5, 0], [0, 0.1, 0.1, -0.1]])
    mask_BT = weights_BT > 0
    sums = lag_sums([0, 2, 5], torch.tensor([[2] * 4, [0] * 4]), mask_BT, gaps_BT, weights_BT)
    sums |= {"mismatch_weight": weights_BT.sum(), "mismatch_square": weights_BT.square().sum()}
    told = effective({name: value.item() / 5 for name, value in sums.items()}, [0, 2, 5])
    expected = {
        "mismatch_weight": 2.0,
        "effective_sample_size": 10**2 / (5 * 22),
        **{"lag_0/tokens": 0.6, "lag_0/engine_gap": 0.1, "lag_0/effective_sample_size": 1.0},
        **{"lag_2/tokens": 0.4, "lag_2/engine_gap": 1.0, "lag_2/effective_sample_size": 4**2 / (2 * 10)},
        **{"lag_5/tokens": 0.0, "lag_5/engine_gap": 0.0, "lag_5/effective_sample_size": 0.0},
    }
    assert told == pytest.approx(expected, rel=1e-6)


def test_an_update_on_late_groups_reports_the_mismatch_of_each_lag(tiny_model: Qwen3ForCausalLM) -> None:
    early, late = shifted_groups(tiny_model, 0.0), [replace(g, lag=3) for g in shifted_groups(tiny_model, 0.25)]
    truncated = replace(OPTIONS, mismatch="token_truncated")
    _, told = gradients(tiny_model, early + late, truncated)
    assert told["lag_0/engine_gap"] == pytest.approx(0.0, abs=1e-5)
    assert told["lag_3/engine_gap"] == pytest.approx(0.25, rel=1e-3)
    assert told["lag_0/tokens"] == told["lag_3/tokens"] == 0.5
    _, told = gradients(tiny_model, shifted_groups(tiny_model, 0.0), truncated)
    assert told["effective_sample_size"] == pytest.approx(1.0) and not [name for name in told if "lag" in name]


@pytest.mark.parametrize("options", [{"old_logprobs": "engine"}, {"mismatch": "token_truncated"}, {"num_epochs": 3}])
def test_the_engines_gap_is_the_learners_own_and_of_tokens_that_are_not_late(
    tiny_model: Qwen3ForCausalLM, options: dict[str, Any]
) -> None:
    wrong, late = shifted_groups(tiny_model, 0.25), [replace(g, lag=3) for g in shifted_groups(tiny_model, 4.0)]
    _, told = gradients(tiny_model, wrong + late, replace(OPTIONS, **options))
    assert told["engine_gap"] == pytest.approx(0.25, rel=1e-3)
    _, told = gradients(tiny_model, late, replace(OPTIONS, **options))
    assert "engine_gap" not in told


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
    with pytest.raises(UserError, match=says("learner.mismatch", "'token_masked'", "old_logprobs=learner")):
        LearnerOptions(mismatch="token_masked", old_logprobs="engine")


VERSIONS, LEARNERS = ((0, 2), (1, 3)), 2  # two tokens of a response by the first weights, three by the second


def perturbed(model: Qwen3ForCausalLM, size: float, seed: int) -> Qwen3ForCausalLM:
    """The model as it may have been some updates ago."""
    torch.manual_seed(seed)
    earlier = copy.deepcopy(model)
    with torch.no_grad():
        for values in earlier.parameters():
            values += size * torch.randn_like(values)
    return earlier


def late_group(earlier: list[Qwen3ForCausalLM]) -> Group:
    """Two rollouts whose beginning the first of the earlier weights sampled, and whose end the second."""
    rollouts = []
    for i in range(2):
        tokens = [20 + i, 8, 21 + i, 30, 22]
        with torch.no_grad():
            rows = [plain_logprobs(model, [4, 5, 6, *tokens])[3:] for model in earlier]
        engine_T = torch.cat([rows[0][:2], rows[1][2:]]).numpy()
        turn = Turn(np.asarray(tokens, np.int32), engine_T, engine_T, 0, "end", spans=VERSIONS)
        rollouts.append(Rollout((turn,), i == 0))
    return replace(make_group([4, 5, 6], rollouts), lag=LEARNERS)


@pytest.mark.parametrize("kind", ["token_truncated", "token_masked"])
@pytest.mark.parametrize("epochs", [1, 2], ids=["one_step", "decoupled"])
def test_the_gradient_on_tokens_of_two_earlier_versions_has_the_closed_form(
    tiny_model: Qwen3ForCausalLM, kind: Any, epochs: int
) -> None:
    """With one step the ratio to the weights before is 1; in a second epoch it is decoupled PPO."""
    tiny_model.double()
    group = late_group([perturbed(tiny_model, 0.03, 0), perturbed(tiny_model, 0.015, 1)])
    settings = replace(OPTIONS, mismatch=kind, mismatch_cap=1.3, mismatch_floor=0.7, lr=0.02, max_grad_norm=0.0)
    settings = replace(settings, num_epochs=epochs)
    trained = PolicyGradientLearner(copy.deepcopy(tiny_model), settings, 0)
    models: list[Any] = []
    original, seen = trained._step, recorded_gradients(trained._backend.optimizer, trained.policy)

    def step(*arguments: Any) -> dict[str, float]:
        models.append(copy.deepcopy(trained.policy))
        return original(*arguments)

    trained._step = step  # type: ignore[method-assign]
    told = trained.update([group], Stream(0))
    expected = gradient_by_hand(models[-1], tiny_model, group, settings)
    for name, values in expected.items():
        torch.testing.assert_close(seen[name], values, rtol=1e-6, atol=1e-9)
    assert 0 < told["mismatch_bounded"] < 1 and told["lag_1/tokens"] == 0.6 and told["lag_2/tokens"] == 0.4
    assert (told["ratio"] == 1.0) == (epochs == 1)
