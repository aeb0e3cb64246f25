"""Fewer rollouts train: PODS' most varied rollouts, and VCRL's groups."""

import numpy as np
import pytest
from controller_harness import group, problem_set

from halfway.controllers.downsample import Downsample
from halfway.controllers.vcrl import Vcrl
from halfway.curriculum import Stream

PROBLEMS = problem_set(4)


def test_the_most_varied_rollouts_train_with_the_statistics_of_their_own() -> None:
    (made,) = Downsample(keep=0.5).weigh([group(PROBLEMS[0], 1)], None, Stream(0))
    places = np.flatnonzero(made.weights_N)
    assert len(places) == 4 and 7 in places  # the only success is the last
    assert made.weights is not None and made.weights.advantages_N is not None
    assert made.weights.advantages_N[places] == pytest.approx([-0.5, -0.5, -0.5, 1.5], abs=1e-4)
    assert made.weights.advantages_N.sum() == pytest.approx(0, abs=1e-9)


def test_with_the_groups_baseline_only_the_weights_change() -> None:
    (made,) = Downsample(baseline="group").weigh([group(PROBLEMS[0], 3)], None, Stream(0))
    assert made.weights is not None and not made.weights.steers
    passed = [made.rollouts[i].success for i in np.flatnonzero(made.weights_N)]
    assert sorted(passed) == [False, True]


def test_degenerate_and_small_groups_stay_as_they_are() -> None:
    for whole in (group(PROBLEMS[0], 0), group(PROBLEMS[0], 8), group(PROBLEMS[0], 1, 2)):
        assert Downsample().weigh([whole], None, Stream(0))[0] is whole


def test_groups_that_vary_too_little_are_declined_and_the_threshold_rises() -> None:
    vcrl = Vcrl()
    groups = [group(PROBLEMS[0], passed) for passed in range(9)]

    def trained(step: int) -> list[int]:
        state = vcrl.init(PROBLEMS)
        state = vcrl.observe(state, groups[:4], step - 1) if step else state
        return [g.num_passed for g in vcrl.weigh(groups, state, Stream(0)) if g.weights_N.any()]

    assert trained(0) == trained(19) == [1, 2, 3, 4, 5, 6, 7]
    assert trained(20) == trained(500) == [3, 4, 5]


def test_the_score_and_the_share_kept_are_reported() -> None:
    vcrl = Vcrl()
    state = vcrl.observe(vcrl.init(PROBLEMS), [group(PROBLEMS[0], 4), group(PROBLEMS[1], 0)], 0)
    assert vcrl.metrics(state) == {"score": 0.5, "kept": 0.5}
