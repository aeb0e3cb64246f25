"""GRESO: which problems it skips, how often, and how it steers that."""

from dataclasses import replace

import numpy as np
import pytest
from controller_harness import child, group, play, problem_set, propose, simulated

from halfway.controllers.greso import Greso, GresoState
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Decision, Origin, Plan, Request, Stream, chain, propose_until_full

PROBLEMS = problem_set(4)
GRESO = Greso()


def after(outcomes: list[tuple[int, int, int]], controller: Greso = GRESO, size: int = 8) -> GresoState:
    """The state after one step for each (position, k, N)."""
    state = controller.init(PROBLEMS)
    for step, (position, passed, of) in enumerate(outcomes):
        state = controller.observe(state, [group(PROBLEMS[position], passed, of)], step)
    return state


def keep_rate(state: GresoState, controller: Greso = GRESO, trials: int = 4000) -> float:
    kept = 0
    for step in range(trials):
        plan = Plan(step, 9, 8, requests=(Request(PROBLEMS[0], 8),), member="greso")
        plan, _ = controller.propose(plan, state, Stream(step, (), "greso"))
        kept += len(plan.requests)
    return kept / trials


def test_defaults_are_the_published_ones():
    assert (GRESO.p_easy, GRESO.p_hard, GRESO.target, GRESO.step, GRESO.floor) == (0.5, 0.5, 0.25, 0.01, 0.01)
    assert GRESO.bounds == (0.05, 0.95)
    assert GRESO.target * GRESO.easy_share == pytest.approx(0.25 / 3)
    assert GRESO.streaks == "separate"


def test_unseen_and_informative_problems_are_never_skipped():
    assert keep_rate(GRESO.init(PROBLEMS), trials=300) == 1.0
    assert keep_rate(after([(0, 8, 8), (0, 8, 8), (0, 3, 8)]), trials=300) == 1.0


@pytest.mark.parametrize("passed", [0, 8])
def test_keep_rate_halves_with_every_zero_variance_visit(passed: int):
    for streak in (1, 2, 3):
        assert keep_rate(after([(0, passed, 8)] * streak)) == pytest.approx(0.5**streak, abs=0.03)


def test_keep_rate_has_a_floor():
    assert keep_rate(after([(0, 0, 8)] * 30)) == pytest.approx(0.01, abs=0.006)


def test_base_probability_is_that_of_the_kind_of_streak():
    controller = Greso(p_easy=0.9, p_hard=0.1)
    assert keep_rate(after([(0, 8, 8)], controller), controller) == pytest.approx(0.9, abs=0.03)
    assert keep_rate(after([(0, 0, 8)], controller), controller) == pytest.approx(0.1, abs=0.03)


def test_all_passed_after_all_failed_starts_a_new_streak_or_continues_a_joint_one():
    outcomes = [(0, 0, 8), (0, 0, 8), (0, 8, 8)]
    assert after(outcomes).streaks[0] == 1
    assert after(outcomes, Greso(streaks="joint")).streaks[0] == 3


def test_one_success_in_sixteen_is_not_hard():
    assert after([(0, 1, 16)]).streaks[0] == 0
    assert after([(0, 15, 16)]).streaks[0] == 0


def test_only_fresh_groups_count():
    groups = [child(PROBLEMS[0], (1, 8), 0), group(PROBLEMS[1], 8, origin=Origin.GENERATED)]
    state = replace(GRESO.init(PROBLEMS), considered=100)
    assert GRESO.observe(state, groups, 0).streaks.tolist() == [0, 0, 0, 0]
    assert GRESO.observe(state, groups, 0).p_hard == 0.5
    # They do not dilute the shares either.
    shared = GRESO.observe(state, [*groups, group(PROBLEMS[2], 0)], 0)
    assert (shared.share_easy, shared.share_hard) == (0.0, 1.0)


