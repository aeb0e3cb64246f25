"""PROS: the forest, the selection laws, the controller and its bad input, on scripted groups and the simulator."""

import json
from collections import Counter
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from controller_harness import child, group, play, problem_set, propose, rollout, simulated
from messages import says
from msgspec import structs

from halfway.controllers.beliefs.forest import CACHED, bare_forest, enforce_caps, grow, learn, nodes_of, prune
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes
from halfway.controllers.beliefs.logit_normal import sigmoid, with_evidence
from halfway.controllers.greso import Greso
from halfway.controllers.laws.choose_nodes import (
    Taken,
    by_update_mass,
    distance_to_band,
    in_random_order,
    nearest,
    pick,
    tree_of,
)
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.prefixes.reuse import prefix_of, text_of
from halfway.controllers.pros import Pros
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Decision, Origin, Plan, Stream, UserError, chain, restore_state, save_state
from halfway.curriculum.decision_log import group_record
from halfway.testing.simulator import SimulatedRollouts

PROBLEMS = problem_set(40)
BELIEF = PassRateBelief(bayes=HierarchicalBayes(inference="fixed_point"))
FAST = Pros(belief=BELIEF)


def bare(trees: int):
    return BELIEF.init(trees)


# The forest.


def test_counts_forget_when_observed():
    forest = learn(bare(3), [0, 1], [8, 2], [8, 8], 0.5)
    forest = learn(forest, [0], [0], [8], 0.5)
    assert forest.passed_M.tolist() == [4, 2, 0]
    assert forest.tried_M.tolist() == [12, 8, 0]


def test_counts_forget_every_step_if_asked():
    forest = learn(bare(2), [0, 1], [8, 2], [8, 8], 0.5)
    forest = replace(forest, stale_R=np.zeros(2, np.bool_))
    forest = learn(forest, [0], [0], [8], 0.5, "step")
    assert forest.passed_M.tolist() == [4, 1] and forest.tried_M.tolist() == [12, 4]
    assert forest.stale_R.all()
    assert learn(forest, [], [], [], 0.5, "step").tried_M.tolist() == [6, 2]
    assert learn(forest, [], [], [], 0.5) is forest


def test_counts_forgotten_long_ago_are_not_evidence():
    forest = learn(bare(2), [0], [8], [8], 0.1)
    for _ in range(6):
        forest = learn(forest, [], [], [], 0.1, "step")
    assert forest.passed_M[0] == pytest.approx(8e-6)
    forest = learn(forest, [], [], [], 0.1, "step")
    assert (forest.passed_M[0], forest.tried_M[0]) == (0.0, 0.0)


def test_a_node_seen_twice_in_a_step_forgets_once():
    forest = learn(learn(bare(1), [0], [4], [8], 0.5), [0, 0], [1, 2], [8, 8], 0.5)
    assert (forest.passed_M[0], forest.tried_M[0]) == (5, 20)


def test_the_evidence_of_a_child_is_not_that_of_its_root():
    forest = grow(bare(3), [1, 1, 2])
    forest = replace(forest, stale_R=np.zeros(3, np.bool_))
    forest = learn(forest, [4], [7], [8], 0.9)
    assert forest.tried_M.tolist() == [0, 0, 0, 0, 8, 0]
    assert forest.stale_R.tolist() == [False, True, False]


def test_more_successes_than_rollouts_are_refused():
    with pytest.raises(ValueError, match="more successes"):
        learn(bare(1), [0], [9], [8], 0.9)


def test_nodes_of_trees_come_sorted():
    forest = grow(bare(4), [2, 0, 2, 3, 0])
    nodes, place = nodes_of(forest, np.asarray([0, 2]))
    assert nodes.tolist() == [0, 2, 5, 8, 4, 6]
    assert place.tolist() == [0, 0, 1, 1]


def test_pruning_keeps_the_rest_in_place_and_notes_lost_evidence():
    forest = learn(grow(bare(2), [0, 1, 1]), [2, 4], [1, 2], [8, 8], 0.9)
    forest = replace(forest, stale_R=np.zeros(2, np.bool_))
    after = prune(forest, np.asarray([True, False, True]))
    assert after.tree_C.tolist() == [0, 1] and after.tried_M.tolist() == [0, 0, 8, 8]
    assert not after.stale_R.any()
    assert prune(forest, np.asarray([False, True, True])).stale_R.tolist() == [True, False]


