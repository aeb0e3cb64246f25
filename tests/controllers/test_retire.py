"""Retirement: which problems go, stay and come back, and that no plan starves."""

import numpy as np
from controller_harness import child, group, play, problem_set, propose, simulated

from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.retire import Retire, RetireState
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Decision, Origin, Plan, Request, Stream, chain

PROBLEMS = problem_set(8)


def verdicts(
    controller: Retire, state: RetireState, step: int, origin: Origin = Origin.FRESH
) -> tuple[dict, RetireState]:
    """What happens to a request for each problem, in a plan that is far from starving."""
    requests = tuple(Request(problem, 8, origin) for problem in PROBLEMS[:6])
    plan, state = controller.propose(Plan(step, 9, 8, requests, member="retire"), state, Stream(0))
    kept = {request.problem.id: request.decisions[-1].action for request in plan.requests}
    return kept | {skip.problem_id: skip.reason for skip in plan.skipped}, state


def after(controller: Retire, *rates: int) -> RetireState:
    """The state after one group of each of the first problems."""
    groups = [group(problem, passed, 10) for problem, passed in zip(PROBLEMS, rates, strict=False)]
    return controller.observe(controller.init(PROBLEMS), groups, 0)


def test_a_problem_that_reaches_the_threshold_is_retired_for_good_if_it_never_returns() -> None:
    controller = Retire(returns=None)
    found, state = verdicts(controller, after(controller, 10, 9, 8, 0), 1)
    assert found == {"p0": "retired", "p1": "retired", "p2": "kept", "p3": "kept", "p4": "kept", "p5": "kept"}
    assert verdicts(controller, state, 1000)[0] == found
    assert state.refused == 2 and controller.metrics(state)["retired"] == 0.25


def test_by_default_it_is_tried_again_after_forty_steps() -> None:
    controller = Retire()
    _, state = verdicts(controller, after(controller, 10), 1)
    assert [verdicts(controller, state, step)[0]["p0"] for step in (40, 41)] == ["retired", "returned"]


def test_a_retired_problem_returns_and_what_it_does_then_decides() -> None:
    controller = Retire(returns=5)
    _, state = verdicts(controller, after(controller, 10, 10), 1)
    assert verdicts(controller, state, 5)[0]["p0"] == "retired"
    found, state = verdicts(controller, state, 6)
    assert found["p0"] == found["p1"] == "returned" and state.returned == 2
    state = controller.observe(state, [group(PROBLEMS[0], 4, 10), group(PROBLEMS[1], 10, 10)], 6)
    found, state = verdicts(controller, state, 7)
    assert (found["p0"], found["p1"]) == ("kept", "retired")
    assert verdicts(controller, state, 11)[0]["p1"] == "retired"
    assert verdicts(controller, state, 12)[0]["p1"] == "returned"


def test_a_belief_takes_more_than_one_group_to_convince() -> None:
    """Beta(1 + 10, 1) has mean 11/12, Beta(1 + 9, 2) 10/12; with discount 0.9 a second whole group gives 20/21."""
    controller = Retire(above=0.93, belief=PassRateBelief(kind="beta"))
    state = after(controller, 10, 9)
    found, state = verdicts(controller, state, 1)
    assert found["p0"] == found["p1"] == "kept"
    state = controller.observe(state, [group(PROBLEMS[0], 10, 10), group(PROBLEMS[1], 10, 10)], 1)
    found, _ = verdicts(controller, state, 2)
    assert (found["p0"], found["p1"]) == ("retired", "kept")  # 20/21 and 19.1/21


def test_a_group_of_a_retired_problem_does_not_overrule_what_was_measured() -> None:
    controller = Retire(returns=5, belief=PassRateBelief(kind="measured"))
    state = controller.inform(controller.init(PROBLEMS), np.array([1.0, 0.9, *[0.5] * 6]))
    _, state = verdicts(controller, state, 1)
    state = controller.observe(state, [group(PROBLEMS[0], 0, 10), group(PROBLEMS[2], 10, 10)], 6)
    found, state = verdicts(controller, state, 7)
    assert (found["p0"], found["p1"], found["p2"]) == ("retired", "returned", "kept")
    assert verdicts(controller, state, 12)[0]["p0"] == "returned"


def test_only_fresh_groups_are_evidence_and_only_fresh_requests_are_judged() -> None:
    controller = Retire()
    others = [child(PROBLEMS[0], (1, 8), 8), group(PROBLEMS[1], 8, origin=Origin.GENERATED)]
    state = controller.observe(controller.init(PROBLEMS), others, 0)
    assert set(verdicts(controller, state, 1)[0].values()) == {"kept"}
    assert set(verdicts(controller, after(controller, 10), 1, Origin.PREFIX)[0].values()) == {"exempt"}


def test_uniform_continues_with_the_other_problems_and_every_plan_is_full() -> None:
    members = chain(("uniform", Uniform()), ("retire", Retire()))
    problems = problem_set(40)
    state = members.init(problems)
    easy = {f"p{i}" for i in range(30)}
    for step in range(12):
        plan, state = propose(members, state, step, wanted=8)
        assert plan.missing == 0
        if step >= 6:  # every problem had its turn
            assert not {r.problem.id for r in plan.requests} & easy
        groups = [group(r.problem, 8 if r.problem.id in easy else 4) for r in plan.requests]
        state = members.observe(state, groups, step)
    assert state["retire"].readmitted == 0
    for step in range(12, 20):
        plan, state = propose(members, state, step, wanted=16)  # only ten are left
        assert plan.missing == 0
        state = members.observe(state, [], step)
    assert state["retire"].readmitted > 0


def test_a_request_that_extends_a_group_was_not_offered() -> None:
    controller = Retire()
    more = tuple(Request(problem, 2, decisions=(Decision("retire", "kept"),), extends="0.0.0") for problem in PROBLEMS)
    plan = Plan(1, 9, 8, (*more, Request(PROBLEMS[0], 8)), member="retire")
    plan, _ = controller.propose(plan, after(controller, 10), Stream(0))
    assert [skip.reason for skip in plan.skipped] == ["retired"]


def test_few_among_many_are_not_waited_for_endlessly() -> None:
    members = chain(("uniform", Uniform()), ("retire", Retire()))
    problems = problem_set(4000)
    state = members.observe(members.init(problems), [group(problem, 8) for problem in problems], 0)
    plan, state = propose(members, state, 1, wanted=4)
    assert plan.missing == 0 and len(plan.skipped) == 400


def test_an_improving_learner_loses_its_easiest_problems_first() -> None:
    members, problems = chain(("uniform", Uniform()), ("retire", Retire())), problem_set(60)
    _, state = play(members, members.init(problems), range(40))
    retired = state["retire"].retired_P >= 0
    rates = [simulated(20).pass_probability(problem, None) for problem in problems]
    gone = [rate for rate, out in zip(rates, retired, strict=True) if out]
    left = [rate for rate, out in zip(rates, retired, strict=True) if not out]
    assert len(gone) > 5 and sum(gone) / len(gone) > sum(left) / len(left) + 0.3
