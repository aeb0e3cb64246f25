"""NGU against the paper's example, and against an independent statement of its rules on recorded outcomes."""

import numpy as np
import pytest
from controller_harness import group, problem_set
from messages import says

from halfway.controllers.contrib.ngu import Ngu, anchored_weights
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Rollout, Session, Stream, Turn, UserError, chain
from halfway.curriculum.rollouts import NO_TOKENS
from halfway.trainers.learner.batch import group_advantages
from halfway.trainers.learner.learner_options import LearnerOptions

PROBLEMS = problem_set(40)
MEAN = LearnerOptions(advantage="mean", divide_by_std=False)


def tried(outcomes: list[tuple[int, bool]], earlier: int, now: int) -> Group:
    """A group that waited, of rollouts given as (version of the weights, success), seen by weights of version `now`."""
    zeros = np.zeros(1, np.float32)
    rollouts = tuple(
        Rollout((Turn(np.ones(1, np.int32), zeros, zeros, version),), success) for version, success in outcomes
    )
    made = group(PROBLEMS[0], 0, len(outcomes))
    lag = now - min(version for version, _ in outcomes)
    return Group(made.request, NO_TOKENS, rollouts, lag=lag, earlier=earlier)


def trained(outcomes: list[tuple[int, bool]], earlier: int, now: int) -> np.ndarray:
    """The advantages of the rollouts as the loss sees them, 0 where they do not train."""
    ngu = Ngu()
    (weighed,) = ngu.weigh([tried(outcomes, earlier, now)], ngu.init(PROBLEMS), Stream(0))
    return np.asarray(group_advantages(weighed, MEAN)) * weighed.weights_N


def test_the_example_of_the_paper() -> None:
    """Four old failures, three new ones and a success: the success has 7/8, and each new failure -7/24."""
    outcomes = [(0, False)] * 4 + [(4, False)] * 3 + [(4, True)]
    advantages_N = trained(outcomes, 4, 4)
    assert advantages_N == pytest.approx([0] * 4 + [-7 / 24] * 3 + [7 / 8])
    younger = [(1, False)] * 4 + outcomes[4:]  # age 3 trains, so the learner's own advantages stay
    assert trained(younger, 4, 4) == pytest.approx([-1 / 8] * 7 + [7 / 8])


@pytest.mark.parametrize("seed", range(20))
def test_anchored_advantages_are_those_of_the_published_rule(seed: int) -> None:
    """Successes have 1 - mean of the whole history; the kept failures share its negative equally."""
    draw = np.random.default_rng(seed)
    passed_N = draw.permutation([True, False, *(draw.random(10) < 0.3)])
    kept_N = draw.random(12) < 0.6
    expected_N = np.zeros(12)
    successes, failures = kept_N & passed_N, kept_N & ~passed_N
    if successes.any() and failures.any():
        expected_N[successes] = 1 - passed_N.mean()
        expected_N[failures] = -(1 - passed_N.mean()) * successes.sum() / failures.sum()
    found_N = (passed_N - passed_N.mean()) * anchored_weights(passed_N, kept_N)
    assert found_N == pytest.approx(expected_N)
    assert found_N.sum() == pytest.approx(0)


def test_partial_rewards_are_anchored_on_both_sides_of_the_mean() -> None:
    """Of 0, .2, 0, .2 and 1, mean .28, the first two are old: .72 for the success, which -.28 and -.08 share."""
    rewards_N, kept_N = np.array([0, 0.2, 0, 0.2, 1]), np.array([False, False, True, True, True])
    weights_N = anchored_weights(rewards_N, kept_N)
    assert weights_N * (rewards_N - 0.28) == pytest.approx([0, 0, -0.72 * 28 / 36, -0.72 * 8 / 36, 0.72])


def test_without_a_failure_that_is_young_enough_nothing_trains() -> None:
    assert trained([(0, False)] * 4 + [(9, True)] * 4, 4, 9).tolist() == [0] * 8


def test_a_group_that_did_not_wait_trains_as_it_is() -> None:
    whole = tried([(0, False), (0, True)], 0, 9)
    ngu = Ngu()
    assert ngu.weigh([whole], ngu.init(PROBLEMS), Stream(0))[0] is whole