def test_pruning_changes_only_arrays_that_the_forest_does_not_share():
    before = learn(grow(bare(2), [0, 1, 1]), [2, 4], [1, 2], [8, 8], 0.9)
    made = replace(before, logit_M=before.logit_M.copy(), rate_M=np.linspace(0.1, 0.9, 5))
    wanted, shared = prune(made, np.asarray([False, True, True])), (before.passed_M.copy(), before.tried_M.copy())
    after = prune(made, np.asarray([False, True, True]), before)
    for name in ("tree_C", "passed_M", "tried_M", "logit_M", "rate_M", "stale_R"):
        assert getattr(after, name).tolist() == getattr(wanted, name).tolist(), name
    assert (before.passed_M == shared[0]).all() and (before.tried_M == shared[1]).all()
    assert np.shares_memory(after.rate_M, made.rate_M) and not np.shares_memory(after.tried_M, made.tried_M)


def test_the_first_damaged_count_is_named_wherever_it_is():
    forest = bare(3 * CACHED)
    tried_M = forest.tried_M.copy()
    tried_M[[CACHED + 7, 2 * CACHED]] = -1.0
    forest.check_counts()
    with pytest.raises(UserError, match=f"node {CACHED + 7} has"):
        replace(forest, tried_M=tried_M).check_counts()


def test_evidence_of_some_trees_is_theirs_in_all():
    forest = learn(grow(bare(4), [0, 2]), [1, 5], [1, 1], [8, 8], 0.9)
    assert with_evidence(forest).tolist() == [False, True, True, False]
    assert with_evidence(forest, np.asarray([3, 2, 1])).tolist() == [False, True, True]


@pytest.mark.parametrize("band", [(0.5, 0.5), (0.25, 0.5)])
def test_the_distance_to_a_band_is_that_to_the_nearest_rate_in_it(band):
    rate_M = np.asarray([0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0, np.nan])
    wanted = np.abs(rate_M - np.clip(rate_M, *band))
    assert distance_to_band(rate_M, band).tobytes() == wanted.tobytes()


def test_caps_keep_the_nearest_and_the_newest_of_equals():
    forest = grow(bare(2), [0, 0, 0, 1, 1])
    keep, from_tree, from_total = enforce_caps(forest, np.asarray([0.3, 0.1, 0.1, 0.2, 0.4]), 1, None)
    assert keep.tolist() == [False, False, True, True, False] and (from_tree, from_total) == (3, 0)
    keep, from_tree, from_total = enforce_caps(forest, np.asarray([0.3, 0.1, 0.1, 0.2, 0.4]), 2, 2)
    assert keep.tolist() == [False, True, True, False, False] and (from_tree, from_total) == (1, 2)
    assert enforce_caps(forest, np.zeros(5), None, None)[0].all()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data["passed_M"]["values"].append(0.0), "values for"),
        (lambda data: data["tree_C"]["values"].__setitem__(0, 99), "tree that does not exist"),
    ],
)
def test_damaged_forests_are_refused(damage, words: str):
    forest = grow(bare(3), [1])
    data = save_state(forest)
    damage(data)
    with pytest.raises((UserError, ValueError), match=words):
        restore_state(forest, data)


# Selection.


def test_distance_to_a_band():
    rates = np.asarray([0.0, 0.3, 0.4, 0.5, 0.9])
    assert distance_to_band(rates, (0.5, 0.5)) == pytest.approx([0.5, 0.2, 0.1, 0, 0.4])
    assert distance_to_band(rates, (0.35, 0.6)) == pytest.approx([0.35, 0.05, 0, 0, 0.3])


def ranking(forest, ties="random", seed=0):
    return nearest(forest, (0.5, 0.5), ties, np.random.default_rng(seed))


def test_nearest_nodes_under_a_quota():
    forest = replace(grow(bare(4), [0, 0, 1]), rate_M=np.asarray([0.88, 0.45, 0.1, 0.52, 0.5, 0.485, 0.43]))
    assert pick(ranking(forest), forest, 7, None, Taken()) == [4, 5, 3, 1, 6, 0, 2]
    assert pick(ranking(forest), forest, 3, 1, Taken()) == [4, 3, 1]
    assert pick(ranking(forest), forest, 2, 1, Taken(nodes={4}, trees=Counter({0: 1}))) == [3, 1]
    assert pick(ranking(forest), forest, 2, 1, Taken(refused={3})) == [4, 1]


