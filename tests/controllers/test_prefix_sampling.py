"""Prefix Sampling, both variants: which rollouts are saved, where they are cut, how the ratios move."""

import json
from dataclasses import replace

import numpy as np
import pytest
from controller_harness import child, group, problem_set, propose, rollout, through_json

from halfway.controllers.laws.feedback import Knob
from halfway.controllers.prefix_sampling import PrefixSampling, PrefixSamplingState
from halfway.controllers.prefixes.control_loops import Loop, bucket_of, side_of
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Origin, Plan, Stream, chain, save_state
from halfway.testing.simulator import SimulatedRollouts

PROBLEMS = problem_set(40)
PAPER = PrefixSampling()
BLOG = PrefixSampling(variant="categories")


def observed(controller: PrefixSampling, *groups, step: int = 0, state=None) -> PrefixSamplingState:
    return controller.observe(state or controller.init(PROBLEMS), list(groups), step)


def prefixes(controller: PrefixSampling, state: PrefixSamplingState, step: int = 1, wanted: int = 20, size: int = 8):
    """The prefix requests that a plan gets, and the state after it."""
    plan, state = controller.propose(Plan(step, wanted, size, member="ps"), state, Stream(0))
    return plan.requests, state


def with_ratio(controller: PrefixSampling, name: str, ratio: float) -> PrefixSamplingState:
    return replace(controller.init(PROBLEMS), loops={name: Loop(Knob(ratio), 0.5, children=1)})


# Which groups


@pytest.mark.parametrize(
    ("size", "hard", "easy"),
    [
        (8, {1: "far_hard", 2: "near_hard"}, {6: "near_easy", 7: "far_easy"}),
        (4, {1: "near_hard"}, {3: "near_easy"}),
        (
            16,
            {1: "far_hard", 2: "far_hard", 3: "far_hard", 4: "near_hard"},
            {12: "near_easy", 13: "far_easy", 14: "far_easy", 15: "far_easy"},
        ),
        (10, {1: "far_hard", 2: "near_hard"}, {8: "near_easy", 9: "far_easy"}),  # 3/10 and 7/10 are balanced
        (3, {}, {}),
        (2, {}, {}),
    ],
)
def test_buckets_of_any_group_size(size: int, hard: dict, easy: dict):
    found = {}
    for passed in range(size + 1):
        side = side_of(passed, size)
        if side:
            found[passed] = (side, bucket_of(passed, size, side))
    assert found == {k: ("hard", name) for k, name in hard.items()} | {k: ("easy", name) for k, name in easy.items()}


@pytest.mark.parametrize("controller", [PAPER, BLOG])
def test_hard_groups_save_a_success_and_easy_ones_a_failure(controller: PrefixSampling):
    state = observed(controller, *(group(PROBLEMS[k], k) for k in range(9)))
    assert [(s.problem_id, s.passed, s.size, s.success) for s in state.pool] == [
        ("p1", 1, 8, True),
        ("p2", 2, 8, True),
        ("p6", 6, 8, False),
        ("p7", 7, 8, False),
    ]
    assert all(saved.step == 0 and saved.prefix(2).policy_version == 3 for saved in state.pool)
    # Rollout i of a group begins with token 100 i, and the last k succeeded: the first of the rarer outcome is saved.
    assert [int(saved.rollout.turns[0].tokens_T[0]) for saved in state.pool] == [700, 600, 0, 0]


@pytest.mark.parametrize(("sides", "problems"), [("hard", ["p1", "p2"]), ("easy", ["p6", "p7"])])
def test_prefixes_can_be_limited_to_one_side(sides, problems: list[str]):
    state = observed(PrefixSampling(sides=sides), *(group(PROBLEMS[k], k) for k in range(9)))
    assert [saved.problem_id for saved in state.pool] == problems


def test_only_fresh_groups_save_rollouts():
    groups = [child(PROBLEMS[0], (1, 8), 1), group(PROBLEMS[1], 1, origin=Origin.GENERATED), group(PROBLEMS[2], 1)]
    assert [saved.problem_id for saved in observed(PAPER, *groups).pool] == ["p2"]


