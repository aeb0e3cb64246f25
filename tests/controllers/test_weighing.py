"""Controllers that weigh groups: `maxrl`, `signal`."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from controller_harness import group, problem_set, rollout

from halfway.controllers.contrib.signal import Signal
from halfway.controllers.maxrl import MaxRL
from halfway.curriculum import Group, Rollout, Stream, Turn
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.learner_options import LearnerOptions

(PROBLEM,) = problem_set(1)


def weighed(passed: int, size: int = 8, cap: float = 100.0) -> Group:
    return MaxRL(cap).weigh([group(PROBLEM, passed, size)], None, Stream(0))[0]


@pytest.mark.parametrize(("passed", "size"), [(1, 8), (4, 8), (7, 8), (2, 5)])
def test_a_success_gets_failures_over_successes_and_a_failure_minus_one(passed: int, size: int) -> None:
    weights = weighed(passed, size).weights
    assert weights is not None and weights.advantages_N is not None
    expected = [(size - passed) / passed] * passed + [-1.0] * (size - passed)
    assert sorted(weights.advantages_N) == pytest.approx(sorted(expected))
    assert np.abs(weights.advantages_N).sum() == pytest.approx(2 * (size - passed))


def test_the_cap_bounds_rare_successes_only() -> None:
    rare, common = weighed(1, cap=4.0).weights, weighed(4, cap=4.0).weights
    assert rare is not None and rare.advantages_N is not None and rare.advantages_N.max() == 4.0
    assert common is not None and common.advantages_N is not None and common.advantages_N.max() == pytest.approx(1.0)


@pytest.mark.parametrize("passed", [0, 8])
def test_a_zero_variance_group_is_left_alone(passed: int) -> None:
    assert weighed(passed).weights is None


def test_an_empty_group_is_left_alone() -> None:
    assert MaxRL().weigh([group(PROBLEM, 0, 0)], None, Stream(0))[0].weights is None


def test_the_advantages_reach_the_loss() -> None:
    batch = make_batch([weighed(2)], LearnerOptions())
    assert sorted({sequence.advantage for sequence in batch.sequences}) == pytest.approx([-1.0, 3.0])


def with_entropies(success: bool, entropies: list[float], replayed: int = 0) -> Rollout:
    size = len(entropies)
    turn = Turn(np.arange(size, dtype=np.int32), np.zeros(size, np.float32), np.asarray(entropies, np.float32), 0)
    return Rollout((replace(turn, num_replayed=replayed),), success)


def advised(kind: Any, *rollouts: Rollout, **options: Any) -> Group:
    made = group(PROBLEM, 0, len(rollouts), rollouts=rollouts)
    return Signal(kind=kind, **options).weigh([made], None, Stream(0))[0]


def test_certain_tokens_of_a_success_gain_least_and_of_a_failure_lose_most() -> None:
    passed = advised("rl_zvp", with_entropies(True, [0.5, 2.0, 0.0]), with_entropies(True, [1.0]))
    assert passed.weights is not None and passed.weights.advantages_NT is not None
    assert passed.weights.advantages_NT[0] == pytest.approx([0.05, 0.2, 0.0])
    failed = advised("rl_zvp", with_entropies(False, [0.5, 2.0, 0.0]), with_entropies(False, [1.0]), alpha=0.2)
    assert failed.weights is not None and failed.weights.advantages_NT is not None
    assert failed.weights.advantages_NT[0] == pytest.approx([-0.3, 0.0, -0.4])
    assert failed.weights.advantages_NT[1] == pytest.approx([0.0])
    assert passed.teaches and failed.teaches


def test_replayed_tokens_have_no_advantage_and_no_say() -> None:
    made = advised("rl_zvp", *[with_entropies(False, [9.0, 9.0, 1.0, 0.5], replayed=2)] * 2)
    assert made.weights is not None and made.weights.advantages_NT is not None
    assert made.weights.advantages_NT[0] == pytest.approx([0.0, -0.05])
    batch = make_batch([made], LearnerOptions())
    assert batch.sequences[0].advantages_T[batch.sequences[0].mask_T] == pytest.approx([0.0, -0.05])  # type: ignore[index]


def test_other_groups_keep_the_learners_advantages() -> None:
    mixed = group(PROBLEM, 3)
    assert Signal().weigh([mixed], None, Stream(0))[0] is mixed
    empty = replace(mixed, rollouts=())
    assert Signal(kind="ngrpo").weigh([empty], None, Stream(0))[0] is empty


@pytest.mark.parametrize(("passed", "size", "virtual"), [(0, 8, 1), (3, 8, 1), (0, 4, 2), (7, 8, 1)])
def test_virtual_rewards_are_in_mean_and_deviation(passed: int, size: int, virtual: int) -> None:
    made = advised("ngrpo", *[rollout(i < passed) for i in range(size)], virtual=virtual)
    share, count = (passed + virtual) / (size + virtual), size + virtual
    deviation = np.sqrt(share * (1 - share) * count / (count - 1))
    expected = [((i < passed) - share) / deviation for i in range(size)]
    assert made.weights is not None
    assert made.weights.advantages_N == pytest.approx(expected, abs=1e-4)
    assert made.teaches


def test_a_group_that_all_passed_stays_without_signal_under_virtual_rewards() -> None:
    made = advised("ngrpo", *[rollout(True)] * 4)
    assert made.weights is None and not made.teaches


def test_entropies_are_needed_only_by_the_kind_that_reads_them() -> None:
    assert Signal().needs == {"weights", "entropies"} and Signal(kind="ngrpo").needs == {"weights"}
