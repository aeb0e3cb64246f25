import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learner_harness import gae_by_definition

from halfway.trainers.learner.batch import TrainingSequence
from halfway.trainers.learner.gae import gae, with_targets
from halfway.trainers.learner.learner_options import CriticOptions
from halfway.trainers.learner.objective.advantages import advantages


def group(num: int, passed: int) -> list[bool]:
    return [i < passed for i in range(num)]


@pytest.mark.parametrize(("num", "passed"), [(2, 1), (8, 1), (8, 4), (8, 7), (5, 2), (16, 3)])
def test_leave_one_out_has_the_closed_form(num: int, passed: int) -> None:
    advantages_N = advantages(group(num, passed))
    np.testing.assert_allclose(advantages_N[:passed], (num - passed) / (num - 1), rtol=1e-14)
    np.testing.assert_allclose(advantages_N[passed:], -passed / (num - 1), rtol=1e-14)
    np.testing.assert_allclose(np.mean(advantages_N**2), passed * (num - passed) / (num - 1) ** 2, rtol=1e-14)


def test_energy_of_groups_of_eight_is_the_published_one() -> None:
    energies = [round(float(np.mean(advantages(group(8, k)) ** 2)), 3) for k in range(9)]
    assert energies == [0, 0.143, 0.245, 0.306, 0.327, 0.306, 0.245, 0.143, 0]


def test_mean_baseline_gives_the_values_by_hand() -> None:
    np.testing.assert_allclose(advantages([1, 0, 0, 0], "mean"), [0.75, -0.25, -0.25, -0.25], rtol=1e-15)
    np.testing.assert_allclose(np.mean(advantages(group(8, 3), "mean") ** 2), 3 * 5 / 64, rtol=1e-14)


def test_division_by_the_sample_standard_deviation_by_hand() -> None:
    # Sum of squares about the mean 1/4 is 9/16 + 3/16 = 3/4, over three degrees of freedom 1/4, its root 1/2.
    expected_N = np.asarray([0.75, -0.25, -0.25, -0.25]) / (0.5 + 1e-4)
    np.testing.assert_allclose(advantages([1, 0, 0, 0], "mean", divide_by_std=True), expected_N, rtol=1e-14)
    np.testing.assert_allclose(
        advantages([1, 0, 0, 0], divide_by_std=True), np.asarray([1, -1 / 3, -1 / 3, -1 / 3]) / (0.5 + 1e-4)
    )