def recorded(ngu: Ngu, rates: list[float], steps: int, seed: int = 0) -> tuple[Session, list[Group], list[int]]:
    """A session on outcomes that depend on problem and try alone; its groups, and the rollouts of each step."""
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("ngu", ngu)), 16, seed)
    groups: list[Group] = []
    spent = []
    for step in range(steps):
        tickets = session.next_batch(len(rates))
        spent.append(sum(ticket.request.num_rollouts for ticket in tickets))
        for ticket in tickets:
            rate = rates[int(ticket.request.problem.id[1:]) % len(rates)]
            k = np.random.default_rng(int(ticket.request.problem.id[1:]) + 1000 * step).binomial(ngu.size, rate)
            session.record_counts(ticket.id, int(k), ngu.size)
        groups += session.commit()
    return session, groups, spent


def test_recorded_outcomes_end_as_the_published_loop_ends_them() -> None:
    """A group ends with its first success, after the first tails of its coin, or never passed at the limit."""
    session, groups, spent = recorded(Ngu(again=0.8, patience=6), [0.0, 0.03, 0.1, 0.5, 1.0], 60)
    assert spent == [5 * 4] * 60  # every slot is one try of four
    for each in groups:
        tries = [each.rollouts[i : i + 4] for i in range(0, each.size, 4)]
        passed = [any(rollout.success for rollout in part) for part in tries]
        assert not any(passed[:-1])
        assert len(tries) <= 7
    observed = sum(each.size for each in groups)
    waiting = sum(each.size for each in session.in_hand())
    assert observed + waiting == sum(spent)
    metrics = session.metrics()
    waited = [each for each in groups if each.size > 4]
    assert metrics["ngu/waited"] == len(waited)
    assert metrics["ngu/given_up"] == sum(each.num_passed == 0 for each in waited) > 0
    assert metrics["ngu/solved"] == sum(each.num_passed > 0 for each in waited) > 0


@pytest.mark.parametrize("again", [0.5, 0.8])
def test_a_problem_that_never_passes_takes_a_geometric_number_of_tries(again: float) -> None:
    _, groups, _ = recorded(Ngu(again=again, patience=1000), [0.0] * 20, 200)
    tries = np.array([each.size / 4 for each in groups])
    expected, error = 1 / (1 - again), np.sqrt(again) / (1 - again) / np.sqrt(len(tries))
    assert abs(tries.mean() - expected) < 4 * error


def test_with_no_coin_it_is_a_small_group_and_nothing_waits() -> None:
    _, groups, _ = recorded(Ngu(again=0.0), [0.0, 0.5], 20)
    assert {each.size for each in groups} == {4} and not any(each.earlier for each in groups)


def test_the_coin_does_not_depend_on_how_often_it_is_asked_for() -> None:
    ngu = Ngu(again=0.5)
    session = Session(PROBLEMS, chain(("uniform", Uniform()), ("ngu", ngu)), 4)
    for ticket in session.next_batch(20):
        session.record_counts(ticket.id, 0, 4)
    hand, state = list(session.in_hand()), session.state["ngu"]
    first, second = (ngu.hold(hand, state, 0, Stream(0, ("x", i), "ngu")) for i in (1, 2))
    assert first == second and 0 < sum(first) < 20


def test_another_try_that_is_offered_again_takes_a_slot_again() -> None:
    members = chain(("uniform", Uniform()), ("ngu", Ngu(again=1.0)))
    session = Session(PROBLEMS, members, 4)
    for ticket in session.next_batch(3):
        session.record_counts(ticket.id, 0, 4)
    session.commit()
    tries = [ticket.id for ticket in session.next_batch(3)]
    resumed = Session(PROBLEMS, members, 4)
    resumed.load_state_dict(session.state_dict(), reissue=True)
    assert [ticket.id for ticket in resumed.next_batch(2)] == tries[:2]
    last, new = resumed.next_batch(2)
    assert last.id == tries[2] and last.request.extends and not new.request.extends


def test_its_options_are_refused_in_one_line() -> None:
    for options, words in (
        ({"again": 1.5}, ("ngu.again", 1.5, "0 to 1")),
        ({"size": 1}, ("ngu.size", 1, "0")),
        ({"age": 0}, ("ngu.age", 0, "null")),
        ({"patience": 0}, ("ngu.patience", 0, "1")),
    ):
        with pytest.raises(UserError, match=says(*words)):
            Ngu(**options)  # type: ignore[arg-type]