def test_truncated_and_single_token_rollouts_are_not_saved_but_counted():
    cut_off = [rollout(False, truncated=True), rollout(False, first=50), *[rollout(True)] * 6]
    all_cut_off = [rollout(False, truncated=True), *[rollout(True)] * 7]
    short = [rollout(True, length=1), *[rollout(False)] * 7]
    state = observed(
        PAPER,
        group(PROBLEMS[0], 6, rollouts=cut_off),
        group(PROBLEMS[1], 7, rollouts=all_cut_off),
        group(PROBLEMS[2], 1, rollouts=short),
    )
    assert [int(saved.rollout.turns[0].tokens_T[0]) for saved in state.pool] == [50]
    counts = {name: number for name, number in state.counts.items() if number}
    assert counts == {"saved": 1, "dropped_truncated": 1, "dropped_too_short": 1}


# When, and how many


def test_saved_rollouts_are_for_a_later_step_and_used_once():
    state = observed(PAPER, group(PROBLEMS[5], 1), step=3)
    assert prefixes(PAPER, state, step=3)[0] == ()
    requests, after = prefixes(PAPER, state, step=4)
    assert [(r.problem.id, r.origin, r.num_rollouts) for r in requests] == [("p5", Origin.PREFIX, 8)]
    assert after.pool == ()
    assert prefixes(PAPER, after, step=4)[0] == ()


def test_prefix_carries_its_parent():
    (request,), _ = prefixes(PAPER, observed(PAPER, group(PROBLEMS[5], 7)))
    prefix = request.prefix
    assert (prefix.parent_passed, prefix.parent_size, prefix.parent_success) == (7, 8, False)
    assert (prefix.policy_version, prefix.unit, prefix.length) == (3, "tokens", 2)
    assert prefix.turns[0].tokens_T.tolist() == [0, 1]
    assert prefix.turns[0].num_replayed == 2
    assert request.decisions[0].action == "handicap far_easy 0.25"


def test_prefix_in_steps_keeps_whole_turns_with_their_observations():
    (request,), _ = prefixes(PAPER, observed(PAPER, group(PROBLEMS[5], 1, unit="steps")))
    assert (request.prefix.unit, request.prefix.length) == ("steps", 2)
    assert [turn.observation for turn in request.prefix.turns] == ["o0", "o1"]


def test_share_of_a_plan_is_bounded_and_the_newest_go_first():
    state = observed(PrefixSampling(max_age=3), *(group(PROBLEMS[i], 1) for i in range(6)))
    state = observed(PrefixSampling(max_age=3), *(group(PROBLEMS[i], 1) for i in range(6, 12)), step=1, state=state)
    requests, after = prefixes(PrefixSampling(max_age=3), state, step=2, wanted=17)
    assert [r.problem.id for r in requests] == ["p11", "p10", "p9", "p8", "p7", "p6", "p5", "p4"]
    assert [saved.problem_id for saved in after.pool] == ["p0", "p1", "p2", "p3"]
    # A second pass over the same plan finds the share used up.
    plan = Plan(2, 17, 8, requests, member="ps")
    again, _ = PrefixSampling(max_age=3).propose(plan, after, Stream(0))
    assert again.requests == requests


def test_plan_holds_a_problem_once_and_the_older_prefix_waits():
    controller = PrefixSampling(max_age=2)
    state = observed(controller, group(PROBLEMS[0], 1), step=0)
    state = observed(controller, group(PROBLEMS[0], 2), group(PROBLEMS[1], 2), step=1, state=state)
    requests, after = prefixes(controller, state, step=2)
    assert [(r.problem.id, r.prefix.parent_passed) for r in requests] == [("p1", 2), ("p0", 2)]
    assert [(saved.problem_id, saved.passed) for saved in after.pool] == [("p0", 1)]


