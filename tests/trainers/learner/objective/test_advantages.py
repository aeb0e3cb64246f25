import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
def test_a_degenerate_group_has_zero_advantages_exactly(num: int, baseline: str, divide_by_std: bool) -> None:
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