def test_quota_and_refusals_are_dropped_when_nothing_else_is_left():
    forest = replace(grow(bare(2), [0]), rate_M=np.asarray([0.5, 0.1, 0.4]))
    assert pick(ranking(forest), forest, 3, 1, Taken()) == [0, 1, 2]
    assert pick(ranking(forest), forest, 3, 1, Taken(refused={0})) == [2, 1, 0]
    assert Counter(pick(ranking(forest), forest, 7, 1, Taken())) == {0: 3, 2: 2, 1: 2}
    assert pick(ranking(forest), forest, 0, 1, Taken()) == []


def test_ties_are_broken_at_random_or_by_trials():
    forest = learn(bare(1000), list(range(500)), [4] * 500, [8] * 500, 1.0)
    forest = replace(forest, rate_M=np.full(1000, 0.5))
    drawn = [pick(ranking(forest, seed=seed), forest, 10, None, Taken()) for seed in range(20)]
    assert len({node for nodes in drawn for node in nodes}) > 150
    least = pick(ranking(forest, "least_tried"), forest, 500, None, Taken())
    assert set(least) == set(range(500, 1000))


def test_ties_do_not_outweigh_a_distance():
    forest = learn(bare(2), [0], [800], [1600], 1.0)
    forest = replace(forest, rate_M=np.asarray([0.5, 0.5 + 3e-6]))
    for seed in range(10):
        assert pick(ranking(forest, "least_tried", seed), forest, 1, None, Taken()) == [0]


@pytest.mark.parametrize("order", ["nearest", "random"])
def test_a_ranking_continues_where_it_stopped(order):
    forest = replace(bare(300), rate_M=np.random.default_rng(5).integers(0, 4, 300) / 8)
    ranked = ranking(forest) if order == "nearest" else in_random_order(forest, np.random.default_rng(0))
    begun = ranked.first(7)
    assert ranked.first(40)[:7] == begun and ranked.first(3) == begun[:3]
    whole = ranked.first(1000)
    assert sorted(whole) == list(range(300))
    if order == "nearest":
        assert (np.diff(np.abs(forest.rate_M[whole] - 0.5)) >= 0).all()


# The controller.


def test_roots_that_were_never_tried_come_first():
    state = FAST.init(PROBLEMS)
    plan, state = propose(replace(FAST, exploration=0.0), state, 0, wanted=10)
    state = FAST.observe(state, [group(r.problem, 8) for r in plan.requests], 0)
    tried = {r.problem.id for r in plan.requests}
    later, _ = propose(replace(FAST, exploration=0.0, reuse=False), state, 1, wanted=30)
    assert not tried & {r.problem.id for r in later.requests}


def test_every_correct_rollout_seeds_a_child_once():
    state = FAST.init(PROBLEMS)
    three = group(PROBLEMS[4], 3)
    state = FAST.observe(state, [three, three, group(PROBLEMS[5], 0)], 0)
    assert state.forest.tree_C.tolist() == [4, 4, 4]
    assert state.counts["seeded"] == 3 and state.counts["dropped_duplicate"] == 3
    texts = [prefix_of(start).turns[0].tokens_T.tolist() for start in state.starts]
    assert [tokens[0] for tokens in texts] == [500, 600, 700]
    assert {(start.passed, start.size) for start in state.starts} == {(3, 8)}
    assert FAST.observe(state, [three], 1).counts["dropped_duplicate"] == 6


def test_children_count_for_themselves_and_give_grandchildren_to_their_root():
    _, state = play(FAST, FAST.init(PROBLEMS), range(6), wanted=20)
    plan, state = propose(FAST, state, 6, wanted=20)
    request = next(r for r in plan.requests if r.origin is Origin.PREFIX)
    tree = PROBLEMS.position(request.problem.id)
    [result] = simulated(6).run([request], Stream(3))
    before = state.forest
    after = FAST.observe(state, [result], 6)
    assert after.forest.tried_M[:40].tolist() == before.tried_M[:40].tolist()
    [grown] = np.flatnonzero(after.forest.tried_M[: len(before.tried_M)] != before.tried_M)
    assert tree_of(before, int(grown)) == tree
    assert after.forest.tried_M[grown] == pytest.approx(0.9 * before.tried_M[grown] + 8)
    added = after.forest.tree_C[before.num_children :].tolist()
    dropped = sum(after.counts[name] - state.counts[name] for name in ("dropped_duplicate", "dropped_leak"))
    assert added == [tree] * len(added) and len(added) + dropped == result.num_passed > dropped
    alone = replace(FAST, grandchildren=False).observe(state, [result], 6)
    assert alone.forest.num_children == before.num_children
    assert after.replayed - state.replayed == 8 * request.prefix.num_tokens