@pytest.mark.parametrize(("max_age", "left"), [(1, [2, 2]), (2, [4, 4]), (3, [6, 6])])
def test_unused_rollouts_expire_and_are_counted(max_age: int, left: list[int]):
    controller = PrefixSampling(max_age=max_age)
    state = controller.init(PROBLEMS)
    for step in range(5):
        state = observed(controller, group(PROBLEMS[0], 1), group(PROBLEMS[1], 7), step=step, state=state)
    assert len(state.pool) == left[0]
    assert state.counts["dropped_expired"] == 10 - left[1]
    assert {saved.step for saved in state.pool} == set(range(5 - max_age, 5))


def test_prefix_slots_come_out_of_the_fixed_budget():
    members = chain(("ps", PAPER), ("uniform", Uniform()))
    state = members.init(PROBLEMS)
    state["ps"] = observed(PAPER, *(group(PROBLEMS[i], 1) for i in range(3)))
    plan, _ = propose(members, state, 1, wanted=10)
    origins = [request.origin for request in plan.requests]
    assert origins == [Origin.PREFIX] * 3 + [Origin.FRESH] * 7
    assert len({request.problem.id for request in plan.requests}) == 10


@pytest.mark.parametrize("size", [2, 3])
def test_small_groups_are_a_visible_no_op(size: int):
    state = observed(PAPER, *(group(PROBLEMS[k], k, size) for k in range(size + 1)))
    requests, state = prefixes(PAPER, state, size=size)
    assert requests == () and state.pool == ()
    assert PAPER.metrics(state)["steerable_counts"] == 0
    assert PAPER.metrics(prefixes(PAPER, state, size=8)[1])["steerable_counts"] == 4


# How long


@pytest.mark.parametrize(
    ("ratio", "length", "expected"),
    [(0.25, 20, 5), (0.25, 7, 1), (0.25, 3, 1), (0.25, 2, 1), (0.95, 2, 1), (0.95, 20, 19), (0.7, 10, 7)],
)
def test_paper_replays_the_floor_within_one_and_all_but_one(ratio: float, length: int, expected: int):
    for passed, name in ((1, "far_hard"), (7, "far_easy")):
        parent = group(PROBLEMS[0], passed, rollouts=[rollout(i < passed, length) for i in range(8)])
        (request,), _ = prefixes(PAPER, observed(PAPER, parent, state=with_ratio(PAPER, name, ratio)))
        assert request.prefix.length == expected


@pytest.mark.parametrize(
    ("options", "length", "hard", "easy"),
    [
        ({}, 20, 15, 5),  # the blog's example
        ({}, 3, 2, None),  # int(0.75) is 0: one unit is left to do; nothing to replay
        ({}, 2, 1, None),
        ({"remaining_cap": 2, "prefix_cap": 3}, 20, 18, 3),  # the published remaining cap makes a hard prefix longer
        ({"remaining_ratio": 0.95, "prefix_ratio": 0.95}, 2, 1, 1),
        ({"remaining_ratio": 0.5, "prefix_ratio": 0.1}, 10, 5, 1),
    ],
)
def test_blog_remaining_and_prefix_modes(options: dict, length: int, hard: int, easy: int | None):
    controller = PrefixSampling(variant="categories", **options)
    for passed, expected in ((1, hard), (7, easy)):
        parent = group(PROBLEMS[0], passed, rollouts=[rollout(i < passed, length) for i in range(8)])
        requests, state = prefixes(controller, observed(controller, parent))
        assert [request.prefix.length for request in requests] == ([] if expected is None else [expected])
        assert state.counts["dropped_empty_prefix"] == (expected is None)
        assert state.pool == ()


def test_empty_prefix_leaves_its_slot_to_the_next():
    short = group(PROBLEMS[1], 7, rollouts=[rollout(i < 7, 3) for i in range(8)])
    requests, _ = prefixes(BLOG, observed(BLOG, group(PROBLEMS[0], 7), short), wanted=2)
    assert [request.problem.id for request in requests] == ["p0"]


def test_cut_happens_with_the_ratio_of_the_moment():
    state = observed(PrefixSampling(cooldown=0, max_age=2), group(PROBLEMS[0], 1))
    children = [child(PROBLEMS[1], (1, 8), 0)] * 4
    later = observed(PrefixSampling(cooldown=0, max_age=2), *children, step=1, state=state)
    (request,), _ = prefixes(PrefixSampling(), later, step=2)
    assert request.prefix.length == 3  # 0.4 x 8 after moves at beliefs .451, .429, .407 (.475 is in the dead zone)