@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_leave_one_out_is_the_mean_of_the_others_and_sums_to_zero(rewards: list[bool]) -> None:
    values_N = np.asarray(rewards, float)
    others_N = np.asarray([np.delete(values_N, i).mean() for i in range(len(values_N))])
    loo_N = advantages(rewards)
    np.testing.assert_allclose(loo_N, values_N - others_N, atol=1e-14)
    assert abs(loo_N.sum()) < 1e-12
    np.testing.assert_allclose(
        advantages(rewards, "mean"), loo_N * (len(rewards) - 1) / len(rewards), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("baseline", ["leave_one_out", "mean"])
@pytest.mark.parametrize("divide_by_std", [False, True])
@pytest.mark.parametrize("num", [2, 3, 7, 8])
def test_a_zero_variance_group_has_zero_advantages_exactly(num: int, baseline: str, divide_by_std: bool) -> None:
    for passed in (0, num):
        assert advantages(group(num, passed), baseline, divide_by_std).tolist() == [0.0] * num  # type: ignore[arg-type]


@pytest.mark.parametrize("num", [0, 1])
def test_fewer_than_two_rewards_are_refused(num: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 rewards, not {num}"):
        advantages([1] * num)


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_trl_computes_the_same_with_the_mean_baseline(divide_by_std: bool) -> None:
    utils = pytest.importorskip("trl.trainer.utils")
    rewards_GN = torch.tensor([group(8, 1), group(8, 4), group(8, 6)], dtype=torch.float64)
    expected_GN = rewards_GN - torch.nanmean(rewards_GN, dim=1, keepdim=True)
    if divide_by_std:  # TRL: scale_rewards="group"
        expected_GN = expected_GN / (utils.nanstd(rewards_GN, dim=1, keepdim=True) + 1e-4)
    actual_GN = [advantages(rewards_N, "mean", divide_by_std) for rewards_N in rewards_GN.numpy()]
    np.testing.assert_allclose(actual_GN, expected_GN.numpy(), rtol=1e-6)  # nanstd is partly in float32


# Advantages and returns of a critic: closed forms, and a plain double loop.


shares = st.floats(0, 1, allow_nan=False)
value_lists = st.lists(st.floats(-2, 2, allow_nan=False), min_size=1, max_size=25)


def sequence(mask: list[int], reward: float) -> TrainingSequence:
    zeros_T = np.zeros(len(mask), np.float32)
    return TrainingSequence(np.arange(len(mask), dtype=np.int32), np.asarray(mask, bool), 0.0, zeros_T, reward=reward)


@given(value_lists, st.sampled_from([0.0, 1.0]), shares, shares)
def test_gae_is_the_sum_of_its_definition(values: list[float], reward: float, gamma: float, gae_lambda: float) -> None:
    expected_K = gae_by_definition(values, reward, gamma, gae_lambda)
    np.testing.assert_allclose(gae(np.asarray(values), reward, gamma, gae_lambda), expected_K, rtol=1e-9, atol=1e-12)


@given(value_lists, shares)
def test_at_lambda_one_the_advantage_is_the_discounted_reward_minus_the_value(
    values: list[float], gamma: float
) -> None:
    values_K = np.asarray(values)
    to_go_K = gamma ** np.arange(len(values) - 1, -1, -1.0)
    np.testing.assert_allclose(gae(values_K, 1.0, gamma, 1.0), to_go_K - values_K, atol=1e-12)


@given(value_lists, shares)
def test_at_lambda_zero_the_advantage_is_one_temporal_difference(values: list[float], gamma: float) -> None:
    values_K = np.asarray(values)
    expected_K = [gamma * after - value for value, after in zip(values, [*values[1:], 0.0], strict=True)]
    expected_K[-1] += 1.0
    np.testing.assert_allclose(gae(values_K, 1.0, gamma, 0.0), expected_K, atol=1e-12)


def test_the_advantages_of_a_short_rollout_by_hand() -> None:
    # d = (0.5 x 0.4 - 0.2, 0.5 x 0.6 - 0.4, 1 - 0.6) = (0, -0.1, 0.4), each carried back with 0.5 x 0.8 = 0.4.
    np.testing.assert_allclose(gae(np.asarray([0.2, 0.4, 0.6]), 1.0, 0.5, 0.8), [0.024, 0.06, 0.4], rtol=1e-12)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_with_values_of_zero_every_token_gets_the_reward_to_go(reward: float) -> None:
    options = CriticOptions(gamma=1.0, gae_lambda=1.0, whiten=False)
    [filled], metrics = with_targets([sequence([0, 1, 1, 0, 1], reward)], [np.zeros(5)], options)
    assert filled.advantages_T.tolist() == filled.returns_T.tolist() == [0, reward, reward, 0, reward]
    assert filled.values_T.tolist() == [0] * 5
    assert metrics == {"value": 0.0, "return": reward, "explained_variance": 0.0}


def test_tokens_of_others_are_neither_in_the_recursion_nor_in_the_whitening() -> None:
    """Prompt, replayed tokens and observations have values too; nothing may depend on them."""
    options = CriticOptions(gamma=0.9, gae_lambda=0.8)
    masks, rewards = [[0, 0, 1, 1, 0, 0, 1], [0, 1, 0, 1]], [1.0, 0.0]
    own = [[0.3, 0.5, 0.7], [0.2, 0.1]]
    whole = []
    for number in (0.0, 1e6):
        values = [np.full(len(mask), number) for mask in masks]
        for values_T, mask, values_K in zip(values, masks, own, strict=True):
            values_T[np.asarray(mask, bool)] = values_K
        sequences = [sequence(mask, reward) for mask, reward in zip(masks, rewards, strict=True)]
        whole.append(with_targets(sequences, values, options))
    (filled, metrics), (same, same_metrics) = whole
    assert metrics == same_metrics
    estimated = [gae_by_definition(values, reward, 0.9, 0.8) for values, reward in zip(own, rewards, strict=True)]
    mean, std = np.mean(np.concatenate(estimated)), np.std(np.concatenate(estimated))
    for left, right, mask, raw_K, values_K in zip(filled, same, masks, estimated, own, strict=True):
        for name, expected_K in (
            ("advantages_T", (np.asarray(raw_K) - mean) / std),
            ("returns_T", np.asarray(raw_K) + values_K),
            ("values_T", np.asarray(values_K)),
        ):
            actual_T = getattr(left, name)
            np.testing.assert_array_equal(actual_T, getattr(right, name))
            np.testing.assert_allclose(actual_T[np.asarray(mask, bool)], expected_K, rtol=1e-6)
            assert not actual_T[~np.asarray(mask, bool)].any()


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant_one() -> None:
    options = CriticOptions(gae_lambda=1.0)
    sequences = [sequence([0, 1, 1], 1.0), sequence([0, 1, 1], 0.0)]
    perfect = [np.asarray([0, 1.0, 1.0]), np.asarray([0, 0.0, 0.0])]
    assert with_targets(sequences, perfect, options)[1]["explained_variance"] == 1
    assert with_targets(sequences, [np.full(3, 0.5)] * 2, options)[1]["explained_variance"] == pytest.approx(0)
    wrong = with_targets(sequences, perfect[::-1], options)[1]["explained_variance"]
    assert wrong == pytest.approx(-3)  # the error is +-1 where the return is 1/2 +- 1/2


def test_equal_advantages_whiten_to_zero() -> None:
    [filled], _ = with_targets([sequence([0, 1, 1], 1.0)], [np.zeros(3)], CriticOptions())
    assert np.abs(filled.advantages_T).max() < 1e-9
