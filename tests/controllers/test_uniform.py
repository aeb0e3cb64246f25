"""Uniform: every problem once per epoch, across the end of an epoch, whatever the other members do."""

from collections import Counter

import pytest
from controller_harness import group, problem_set, propose, through_json

from halfway.controllers.uniform import Uniform
from halfway.curriculum import Origin, Plan, Request, Stream, Verdict

UNIFORM = Uniform()


def drawn(count: int, wanted: int, steps: int, seed: int = 0) -> list[list[str]]:
    state, plans = UNIFORM.init(problem_set(count)), []
    for step in range(steps):
        plan, state = propose(UNIFORM, state, step, wanted, seed=seed)
        plans.append([request.problem.id for request in plan.requests])
    return plans


@pytest.mark.parametrize(("count", "wanted"), [(40, 8), (20, 8), (9, 7), (8, 8), (13, 1)])
def test_every_problem_once_an_epoch_across_its_end(count: int, wanted: int):
    plans = drawn(count, wanted, steps=5 * count)
    assert all(len(plan) == len(set(plan)) == wanted for plan in plans)
    visits = Counter(problem for plan in plans for problem in plan)
    # 5 x count x wanted draws are 5 x wanted epochs; one that is deferred at the end of an epoch may lag by a visit.
    assert set(visits) == {f"p{i}" for i in range(count)}
    assert all(abs(number - 5 * wanted) <= 1 for number in visits.values())


def test_epochs_have_different_orders_and_one_seed_one_order():
    plans = drawn(16, 16, steps=3)
    assert len({tuple(plan) for plan in plans}) == 3
    assert plans == drawn(16, 16, steps=3)
    assert plans != drawn(16, 16, steps=3, seed=1)


def test_order_of_an_epoch_does_not_depend_on_the_step_in_which_it_begins():
    in_plans_of_four = [problem for plan in drawn(16, 4, steps=8) for problem in plan]
    in_plans_of_eight = [problem for plan in drawn(16, 8, steps=4) for problem in plan]
    assert in_plans_of_four == in_plans_of_eight


def test_set_smaller_than_the_plan_goes_round_evenly():
    for plan in drawn(3, 8, steps=4):
        assert sorted(Counter(plan).values()) == [2, 3, 3]


def test_an_old_group_of_a_generated_problem_is_not_held_of_the_set():
    problems = problem_set(3, generated=1)
    old = group(problems.generated[0], 4)
    stored = Request(old.request.problem, old.size, Origin.STORED, stored=old)
    held = tuple(Request(problem, 8, Origin.PREFIX) for problem in problems)
    plan, _ = UNIFORM.propose(Plan(0, 6, 8, (*held, stored)), UNIFORM.init(problems), Stream(0))
    again = [request.problem.id for request in plan.requests[4:]]
    assert len(again) == len(set(again)) == 2


def test_problem_that_the_plan_holds_already_waits_for_the_next_plan():
    problems = problem_set(6)
    state = UNIFORM.init(problems)
    first, _ = propose(UNIFORM, state, 0, wanted=6)
    held = first.requests[0].problem
    plan = Plan(0, 4, 8, requests=(Request(held, 8, Origin.PREFIX),))
    plan, state = UNIFORM.propose(plan, state, Stream(0).at(0, "propose", 0))
    assert held.id not in [request.problem.id for request in plan.requests[1:]]
    assert UNIFORM.metrics(state) == {"epoch": pytest.approx(4 / 6), "deferred": 1.0}
    plan, state = propose(UNIFORM, state, 1, wanted=3)
    assert plan.requests[0].problem.id == held.id
    assert UNIFORM.metrics(state) == {"epoch": 1.0, "deferred": 0.0}


def test_dropped_problems_are_replaced_by_later_ones_of_the_order():
    problems = problem_set(10)
    plan, state = UNIFORM.propose(Plan(0, 4, 8), UNIFORM.init(problems), Stream(0))
    first = [request.problem.id for request in plan.requests]
    # A filter, which signs under another name, drops the first two.
    plan = plan.__class__(0, 4, 8, plan.requests, member="filter").decide(
        [Verdict(i >= 2, "no") for i in range(len(plan.requests))]
    )
    plan, state = UNIFORM.propose(plan, state, Stream(0))
    after = [request.problem.id for request in plan.requests]
    assert after[:2] == first[2:]
    assert not set(after[2:]) & set(first)


def test_order_survives_a_restart_in_the_middle_of_an_epoch():
    problems = problem_set(50)
    state = UNIFORM.init(problems)
    _, state = propose(UNIFORM, state, 0, wanted=7)
    restored = through_json(UNIFORM, problems, state)
    assert restored == state
    assert state.key > 2**32  # a 64-bit number passes through JSON unharmed
