"""DARE: rates by importance weights, which groups are scored, and what is chosen by them."""

from collections.abc import Sequence

import numpy as np
import pytest
from controller_harness import group, problem_set, propose

from halfway.controllers.beliefs.importance import importance_rate
from halfway.controllers.chains import members
from halfway.controllers.dare import Dare, DareState
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Session, UserError, chain

PROBLEMS = problem_set(6)
HALVES = [False, False, True, True]


def test_weights_bring_a_rate_up_to_date() -> None:
    same = importance_rate([0.3] * 4, HALVES, 5.0, 2.0)
    assert (same.rate, same.size, same.weighted) == (0.5, pytest.approx(4.0), True)
    # The successes have become three times as likely: 6 of 8 parts of the weight, and 8^2 / (1 + 1 + 9 + 9) rollouts.
    estimate = importance_rate([0.0, 0.0, np.log(3), np.log(3)], HALVES, 5.0, 2.0)
    assert (estimate.rate, estimate.size) == (pytest.approx(0.75), pytest.approx(3.2))


def test_below_the_effective_sample_size_the_plain_rate_is_taken() -> None:
    ratios = [0.0, 0.0, 0.0, np.log(9)]  # 12^2 / 84 rollouts
    assert importance_rate(ratios, HALVES, 5.0, 1.7)[:2] == (pytest.approx(10 / 12), pytest.approx(144 / 84))
    assert importance_rate(ratios, HALVES, 5.0, 1.8) == (0.5, pytest.approx(144 / 84), False)


def test_a_log_ratio_is_clipped() -> None:
    clipped = importance_rate([-99.0, 99.0], [False, True], 2.0, 0.0)
    assert clipped.rate == pytest.approx(np.exp(2) / (np.exp(2) + np.exp(-2)))
    assert clipped == importance_rate([-2.0, 2.0], [False, True], 2.0, 0.0)


def seen(dare: Dare, passed: Sequence[int]) -> DareState:
    """The state after a group of four of each of the first problems, in order."""
    groups = [group(problem, k, 4) for problem, k in zip(PROBLEMS, passed, strict=False)]
    return dare.observe(dare.init(PROBLEMS), groups, 0)


def likelier_successes(groups: Sequence[Group]) -> list[np.ndarray]:
    return [np.array([np.log(3) if r.success else 0.0 for r in g.rollouts]) for g in groups]


def test_the_groups_with_the_oldest_estimates_are_scored_and_a_new_group_replaces_an_old_one() -> None:
    dare, asked = Dare(per_step=2), []

    def score(groups: Sequence[Group]) -> list[np.ndarray]:
        asked.append([g.request.problem.id for g in groups])
        return likelier_successes(groups)

    state = seen(dare, [2, 2, 2])
    assert state.rate_P.tolist() == [0.5] * 6
    state = dare.rescored(state, score)
    assert state.rate_P.tolist() == pytest.approx([0.75, 0.75, 0.5, 0.5, 0.5, 0.5])
    assert (state.size, state.fallback) == (pytest.approx(3.2), 0.0)
    state = dare.observe(state, [group(PROBLEMS[2], 1, 4)], 1)
    state = dare.rescored(dare.rescored(state, score), score)
    assert asked == [["p0", "p1"], ["p0", "p1"], ["p2", "p0"]]
    assert state.rate_P[2] == pytest.approx(3 / 6)  # one success of weight 3, three failures


def test_the_oldest_groups_go_when_there_are_too_many_and_their_estimates_stay() -> None:
    state = seen(Dare(capacity=2), [1, 2, 3])
    assert list(state.groups) == ["p1", "p2"] and state.rate_P[:3].tolist() == [0.25, 0.5, 0.75]


def test_nothing_is_scored_where_nothing_is_stored() -> None:
    dare = Dare()
    state = dare.init(PROBLEMS)
    assert dare.rescored(state, lambda groups: pytest.fail("nothing to score")) is state


def test_problems_are_drawn_near_the_target_by_the_estimates() -> None:
    dare = members([{"dare": {"law": {"kind": "nearest"}}}])[0].part
    state = dare.rescored(seen(dare, [4, 0, 3, 0, 4, 1]), likelier_successes)  # 3 of 4: 9 / 10; 1 of 4: one half
    plan, _ = propose(dare, state, 1, wanted=2)
    assert [request.problem.id for request in plan.requests] == ["p5", "p2"]
    assert Dare().law.kind == members([{"dare": {"law": {"tau": 0.2}}}])[0].part.law.kind == "softmax"


def test_a_trainer_that_scores_nothing_refuses_it() -> None:
    with pytest.raises(UserError, match=r"controllers\.dare needs the likelihood of earlier rollouts .*this trainer"):
        Session(PROBLEMS, chain(("dare", Dare())), 4)
    Session(PROBLEMS, chain(("uniform", Uniform())), 4)
