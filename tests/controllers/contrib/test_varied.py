"""Training on the most varied rewards: the presets `lilo`, `vcrl` and `downsample`, and combined rules."""

import numpy as np
import pytest
from controller_harness import group, problem_set

from halfway.controllers.contrib.varied import Downsample, Lilo, Ragen, VariedState, Vcrl, find_tail
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Origin, Request, Session, Stream, chain

PROBLEMS, SOME = problem_set(4), problem_set(16)


def test_the_most_varied_rollouts_train_with_the_statistics_of_their_own() -> None:
    (made,) = Downsample(keep=0.5).weigh([group(PROBLEMS[0], 1)], VariedState(PROBLEMS), Stream(0))
    places = np.flatnonzero(made.weights_N)
    assert len(places) == 4 and 7 in places  # the only success is the last
    assert made.weights is not None and made.weights.advantages_N is not None
    assert made.weights.advantages_N[places] == pytest.approx([-0.5, -0.5, -0.5, 1.5], abs=1e-4)
    assert made.weights.advantages_N.sum() == pytest.approx(0, abs=1e-9)


def test_with_the_groups_baseline_only_the_weights_change() -> None:
    (made,) = Downsample(baseline="group").weigh([group(PROBLEMS[0], 3)], VariedState(PROBLEMS), Stream(0))
    assert made.weights is not None and not made.weights.steers
    passed = [made.rollouts[i].success for i in np.flatnonzero(made.weights_N)]
    assert sorted(passed) == [False, True]


def test_zero_variance_and_small_groups_stay_as_they_are() -> None:
    for whole in (group(PROBLEMS[0], 0), group(PROBLEMS[0], 8), group(PROBLEMS[0], 1, 2)):
        assert Downsample().weigh([whole], VariedState(PROBLEMS), Stream(0))[0] is whole


def test_groups_that_vary_too_little_are_declined_and_the_threshold_rises() -> None:
    vcrl = Vcrl()
    groups = [group(PROBLEMS[0], passed) for passed in range(9)]

    def trained_at(step: int) -> list[int]:
        state = vcrl.init(PROBLEMS)
        state = vcrl.observe(state, groups[:4], step - 1) if step else state
        return [g.num_passed for g in vcrl.weigh(groups, state, Stream(0)) if g.weights_N.any()]

    assert trained_at(0) == trained_at(19) == [1, 2, 3, 4, 5, 6, 7]
    assert trained_at(20) == trained_at(500) == [3, 4, 5]


def test_the_learnability_of_what_is_kept_is_reported() -> None:
    vcrl = Vcrl()
    state = vcrl.observe(vcrl.init(PROBLEMS), [group(PROBLEMS[0], 4), group(PROBLEMS[1], 0)], 0)
    assert vcrl.metrics(state) == {"learnability": 0.125, "chosen": 0.25, "kept": 0.5}


def trained(groups: list[Group], share: float = 0.25) -> list[int]:
    lilo = Lilo(share)
    return [i for i, made in enumerate(lilo.weigh(groups, lilo.init(SOME), Stream(0))) if made.weights_N.any()]


def test_a_quarter_of_a_round_trains_the_nearest_to_one_half_first() -> None:
    groups = [group(SOME[i], k) for i, k in enumerate((0, 1, 8, 7, 4, 2, 0, 5))]
    assert trained(groups) == [4, 7]  # p (1 - p): 16/64 and 15/64
    assert trained(groups, 3 / 8) == [4, 5, 7]
    assert trained(groups[:3], 0.9) == [0, 1, 2]


def test_equal_groups_are_taken_in_order_and_at_least_one_is() -> None:
    assert trained([group(SOME[i], 4) for i in range(8)]) == [0, 1]
    assert trained([group(SOME[i], 4) for i in range(2)]) == [0]


def test_groups_of_different_sizes_are_ranked_by_their_rates() -> None:
    assert trained([group(SOME[0], 2, 8), group(SOME[1], 2, 4), group(SOME[2], 1, 2)], 0.5) == [1, 2]


def test_stored_groups_are_left_alone() -> None:
    old = group(SOME[0], 1)
    stored = Group(Request(SOME[0], 8, Origin.STORED, stored=old), old.prompt_tokens_P, old.rollouts)
    assert trained([stored, group(SOME[1], 4), group(SOME[2], 3)]) == [0, 1]


def test_a_zero_variance_group_teaches_nothing_even_if_chosen() -> None:
    lilo = Lilo()
    made = lilo.weigh([group(SOME[i], 0) for i in range(4)], lilo.init(SOME), Stream(0))
    assert not any(each.teaches for each in made)


def test_of_sixteen_candidates_the_eight_around_the_middle_train() -> None:
    """Problem i passes i of 16 attempts."""
    session = Session(SOME, chain(("uniform", Uniform()), ("lilo", Lilo(0.5))), 16)
    for ticket in session.next_batch(16):
        session.record_counts(ticket.id, int(ticket.request.problem.id[1:]), 16)
    taught = [g for g in session.weigh(list(session.in_hand())) if g.teaches]
    assert {g.num_passed for g in taught} in ({4, 5, 6, 7, 8, 9, 10, 11}, {5, 6, 7, 8, 9, 10, 11, 12})  # 4 and 12 tie
    session.commit()
    metrics = session.metrics()
    assert (
        metrics["lilo/chosen"]
        > metrics["lilo/learnability"]
        == pytest.approx(sum(k * (16 - k) for k in range(16)) / 256 / 16)
    )


@pytest.mark.parametrize(
    ("variances", "mass", "left"),
    [
        ([1.0, 4.0, 3.0, 2.0], 0.7, [0, 3]),  # 4 + 3 of 10 is exactly the share
        ([1.0, 4.0, 3.0, 2.0], 0.71, [0]),
        ([1.0, 4.0, 3.0, 0.0], 1.0, [3]),
        ([2.0, 2.0, 2.0], 0.3, [1, 2]),  # equal ones in order
        ([0.0, 0.0], 0.9, []),
        ([], 0.9, []),
    ],
)
def test_the_fewest_groups_that_have_the_share_of_the_variance_train(
    variances: list[float], mass: float, left: list[int]
) -> None:
    for scale in (1e-15, 1.0, 1e15):  # of the rewards' squares
        assert find_tail([scale * each for each in variances], mass) == left


def test_by_default_nine_tenths_of_the_variance_train() -> None:
    """k (8 - k) / 56 of 4, 4, 1, 0 and 8 successes: 16, 16, 7, 0 and 0 of 39."""
    groups = [group(SOME[i], k) for i, k in enumerate((4, 0, 1, 4, 8))]
    made = Ragen().weigh(groups, VariedState(SOME), Stream(0))
    assert [bool(each.weights_N.any()) for each in made] == [True, False, True, True, False]
    made = Ragen(mass=0.8).weigh(groups, VariedState(SOME), Stream(0))
    assert [bool(each.weights_N.any()) for each in made] == [True, False, False, True, False]


def test_rules_combine() -> None:
    groups = [group(SOME[i], k) for i, k in enumerate((1, 4, 3, 0))]
    made = Lilo(0.5, late=0.9, keep=0.5).weigh(groups, VariedState(SOME), Stream(0))
    assert [int(each.weights_N.sum()) for each in made] == [0, 4, 0, 0]  # of the two above 0.9, half
