"""Rounds until there is signal: when they stop, and which rollouts of a group train."""

import numpy as np
import pytest
from controller_harness import group, problem_set

from halfway.controllers.rounds import Rounds
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Stream, chain
from halfway.curriculum.session import Session
from halfway.trainers.learner.batch import group_advantages
from halfway.trainers.learner.options import LearnerOptions

PROBLEMS = problem_set(12)


def played(rounds: Rounds, script: list[int], size: int = 4) -> Group:
    """One group whose rounds end with so many successes each."""
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("rounds", rounds)), size)
    tickets = session.next_batch(1)
    for passed in [*script, 0, 0, 0, 0]:
        if not tickets:
            break
        session.record_counts(tickets[0].id, passed, tickets[0].request.num_rollouts)
        tickets = session.next_batch(0)
    (whole,) = session.commit()
    return whole


@pytest.mark.parametrize(
    ("rounds", "script", "size"),
    [
        (Rounds(), [2], 4),  # two of each
        (Rounds(), [1, 0, 1], 12),
        (Rounds(), [4, 4, 4, 3], 16),  # one failure is not enough, and four rounds are the most
        (Rounds(), [4, 2], 8),
        (Rounds(stop="positive"), [1], 4),
        (Rounds(stop="positive"), [4], 4),
        (Rounds(stop="positive"), [0, 0, 1], 12),
        (Rounds(stop="positive", rounds=2), [0, 0, 1], 8),
        (Rounds(size=3), [1, 1], 6),
    ],
)
def test_rounds_stop_at_enough_signal(rounds: Rounds, script: list[int], size: int) -> None:
    assert played(rounds, script).size == size


def test_a_balanced_part_trains_and_the_baseline_is_that_of_all() -> None:
    whole = group(PROBLEMS[0], 2, 16)
    rounds = Rounds()
    (weighed,) = rounds.weigh([whole], rounds.init(PROBLEMS), Stream(0))
    chosen = np.flatnonzero(weighed.weights_N)
    assert chosen.tolist() == [0, 1, 14, 15]  # the two successes are the last
    advantages_N = group_advantages(weighed, LearnerOptions(advantage="mean", divide_by_std=False))
    assert advantages_N[chosen] == pytest.approx([-1 / 8, -1 / 8, 7 / 8, 7 / 8])


def test_small_groups_and_all_of_ar3po_train_whole() -> None:
    for rounds, whole in ((Rounds(), group(PROBLEMS[0], 2, 4)), (Rounds(keep=0), group(PROBLEMS[0], 2, 16))):
        (weighed,) = rounds.weigh([whole], rounds.init(PROBLEMS), Stream(0))
        assert weighed is whole


def test_groups_that_never_get_signal_are_counted() -> None:
    rounds = Rounds()
    state = rounds.observe(rounds.init(PROBLEMS), [group(PROBLEMS[0], 0, 16), group(PROBLEMS[1], 2, 4)], 0)
    assert rounds.metrics(state) == {"rollouts": 10.0, "given_up": 0.5}