def test_caps_hold_in_every_plan_and_evictions_are_counted():
    controller = replace(FAST, tree_children=2, total_children=30)
    state = controller.init(PROBLEMS)
    for step in range(12):
        plan, state = propose(controller, state, step, wanted=20)
        assert state.forest.num_children <= 30
        assert np.bincount(state.forest.tree_C, minlength=1).max() <= 2
        assert len(state.starts) == state.forest.num_children
        state = controller.observe(state, simulated(step).run(plan.requests, Stream(0).at(step)), step)
    counts = state.counts
    assert counts["evicted_tree"] > 0 and counts["evicted_total"] > 0
    assert counts["seeded"] == counts["evicted_tree"] + counts["evicted_total"] + state.forest.num_children


def test_further_rounds_of_a_step_take_other_nodes():
    controller = replace(FAST, tree_children=2, per_tree=2)
    _, state = play(controller, controller.init(PROBLEMS), range(6), wanted=20)
    nodes: list[tuple[str, bytes]] = []
    for round_index in range(3):
        plan, state = controller.propose(Plan(6, 15, 8), state, Stream(0).at(6, round_index))
        nodes += [(r.problem.id, text_of(r.prefix) if r.prefix else b"") for r in plan.requests]
    assert len(nodes) == 45 == len(set(nodes))
    assert max(Counter(problem for problem, _ in nodes).values()) == 2
    plan, state = controller.propose(Plan(7, 15, 8), state, Stream(0).at(7))
    assert len(state.offered) == 15 and state.offered_in == 7


def test_groups_of_others_from_earlier_rounds_count_in_the_quota_of_their_tree():
    problems = problem_set(3)
    prefixed = child(problems[0], (1, 8), 4)
    signed = structs.replace(prefixed.request, ticket="0.0.0", decisions=(Decision("other", "prefix"),))
    plan = Plan(0, 2, 8, member="pros", in_hand=(replace(prefixed, request=signed),))
    for seed in range(10):
        full, _ = FAST.propose(plan, FAST.init(problems), Stream(seed))
        assert {request.problem.id for request in full.requests} == {"p1", "p2"}


def test_a_pool_without_children_and_a_child_that_is_gone():
    _, state = play(FAST, FAST.init(PROBLEMS), range(6), wanted=20)
    plan, state = propose(FAST, state, 6, wanted=20)
    groups = simulated(6).run(plan.requests, Stream(0))
    gone = prune(state.forest, np.zeros(state.forest.num_children, np.bool_))
    empty = replace(state, forest=gone, starts=())
    after = replace(FAST, reuse=False).observe(empty, groups, 6)
    prefixed = sum(r.origin is Origin.PREFIX for r in plan.requests)
    assert prefixed > 0 and after.counts["foreign"] - state.counts["foreign"] == prefixed
    assert after.forest.num_children == 0
    plan, _ = propose(FAST, empty, 7, wanted=50)
    assert plan.missing == 0 and all(r.prefix is None for r in plan.requests)


def test_empty_groups_and_truncated_rollouts_are_counted():
    state = FAST.init(PROBLEMS)
    nothing = replace(group(PROBLEMS[0], 0), rollouts=())
    cut_off = group(PROBLEMS[1], 8, rollouts=[rollout(True, truncated=True)] * 8)
    short = group(PROBLEMS[2], 8, rollouts=[rollout(True, length=3)] * 8)
    state = FAST.observe(state, [nothing, cut_off, short], 0)
    assert state.counts["unscored"] == 1
    assert state.counts["dropped_truncated"] == 8 and state.counts["dropped_too_short"] == 8
    assert state.forest.num_children == 0 and state.forest.tried_M[0] == 0