def test_requests_that_are_not_fresh_are_exempt():
    state = after([(0, 0, 8)] * 30)
    plan = Plan(0, 9, 8, requests=(Request(PROBLEMS[0], 8, Origin.PREFIX),), member="greso")
    plan, later = GRESO.propose(plan, state, Stream(0))
    assert plan.requests[0].decisions[-1].action == "exempt"
    assert later.considered == state.considered


def test_groups_that_lost_their_rollouts_say_nothing():
    state = GRESO.observe(GRESO.init(PROBLEMS), [group(PROBLEMS[0], 0, 1), group(PROBLEMS[1], 0, 0)], 0)
    assert state.streaks.tolist() == [0, 0, 0, 0]
    assert state.unjudged == 2


def test_same_problem_twice_in_a_step_counts_once_a_group():
    state = GRESO.observe(GRESO.init(PROBLEMS), [group(PROBLEMS[0], 0)] * 3, 0)
    assert state.streaks[0] == -3


def test_streaks_saturate():
    state = replace(GRESO.init(PROBLEMS), streaks=np.array([-32767, 32767, 0, 0], np.int16))
    state = GRESO.observe(state, [group(PROBLEMS[0], 0), group(PROBLEMS[1], 8)], 0)
    assert state.streaks.tolist() == [-32767, 32767, 0, 0]


@pytest.mark.parametrize(
    ("easy", "hard", "p_easy", "p_hard"),
    [
        (1, 2, 0.49, 0.49),  # 1/12 and 2/12: exactly at T/3 and 2T/3
        (0, 1, 0.51, 0.51),  # below both
        (2, 0, 0.49, 0.51),
        (0, 3, 0.51, 0.49),
    ],
)
def test_adaptation_meets_a_third_and_two_thirds_of_the_target(easy: int, hard: int, p_easy: float, p_hard: float):
    problems = problem_set(12)
    state = replace(GRESO.init(problems), considered=13)
    passed = [8] * easy + [0] * hard + [4] * (12 - easy - hard)
    state = GRESO.observe(state, [group(p, k) for p, k in zip(problems, passed, strict=True)], 0)
    assert (state.p_easy, state.p_hard) == (p_easy, p_hard)


def test_adaptation_waits_for_the_first_epoch_to_end():
    groups = [group(PROBLEMS[0], 0)]
    for considered, expected in ((0, 0.5), (4, 0.5), (5, 0.49)):
        state = replace(GRESO.init(PROBLEMS), considered=considered)
        assert GRESO.observe(state, groups, 0).p_hard == expected


def test_adaptation_happens_once_a_step_and_stays_in_bounds():
    state = replace(GRESO.init(PROBLEMS), considered=5)
    for step in range(60):
        state = GRESO.observe(state, [group(PROBLEMS[0], 0)] * 5, step)
        assert state.p_hard == pytest.approx(max(0.05, 0.5 - 0.01 * (step + 1)))
        assert state.p_easy == pytest.approx(min(0.95, 0.5 + 0.01 * (step + 1)))


def test_skipped_candidates_count_toward_the_epoch():
    members = chain(("uniform", Uniform()), ("greso", GRESO))
    problems = problem_set(40)
    state = members.init(problems)
    state["greso"] = replace(state["greso"], streaks=np.full(40, -2, np.int16))
    plan, state = propose(members, state, 0, wanted=4)
    assert len(plan.skipped) > 0
    assert state["greso"].considered == len(plan.requests) + len(plan.skipped)


def test_plan_is_filled_with_the_problems_that_are_left():
    members = chain(("uniform", Uniform()), ("greso", GRESO))
    problems = problem_set(64)
    state = members.init(problems)
    streaks = np.zeros(64, np.int16)
    streaks[:48] = 30  # kept with probability 0.01
    state["greso"] = replace(state["greso"], streaks=streaks)
    plan, state = propose(members, state, 0, wanted=12)
    chosen = [int(request.problem.id[1:]) for request in plan.requests]
    assert plan.missing == 0
    assert sum(i >= 48 for i in chosen) >= 11
    assert {skip.reason for skip in plan.skipped} == {"easy"}
    assert members.metrics(state)["greso/skipped_easy"] == len(plan.skipped)


