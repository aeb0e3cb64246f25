"""One contract suite over every registered controller, alone and in chains."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from controller_harness import child, describe, group, play, problem_set, propose, simulated, through_json

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Chain, Origin, Plan, Stream, chain, save_state

PROBLEMS = problem_set(60, generated=120)
FULL = ("prefix_sampling", "uniform", "greso")


def chain_of(names: tuple[str, ...], **options: Any) -> Chain:
    return chain(*((name, CONTROLLERS.get(name)(**options)) for name in names))


def with_company(name: str) -> tuple[str, ...]:
    """A chain in which the controller has work to do: who attaches prefixes goes first, who only filters goes last."""
    claims = CONTROLLERS.get(name)().claims
    return (name,) if "problems" in claims else (name, "uniform") if claims else ("uniform", name)


CHAINS: dict[str, Callable[[], Chain]] = {
    **{name: (lambda name=name: chain_of(with_company(name))) for name in CONTROLLERS.names()},
    "all": lambda: chain_of(FULL),
    "nested": lambda: chain(("inner", chain_of(("prefix_sampling", "uniform"))), ("greso", CONTROLLERS.get("greso")())),
    "blog": lambda: chain(
        ("ps", CONTROLLERS.get("prefix_sampling")(variant="categories", chain_prefixes=True, max_age=3)),
        ("uniform", CONTROLLERS.get("uniform")()),
        ("greso", CONTROLLERS.get("greso")(streaks="joint")),
    ),
    "pros_greso": lambda: chain_of(("pros", "greso")),
    "probe_pros_probed": lambda: chain(
        ("probe", CONTROLLERS.get("probe")(tries=2)), ("pros", CONTROLLERS.get("pros")(prior="probed"))
    ),
    "probe_all": lambda: chain_of(("probe", *FULL)),
    "pros_selects_ps_prefixes": lambda: chain(
        ("prefix_sampling", CONTROLLERS.get("prefix_sampling")()), ("pros", CONTROLLERS.get("pros")(reuse=False))
    ),
}
every_chain = pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS)
every_controller = pytest.mark.parametrize("name", CONTROLLERS.names())


@every_chain
def test_equal_seeds_give_equal_plans_and_others_do_not(make):
    plans, state = play(make(), make().init(PROBLEMS), range(12))
    again, state_again = play(make(), make().init(PROBLEMS), range(12))
    other, _ = play(make(), make().init(PROBLEMS), range(12), seed=1)
    assert plans == again
    assert save_state(state) == save_state(state_again)
    assert plans != other


@every_chain
def test_restored_state_gives_the_same_next_fifty_plans(make):
    controller = make()
    expected, _ = play(controller, controller.init(PROBLEMS), range(64), wanted=8)
    for step, planned in ((0, False), (1, True), (14, False), (14, True)):
        _, state = play(controller, controller.init(PROBLEMS), range(step), wanted=8)
        restored = through_json(controller, PROBLEMS, state)
        assert play(controller, restored, range(step, step + 50), wanted=8)[0] == expected[step : step + 50]
        if planned:  # in the middle of a step too: the rest of it is a further round
            _, state = propose(controller, state, step, wanted=8)
            restored = through_json(controller, PROBLEMS, state)
            assert describe(propose(controller, restored, step)[0]) == describe(propose(controller, state, step)[0])


@every_chain
def test_full_plan_passes_unchanged(make):
    controller = make()
    _, state = play(controller, controller.init(PROBLEMS), range(8))
    plan, state = propose(controller, state, 8)
    assert plan.missing == 0
    again, after = controller.propose(plan, state, Stream(0).at(8, "propose", "once more"))
    assert describe(again) == describe(plan)
    assert save_state(after) == save_state(state)


@every_chain
def test_plans_fill_and_ask_for_the_right_number_of_rollouts(make):
    controller = make()
    state = controller.init(PROBLEMS)
    for step in range(30):
        plan, state = propose(controller, state, step, wanted=20)
        assert len(plan.requests) == 20
        assert {request.num_rollouts for request in plan.requests} == {8}
        assert len({(request.problem.id, request.origin) for request in plan.requests}) == 20
        groups = simulated(step).run(plan.requests, Stream(0).at(step, "rollout"))
        state = controller.observe(state, groups, step)


@every_chain
@pytest.mark.parametrize("passed", [0, 8])
def test_degenerate_groups_alone_are_fine(make, passed: int):
    controller = make()
    state = controller.init(PROBLEMS)
    for step in range(25):
        plan, state = propose(controller, state, step)
        assert plan.missing == 0
        # Prefixes become fresh groups, generated problems stay what they are.
        origins = [r.origin if r.origin is Origin.GENERATED else Origin.FRESH for r in plan.requests]
        groups = [group(r.problem, passed, origin=o) for r, o in zip(plan.requests, origins, strict=True)]
        state = controller.observe(state, groups, step)


@every_chain
def test_groups_that_lost_all_their_rollouts_are_fine(make):
    controller = make()
    _, state = play(controller, controller.init(PROBLEMS), range(3))
    plan, state = propose(controller, state, 3)
    assert {request.origin for request in plan.requests} >= {Origin.FRESH}
    lost = [replace(g, rollouts=(), dropped={"diverged": 8}) for g in simulated(3).run(plan.requests, Stream(0))]
    state = controller.observe(state, lost, 3)
    assert propose(controller, state, 4)[0].missing == 0


@every_chain
def test_steps_without_groups_are_fine(make):
    controller = make()
    state = controller.init(PROBLEMS)
    for step in range(5):
        state = controller.observe(state, [], step)
    assert propose(controller, state, 5)[0].missing == 0


@every_chain
def test_metrics_are_finite_floats_at_any_time(make):
    controller = make()
    state = controller.init(PROBLEMS)
    for steps in (range(0), range(1), range(1, 20)):
        _, state = play(controller, state, steps)
        for name, value in controller.metrics(state).items():
            assert type(value) is float and math.isfinite(value), name


@every_chain
def test_neither_call_changes_the_state_it_is_given(make):
    controller = make()
    _, state = play(controller, controller.init(PROBLEMS), range(6))
    before = json.dumps(save_state(state))
    plan, _ = propose(controller, state, 6)
    controller.observe(state, simulated(6).run(plan.requests, Stream(5)), 6)
    assert json.dumps(save_state(state)) == before


@every_controller
def test_unknown_problem_raises_or_changes_nothing(name: str):
    controller = CONTROLLERS.get(name)()
    state = controller.init(PROBLEMS)
    stranger = group(problem_set(61)[60], 1)
    try:
        after = controller.observe(state, [stranger], 0)
    except KeyError as error:
        assert "p60" in str(error)
    else:
        assert save_state(after) == save_state(state)


@every_controller
def test_evidence_from_other_origins_does_not_change_the_next_fresh_problems(name: str):
    controller = chain_of(with_company(name))
    _, state = play(controller, controller.init(PROBLEMS), range(6))
    evidence = [child(problem, (1, 8), 0) for problem in PROBLEMS]
    evidence += [replace_origin(g) for g in (group(problem, 8) for problem in PROBLEMS)]

    def fresh(state: Any) -> list[str]:
        plan, _ = propose(controller, state, 7)
        return [request.problem.id for request in plan.requests if request.origin is Origin.FRESH]

    assert fresh(controller.observe(state, evidence, 6)) == fresh(controller.observe(state, [], 6))


def replace_origin(g):
    return replace(g, request=replace(g.request, origin=Origin.GENERATED))


@every_controller
def test_alone_on_an_empty_plan_it_ends(name: str):
    controller = CONTROLLERS.get(name)()
    plan, _ = propose(controller, controller.init(PROBLEMS), 0)
    share = plan.wanted // 2 if "generated" in controller.claims else plan.wanted
    assert len(plan.requests) in (0, share)


@every_controller
def test_works_on_a_single_problem(name: str):
    controller = chain_of(with_company(name))
    plans, _ = play(controller, controller.init(problem_set(1)), range(4), wanted=3)
    assert all(len([entry for entry in plan if len(entry) == 5]) == 3 for plan in plans)


@every_controller
def test_configuration_compares_prints_and_hashes(name: str):
    kind = CONTROLLERS.get(name)
    assert kind() == kind()
    assert hash(kind()) == hash(kind())
    assert repr(kind()).startswith(f"{kind.__name__}(")


def test_plan_that_wants_nothing_stays_empty():
    controller = chain_of(FULL)
    plan, _ = controller.propose(Plan(0, 0, 8), controller.init(PROBLEMS), Stream(0))
    assert plan.requests == ()


def test_pass_rate_of_no_rollouts_is_an_error_not_a_number():
    assert group(PROBLEMS[0], 2).pass_rate == 0.25
    with pytest.raises(ValueError, match=r"problem 'p0' has no rollouts, so no pass rate"):
        _ = group(PROBLEMS[0], 0, size=0).pass_rate
