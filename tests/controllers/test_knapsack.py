"""Knapsack: exact budgets, more where a group is most likely to teach."""

import numpy as np
import pytest
from controller_harness import group, problem_set, propose

from halfway.controllers.greso import Greso
from halfway.controllers.knapsack import Knapsack, KnapsackState
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Chain, Origin, Plan, Request, Stream, UserError, chain

PROBLEMS = problem_set(6)


def believing(passed: list[int], knapsack: Knapsack, size: int = 8) -> KnapsackState:
    seen = [group(problem, k, size) for problem, k in zip(PROBLEMS, passed, strict=False)]
    return knapsack.observe(knapsack.init(PROBLEMS), seen, 0)


def sizes(knapsack: Knapsack, state: KnapsackState, wanted: int = 6, size: int = 8) -> list[int]:
    requests = tuple(Request(problem, size) for problem in PROBLEMS[:wanted])
    plan, _ = knapsack.propose(Plan(1, wanted, size, requests, member="knapsack"), state, Stream(0))
    return [request.num_rollouts for request in plan.requests]


def test_hard_problems_get_more_and_solved_ones_the_least() -> None:
    knapsack = Knapsack(certainty=1.0)
    given = sizes(knapsack, believing([1, 2, 4, 7, 8, 0], knapsack))
    assert sum(given) == 48
    assert given[0] > given[1] > given[2] > given[3] > given[4] == given[5] == 2


def test_a_problem_that_never_passed_gets_what_sufficient_groups_leave() -> None:
    # Rates 1/8, 2/8, 4/8, 7/8 are mixed with chance 0.9 in 18, 9, 4, 18 rollouts; one that always passes gets 2.
    knapsack, passed = Knapsack(), [4, 4, 4, 2, 8, 0]
    assert sizes(knapsack, believing(passed, knapsack)) == [4, 4, 4, 9, 2, 25]
    assert sizes(Knapsack(certainty=1.0), believing(passed, knapsack))[5] == 2


def test_unseen_problems_get_what_they_would_have() -> None:
    knapsack = Knapsack()
    assert sizes(knapsack, knapsack.init(PROBLEMS)) == [8] * 6
    assert sizes(knapsack, believing([1, 8], knapsack)) == [14, 2, 8, 8, 8, 8]


def test_rollouts_that_no_problem_needs_go_to_problems_that_never_passed() -> None:
    knapsack = Knapsack()
    # Half of the time: 4 rollouts are enough; always: the least; never: the rest, evenly.
    assert sizes(knapsack, believing([4, 4, 8, 8, 0, 0], knapsack)) == [4, 4, 2, 2, 18, 18]
    assert sizes(knapsack, believing([0] * 6, knapsack)) == sizes(knapsack, believing([8] * 6, knapsack)) == [8] * 6
    assert sizes(knapsack, believing([4] * 6, knapsack)) == [8] * 6


def test_bounds_hold() -> None:
    knapsack = Knapsack(least=3, most=12)
    given = sizes(knapsack, believing([1, 1, 8, 8, 8, 8], knapsack))
    assert given[:2] == [12, 12] and sum(given) == 48 and min(given) >= 3


def test_the_budget_is_exact_when_another_member_drops_requests() -> None:
    controller: Chain = chain(("uniform", Uniform()), ("knapsack", Knapsack()), ("greso", Greso(frozen_epochs=0)))
    problems = problem_set(40)
    state = controller.init(problems)
    dropped = 0
    for step in range(25):
        plan, state = propose(controller, state, step, wanted=10)
        assert sum(request.num_rollouts for request in plan.requests) == plan.budget == 80
        dropped += len(plan.skipped)
        groups = [group(r.problem, (0, 1, 4, 8)[int(r.problem.id[1:]) % 4] * r.num_rollouts // 8, r.num_rollouts)
                  for r in plan.requests]  # fmt: skip
        state = controller.observe(state, groups, step)
    assert dropped > 20
    assert controller.metrics(state)["knapsack/largest"] > 8 > controller.metrics(state)["knapsack/smallest"]


def test_only_fresh_groups_are_evidence_and_only_fresh_requests_change() -> None:
    knapsack = Knapsack()
    state = knapsack.observe(knapsack.init(PROBLEMS), [group(PROBLEMS[0], 8, origin=Origin.HINTED)], 0)
    assert np.all(state.rate_P == -1)
    requests = (Request(PROBLEMS[0], 8, Origin.GENERATED), Request(PROBLEMS[1], 8))
    plan, _ = knapsack.propose(Plan(1, 2, 8, requests, member="k"), believing([1, 8], knapsack), Stream(0))
    assert [request.num_rollouts for request in plan.requests] == [8, 8]


def test_the_belief_is_the_last_pass_rate_unless_it_is_averaged() -> None:
    for alpha, expected in ((1.0, 1.0), (0.25, 0.25)):
        knapsack = Knapsack(alpha=alpha)
        state = knapsack.observe(believing([0], knapsack), [group(PROBLEMS[0], 8)], 1)
        assert state.rate_P[0] == expected


def test_a_budget_below_the_least_allocation_is_refused_in_one_line() -> None:
    knapsack = Knapsack(least=9)
    with pytest.raises(UserError, match=r"knapsack\.least, most: \(9, 128\) .* rollouts\.num_rollouts=8") as caught:
        sizes(knapsack, knapsack.init(PROBLEMS))
    assert "\n" not in str(caught.value)
