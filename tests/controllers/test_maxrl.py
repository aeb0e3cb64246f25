"""MaxRL's advantages against their closed form, and what they weigh in the loss."""

import numpy as np
import pytest
from controller_harness import group, problem_set

from halfway.controllers.maxrl import MaxRL
from halfway.curriculum import Group, Stream
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.options import LearnerOptions

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
def test_a_degenerate_group_is_left_alone(passed: int) -> None:
    assert weighed(passed).weights is None


def test_an_empty_group_is_left_alone() -> None:
    assert MaxRL().weigh([group(PROBLEM, 0, 0)], None, Stream(0))[0].weights is None


def test_the_advantages_reach_the_loss() -> None:
    batch = make_batch([weighed(2)], LearnerOptions())
    assert sorted({sequence.advantage for sequence in batch.sequences}) == pytest.approx([-1.0, 3.0])