def test_set_that_is_skipped_as_a_whole_is_readmitted():
    members = chain(("uniform", Uniform()), ("greso", Greso(floor=1e-9)))
    problems = problem_set(32)
    state = members.init(problems)
    state["greso"] = replace(state["greso"], streaks=np.full(32, -30, np.int16))
    plan, state = propose(members, state, 0, wanted=8)
    assert plan.missing == 0
    assert len({request.problem.id for request in plan.requests}) == 8
    assert {request.decisions[-1].action for request in plan.requests} == {"readmitted"}
    assert members.metrics(state)["greso/readmitted"] == 8
    assert len(plan.skipped) == 32  # every problem was judged once before any was let in


def test_readmission_counts_kept_candidates_too():
    # Half are informative. Once all 32 were offered, the rest of a plan of 30 comes from those skipped before.
    members = chain(("uniform", Uniform()), ("greso", Greso(floor=1e-9)))
    state = members.init(problem_set(32))
    state["greso"] = replace(state["greso"], streaks=np.repeat([0, -30], 16).astype(np.int16))
    plan, _ = propose(members, state, 0, wanted=30)
    ids = [request.problem.id for request in plan.requests]
    assert len(set(ids)) == 30
    assert sum(request.decisions[-1].action == "readmitted" for request in plan.requests) == 14


def test_readmission_does_not_count_requests_that_extend_groups():
    controller = Greso(floor=1e-9)
    state = replace(controller.init(PROBLEMS), streaks=np.full(4, -30, np.int16))
    more = tuple(Request(problem, 2, decisions=(Decision("greso", "kept"),), extends="0.0.0") for problem in PROBLEMS)
    plan = Plan(1, 5, 8, (*more, Request(PROBLEMS[0], 8)), member="greso")
    plan, _ = controller.propose(plan, state, Stream(0))
    assert [skip.reason for skip in plan.skipped] == ["hard"]


def test_readmission_begins_within_one_pass():
    # Forty candidates in one pass over a set of 32: the last eight come after every problem was judged once.
    members = chain(("uniform", Uniform()), ("greso", Greso(floor=1e-9)))
    state = members.init(problem_set(32))
    state["greso"] = replace(state["greso"], streaks=np.full(32, -30, np.int16))
    plan, _ = members.propose(Plan(0, 40, 8), state, Stream(0))
    assert len(plan.skipped) == 32
    assert [request.decisions[-1].action for request in plan.requests] == ["readmitted"] * 8


def test_fewer_zero_variance_groups_than_uniform_on_the_simulated_learner():
    problems = problem_set(200)

    def zero_variance_share(controller) -> float:
        _, state = play(controller, controller.init(problems), range(60))
        plans, groups = [], []
        for step in range(60, 80):
            plan, state = propose(controller, state, step)
            plans.append(plan)
            groups += simulated(60).run(plan.requests, Stream(0).at(step, "rollout"))
        return float(np.mean([g.zero_variance for g in groups]))

    plain = zero_variance_share(chain(("uniform", Uniform())))
    steered = zero_variance_share(chain(("uniform", Uniform()), ("greso", GRESO)))
    assert steered < 0.75 * plain


def test_a_plan_counts_what_each_member_refused() -> None:
    """So a filter need not read all refusals again in every pass."""
    problems = problem_set(40)
    members = chain(("uniform", Uniform()), ("greso", Greso()))
    state = members.init(problems)
    state["greso"] = replace(state["greso"], streaks=np.full(40, 3, np.int16))
    plan, _ = propose_until_full(members, Plan(0, 12, 8), state, Stream(0))
    assert plan.refused == {"greso": len(plan.skipped)} and len(plan.skipped) > 12