def test_selection_moves_groups_toward_the_target():
    wide = SimulatedRollouts(spread=2.5, growth=0.0)

    def zero_variance_share(controller) -> float:
        state, late = controller.init(problem_set(200)), []
        for step in range(40):
            plan, state = propose(controller, state, step, wanted=24)
            groups = wide.run(plan.requests, Stream(0).at(step))
            state = controller.observe(state, groups, step)
            late += [g.zero_variance for g in groups] if step >= 20 else []
        return float(np.mean(late))

    near, at_random = zero_variance_share(FAST), zero_variance_share(replace(FAST, selection="random"))
    assert near < 0.8 * at_random  # 0.67 +- 0.08 over seeds


def test_selection_by_mass_prefers_rare_successes_to_rare_failures():
    forest = replace(bare_forest(2, 0.0, 0.5), rate_M=np.asarray([0.2, 0.8]))
    firsts = [by_update_mass(forest, 8, np.random.default_rng(seed)).first(1)[0] for seed in range(4000)]
    hard, easy = 1 - 0.8**8 - 0.2, 1 - 0.2**8 - 0.8
    assert firsts.count(0) / 4000 == pytest.approx(hard / (hard + easy), abs=0.03)
    plan, _ = propose(replace(FAST, selection="mass", exploration=0.0), FAST.init(PROBLEMS), 0)
    assert {request.decisions[-1].action.split()[0] for request in plan.requests} == {"mass"}


def test_random_selection_ignores_beliefs():
    controller = replace(FAST, selection="random", per_tree=None)
    state = controller.init(PROBLEMS)
    state = controller.observe(state, [group(p, 8) for p in PROBLEMS[:20]], 0)
    used = Counter()
    for step in range(1, 400):
        plan, _ = controller.propose(Plan(step, 4, 8), state, Stream(0).at(step))
        used.update(r.problem.id for r in plan.requests if r.prefix is None)
    counts = np.asarray([used[p.id] for p in PROBLEMS])
    assert counts[:20].mean() == pytest.approx(counts[20:].mean(), rel=0.25) and counts.min() > 0


def test_exploration_is_a_share_of_the_plan():
    controller = replace(FAST, exploration=0.3)
    state = controller.init(problem_set(400))
    actions = Counter()
    for step in range(20):
        plan, _ = controller.propose(Plan(step, 50, 8, member="pros"), state, Stream(0).at(step))
        actions.update(r.decisions[0].action.split()[0] for r in plan.requests)
    assert actions["explored"] / actions.total() == pytest.approx(0.3, abs=0.05)


# With companions.


def test_refused_next_to_prefix_sampling_unless_reuse_is_off():
    with pytest.raises(UserError, match=says("ps", "pros", "prefixes")):
        chain(("ps", PrefixSampling()), ("pros", Pros()))
    with pytest.raises(UserError, match=says("pros", "uniform", "problems")):
        chain(("pros", Pros()), ("uniform", Uniform()))
    both = chain(("ps", PrefixSampling()), ("pros", replace(FAST, reuse=False)))
    state = both.init(PROBLEMS)
    origins = Counter()
    for step in range(20):
        plan, state = propose(both, state, step)
        origins.update(r.origin for r in plan.requests)
        state = both.observe(state, simulated(step).run(plan.requests, Stream(0).at(step)), step)
    assert origins[Origin.PREFIX] > 20 and origins[Origin.FRESH] > 20
    assert state["pros"].forest.num_children == 0
    assert state["pros"].counts["foreign"] == origins[Origin.PREFIX]


def test_a_problem_that_greso_refuses_is_not_offered_again():
    both = chain(("pros", FAST), ("greso", Greso(p_easy=0.05, p_hard=0.05)))
    state = both.init(PROBLEMS)
    skipped = 0
    for step in range(30):
        plan, state = propose(both, state, step, wanted=16)
        assert plan.missing == 0
        refused = [skip.problem_id for skip in plan.skipped]
        assert len(refused) == len(set(refused))
        skipped += len(refused)
        state = both.observe(state, simulated(step).run(plan.requests, Stream(0).at(step)), step)
    assert skipped > 0


# The decision log, and bad input.


def played_with_log(controller, steps: int):
    state, records = controller.init(PROBLEMS), []
    for step in range(steps):
        plan, state = propose(controller, state, step)
        groups = simulated(step).run(plan.requests, Stream(0).at(step))
        state = controller.observe(state, groups, step)
        records += [group_record(g, step, 0, "zero_variance" if g.zero_variance else "trained") for g in groups]
    return state, [json.loads(json.dumps(record)) for record in records]