# Feedback


def fed(controller: PrefixSampling, parent: tuple[int, int], passed: int, steps: int, groups: int = 1):
    """Ratio after each step in which `groups` children with k = `passed` of 8 came back."""
    state, ratios = controller.init(PROBLEMS), []
    for step in range(steps):
        state = observed(controller, *[child(PROBLEMS[0], parent, passed)] * groups, step=step, state=state)
        (loop,) = state.loops.values()
        ratios.append(loop.knob.ratio)
    return ratios


@pytest.mark.parametrize(
    ("controller", "parent", "children", "direction"),
    [
        # Buckets: a longer head start is easier, a longer handicap harder.
        (PAPER, (1, 8), 0, +1),
        (PAPER, (2, 8), 8, -1),
        (PAPER, (6, 8), 0, -1),
        (PAPER, (7, 8), 8, +1),
        # Categories: a larger ratio is harder in both.
        (BLOG, (1, 8), 0, -1),
        (BLOG, (2, 8), 8, +1),
        (BLOG, (6, 8), 0, -1),
        (BLOG, (7, 8), 8, +1),
        (PAPER, (1, 8), 4, 0),
        (PAPER, (7, 8), 4, 0),
        (BLOG, (1, 8), 4, 0),
        (BLOG, (7, 8), 4, 0),
    ],
)
def test_ratio_moves_toward_the_target(controller: PrefixSampling, parent: tuple, children: int, direction: int):
    assert fed(controller, parent, children, steps=3)[-1] == 0.25 + 0.05 * direction


def test_paper_schedule_for_children_that_all_fail():
    # Belief .475 is inside the dead zone, .451 moves; then five zero-variance updates, then the next move.
    assert fed(PAPER, (1, 8), 0, steps=14) == [0.25] + [0.3] * 6 + [0.35] * 6 + [0.4]


def test_blog_cools_down_for_five_steps_whatever_the_number_of_children():
    ratios = fed(BLOG, (7, 8), 8, steps=14, groups=3)
    assert ratios == [0.25] + [0.3] * 6 + [0.35] * 6 + [0.4]


def test_paper_updates_by_group_or_by_step():
    def belief(controller: PrefixSampling) -> float:
        state = observed(controller, child(PROBLEMS[0], (1, 8), 8), child(PROBLEMS[1], (1, 8), 4))
        return state.loops["far_hard"].belief

    assert belief(PAPER) == pytest.approx(0.95 * (0.95 * 0.5 + 0.05) + 0.05 * 0.5)
    assert belief(PrefixSampling(update_unit="step")) == pytest.approx(0.95 * 0.5 + 0.05 * 0.75)


def test_cooldown_steps_are_a_floor_when_many_groups_come_back():
    controller = PrefixSampling(cooldown_steps=4)
    ratios = fed(controller, (1, 8), 0, steps=9, groups=10)
    assert ratios == [0.3] * 4 + [0.35] * 4 + [0.4]


def test_zero_variance_children_count():
    state = observed(PAPER, child(PROBLEMS[0], (1, 8), 0), child(PROBLEMS[1], (1, 8), 8), child(PROBLEMS[2], (1, 8), 4))
    metrics = PAPER.metrics(state)
    assert metrics["children_far_hard"] == 3
    assert metrics["child_pass_rate_far_hard"] == pytest.approx(0.5)
    assert metrics["zero_variance_share_far_hard"] == pytest.approx(2 / 3)


def test_buckets_are_independent():
    state = observed(PAPER, *[child(PROBLEMS[0], (1, 8), 0)] * 3)
    state = observed(PAPER, *[child(PROBLEMS[0], (7, 8), 4)] * 3, step=1, state=state)
    _, state = prefixes(PAPER, state)
    metrics = PAPER.metrics(state)
    ratios = {name: value for name, value in metrics.items() if name.startswith("ratio")}
    assert ratios == {"ratio_1_of_8": 0.3, "ratio_2_of_8": 0.25, "ratio_6_of_8": 0.25, "ratio_7_of_8": 0.25}


