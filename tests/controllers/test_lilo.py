"""LILO: the groups of a round with the largest p (1 - p) train, the others do not."""

import pytest
from controller_harness import group, problem_set

from halfway.controllers.lilo import Lilo
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Origin, Request, Stream, chain
from halfway.curriculum.session import Session

PROBLEMS = problem_set(16)


def trained(groups: list[Group], share: float = 0.25) -> list[int]:
    lilo = Lilo(share)
    return [i for i, made in enumerate(lilo.weigh(groups, lilo.init(PROBLEMS), Stream(0))) if made.weights_N.any()]


def test_a_quarter_of_a_round_trains_the_nearest_to_one_half_first() -> None:
    groups = [group(PROBLEMS[i], k) for i, k in enumerate((0, 1, 8, 7, 4, 2, 0, 5))]
    assert trained(groups) == [4, 7]  # p (1 - p): 16/64 and 15/64
    assert trained(groups, 3 / 8) == [4, 5, 7]
    assert trained(groups[:3], 0.9) == [0, 1, 2]


def test_equal_groups_are_taken_in_order_and_at_least_one_is() -> None:
    assert trained([group(PROBLEMS[i], 4) for i in range(8)]) == [0, 1]
    assert trained([group(PROBLEMS[i], 4) for i in range(2)]) == [0]


def test_groups_of_different_sizes_are_ranked_by_their_rates() -> None:
    assert trained([group(PROBLEMS[0], 2, 8), group(PROBLEMS[1], 2, 4), group(PROBLEMS[2], 1, 2)], 0.5) == [1, 2]


def test_stored_groups_are_left_alone() -> None:
    old = group(PROBLEMS[0], 1)
    stored = Group(Request(PROBLEMS[0], 8, Origin.STORED, stored=old), old.prompt_tokens_P, old.rollouts)
    assert trained([stored, group(PROBLEMS[1], 4), group(PROBLEMS[2], 3)]) == [0, 1]


def test_a_degenerate_group_teaches_nothing_even_if_chosen() -> None:
    lilo = Lilo()
    made = lilo.weigh([group(PROBLEMS[i], 0) for i in range(4)], lilo.init(PROBLEMS), Stream(0))
    assert not any(each.teaches for each in made)


def test_of_sixteen_candidates_the_eight_around_the_middle_train() -> None:
    """Problem i passes i of 16 attempts."""
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("lilo", Lilo(0.5))), 16)
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