def recounted(belief, records):
    """Each problem's discounted successes and rollouts, from the decision log alone."""
    forest = belief.init(len(PROBLEMS))
    for _, step in groupby(records, key=lambda record: record["step"]):
        fresh = [record for record in step if record["origin"] == "fresh"]
        nodes = [PROBLEMS.position(record["problem"]) for record in fresh]
        forest = belief.learn(forest, nodes, [r["k"] for r in fresh], [r["n"] for r in fresh])
    return forest.passed_M, forest.tried_M


@pytest.mark.parametrize("decay_on", ["observe", "step"])
def test_counts_agree_with_the_decision_log(decay_on):
    belief = replace(BELIEF, decay_on=decay_on)
    state, records = played_with_log(replace(FAST, belief=belief), 15)
    passed_R, tried_R = recounted(belief, records)
    assert tried_R.any()
    assert state.forest.passed_M[: len(PROBLEMS)] == pytest.approx(passed_R)
    assert state.forest.tried_M[: len(PROBLEMS)] == pytest.approx(tried_R)


def test_a_state_with_more_successes_than_rollouts_is_refused():
    state = FAST.init(PROBLEMS)
    passed_M = state.forest.passed_M.copy()
    passed_M[3] = 2.0
    damaged = replace(state, forest=replace(state.forest, passed_M=passed_M))
    with pytest.raises(UserError, match=says("node 3", "2.0", "0.0")):
        FAST.observe(damaged, [], 0)


# What the hierarchy buys.


def drifting_errors(
    steps: int = 60, children: int = 6, growth: float = 0.02, forgetting: float = 0.9
) -> dict[str, float]:
    """Mean absolute error of four beliefs in the pass rates of children that were never tried, late in a drift.

    Eighty trees; every step tries each root with probability 0.05 and each of the tree's first three children with
    probability 0.15. The policy's skill grows in every step. Children scatter around their root. "parent" is the same
    model with the counts of roots alone; "last" takes the last rate of the root, since the child has none.
    """
    problems, simulated = problem_set(80), SimulatedRollouts(growth=growth, spread=1.5)
    generator = np.random.default_rng(0)
    tree_C = np.repeat(np.arange(80), children)
    seen = [*range(80), *(80 + c for c in range(len(tree_C)) if c % children < 3)]
    unseen = [80 + c for c in range(len(tree_C)) if c % children >= 3]
    skill_R = np.asarray([-simulated.difficulty(p) for p in problems])
    offset_M = np.concatenate([np.zeros(80), generator.normal(0, 0.5, len(tree_C))])
    tree_M = np.concatenate([np.arange(80), tree_C])
    beliefs = {
        "tree": PassRateBelief(forgetting=forgetting, bayes=HierarchicalBayes(inference="fixed_point")),
        "beta": PassRateBelief(kind="beta", forgetting=forgetting),
        "last": PassRateBelief(kind="last_rate"),
    }
    forests = {name: grow(belief.init(80), tree_C.tolist()) for name, belief in beliefs.items()}
    forests["parent"], beliefs["parent"] = forests["tree"], beliefs["tree"]
    errors = {name: [] for name in beliefs}
    for step in range(steps):
        truth_M = sigmoid(skill_R[tree_M] + offset_M + growth * step)
        tried = [n for n in seen if generator.random() < (0.05 if n < 80 else 0.15)]
        passed = generator.binomial(8, truth_M[tried]).tolist()
        for name, belief in beliefs.items():
            kept = [(n, k) for n, k in zip(tried, passed, strict=True) if name != "parent" or n < 80]
            forest = belief.learn(forests[name], [n for n, _ in kept], [k for _, k in kept], [8] * len(kept))
            forests[name] = belief.refresh(forest, step, Stream(0).at(step))
            if step >= steps // 2:
                errors[name].append(np.abs(forests[name].rate_M[unseen] - truth_M[unseen]).mean())
    return {name: float(np.mean(values)) for name, values in errors.items()}


def test_unvisited_children_are_believed_better_with_the_tree():
    errors = drifting_errors()
    assert errors["tree"] < 0.85 * errors["parent"]
    assert errors["tree"] < 0.75 * errors["last"]
    assert errors["tree"] < 0.5 * errors["beta"]
    assert errors["tree"] < 0.12