def test_blog_metrics_show_the_share_that_is_replayed():
    _, state = prefixes(BLOG, with_ratio(BLOG, "hard", 0.2))
    metrics = BLOG.metrics(state)
    assert (metrics["ratio_1_of_8"], metrics["ratio_2_of_8"], metrics["ratio_7_of_8"]) == (0.8, 0.8, 0.25)


def test_fixed_ratios_do_not_move_but_are_measured():
    controller = PrefixSampling(control="fixed")
    assert set(fed(controller, (1, 8), 0, steps=20)) == {0.25}
    assert observed(controller, child(PROBLEMS[0], (1, 8), 0)).loops["far_hard"].belief == pytest.approx(0.475)


def test_children_without_scored_rollouts_are_counted_and_teach_nothing():
    state = observed(PAPER, child(PROBLEMS[0], (1, 8), 0, size=0))
    assert state.loops == {} and state.counts["unscored_children"] == 1


def test_ratios_respect_their_bounds():
    controller = PrefixSampling(cooldown=0, bounds=(0.2, 0.4))
    assert max(fed(controller, (1, 8), 0, steps=40)) == 0.4
    assert min(fed(controller, (1, 8), 8, steps=40)) == 0.2


def child_rates(controller: PrefixSampling) -> dict[bool, list[float]]:
    """Pass rates of head starts (True) and handicaps (False) in the second half of a simulated run."""
    members = chain(("ps", controller), ("uniform", Uniform()))
    learner = SimulatedRollouts(growth=0.0)
    state, rates = members.init(problem_set(400)), {True: [], False: []}
    for step in range(160):
        plan, state = propose(members, state, step, wanted=16)
        groups = learner.run(plan.requests, Stream(0).at(step, "rollout"))
        state = members.observe(state, groups, step)
        for g in groups:
            if step >= 80 and g.request.prefix:
                rates[g.request.prefix.parent_success].append(g.pass_rate)
    return rates


@pytest.mark.parametrize(
    "controller",
    [
        PAPER,
        PrefixSampling(update_unit="step"),
        PrefixSampling(cooldown_steps=3),
        BLOG,
    ],
)
def test_simulated_children_pass_half_of_the_time(controller: PrefixSampling):
    for late in child_rates(controller).values():
        assert len(late) > 100
        assert np.mean(late) == pytest.approx(0.5, abs=0.07)


def test_fixed_ratios_miss_the_target_on_the_simulated_learner():
    rates = child_rates(PrefixSampling(control="fixed", initial_ratio=0.05))
    assert np.mean(rates[True]) < 0.4 < 0.6 < np.mean(rates[False])


# Options and state


@pytest.mark.parametrize("unit", ["tokens", "steps"])
def test_pool_and_loops_survive_json(unit):
    controller = PrefixSampling(max_age=3)
    state = observed(controller, group(PROBLEMS[0], 1, unit=unit), group(PROBLEMS[1], 7, unit=unit))
    state = observed(controller, *[child(PROBLEMS[2], (1, 8), 0)] * 3, step=1, state=state)
    restored = through_json(controller, PROBLEMS, state)
    assert save_state(restored) == save_state(state)
    assert restored.loops == state.loops
    for before, after in zip(prefixes(controller, state)[0], prefixes(controller, restored)[0], strict=True):
        for a, b in zip(before.prefix.turns, after.prefix.turns, strict=True):
            assert a.tokens_T.tolist() == b.tokens_T.tolist() and a.tokens_T.dtype == b.tokens_T.dtype
            assert (a.observation, a.num_replayed) == (b.observation, b.num_replayed)
            assert a.logprobs_T.tolist() == b.logprobs_T.tolist()


def test_saved_rollouts_leave_out_what_replay_does_not_need():
    state = observed(PAPER, group(PROBLEMS[0], 1))
    assert "-0.25" not in json.dumps(save_state(state))
