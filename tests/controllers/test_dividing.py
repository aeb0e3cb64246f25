"""Controllers that divide: `knapsack` rollouts among groups, `mixture` slots among members."""

from dataclasses import replace

import numpy as np
import pytest
from controller_harness import child, group, problem_set, propose
from messages import says
from msgspec import structs

from halfway.controllers.chains import check_chain, members
from halfway.controllers.contrib.knapsack import Knapsack, KnapsackState
from halfway.controllers.greso import Greso
from halfway.controllers.laws.category_shares import part_by_rate
from halfway.controllers.laws.slots import dither, slots_left
from halfway.controllers.mixture import Credit, Mixture
from halfway.controllers.probe import Probed
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Chain, Group, Origin, Plan, Request, Session, Stream, UserError, chain
from halfway.curriculum.controller import NEEDS

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


@pytest.mark.parametrize("size", [2, 8, 24])
def test_a_stored_group_takes_the_same_part_of_the_budget_however_large_it_is(size: int) -> None:
    knapsack, old = Knapsack(), group(PROBLEMS[2], 1, size)
    stored = Request(PROBLEMS[2], size, Origin.STORED, stored=old)
    requests = (stored, Request(PROBLEMS[0], 8), Request(PROBLEMS[1], 8))
    plan, _ = knapsack.propose(Plan(1, 3, 8, requests, member="k"), believing([1, 8], knapsack), Stream(0))
    assert [request.num_rollouts for request in plan.requests] == [size, 14, 2]


def test_the_belief_is_the_last_pass_rate_unless_it_is_averaged() -> None:
    for alpha, expected in ((1.0, 1.0), (0.25, 0.25)):
        knapsack = Knapsack(alpha=alpha)
        state = knapsack.observe(believing([0], knapsack), [group(PROBLEMS[0], 8)], 1)
        assert state.rate_P[0] == expected


def test_a_budget_below_the_least_allocation_is_refused_in_one_line() -> None:
    knapsack = Knapsack(least=9)
    with pytest.raises(UserError, match=says("knapsack.least", "(9, 128)", "rollouts.num_rollouts=8")) as caught:
        sizes(knapsack, knapsack.init(PROBLEMS))
    assert "\n" not in str(caught.value)


MIXED = problem_set(12, generated=200)
FRESH = [group(MIXED[0], 0), group(MIXED[1], 4)]  # 8 rollouts of 8 tokens each, prompts of 2


def quotas(mixture: Mixture, *steps: list[Group]) -> dict[Origin, float]:
    state = mixture.init(MIXED)
    for step, groups in enumerate(steps):
        state = mixture.observe(state, groups, step)
    return mixture.quotas(state)


def test_a_part_falls_with_what_the_source_yields() -> None:
    assert part_by_rate(2.0, 2.0, 4.0, 0.1) == part_by_rate(0.0, 0.0, 4.0, 0.1) == 0.5
    assert part_by_rate(3.0, 1.0, 2.0, 0.1) == pytest.approx(0.9)
    assert part_by_rate(1.0, 3.0, 2.0, 0.0) == pytest.approx(0.1)
    assert part_by_rate(0.0, 1.0, 4.0, 0.1) == part_by_rate(1.0, float("inf"), 4.0, 0.1) == 0.1
    assert part_by_rate(1e-300, 1.0, 16.0, 0.1) == 0.1
    assert part_by_rate(float("inf"), 1.0, 4.0, 0.1) == part_by_rate(1.0, 0.0, 4.0, 0.1) == 1.0


def test_the_quotas_are_those_of_the_formula() -> None:
    # Fresh: 128 tokens generated, and 80 trained at half the price. A prefixed group: 64, and the same 40. So fresh
    # groups yield 1 / 168 a token at 84 tokens each, and two of those count as the prefix's own: 2 / 272.
    own = quotas(Mixture(rho=0.5, sharpness=2.0, prior=2.0), [*FRESH, child(MIXED[2], (1, 8), 3)])
    fresh, prefixed, stored = 1 / 168, 2 / (104 + 2 * 84), 0.35 * 2 / 80
    assert own[Origin.PREFIX] == pytest.approx(prefixed**2 / (prefixed**2 + fresh**2))
    assert own[Origin.STORED] == pytest.approx(stored**2 / (stored**2 + fresh**2))
    assert own[Origin.GENERATED] == pytest.approx(0.5)  # nothing is known but what fresh groups yield


def test_a_group_is_worth_its_update_mass_on_request() -> None:
    rare, common = child(MIXED[2], (1, 8), 1), child(MIXED[2], (1, 8), 7)
    by_groups, by_mass = Mixture(), Mixture(worth="mass")
    assert quotas(by_groups, [*FRESH, rare]) == quotas(by_groups, [*FRESH, common])
    assert quotas(by_mass, [*FRESH, rare])[Origin.PREFIX] > quotas(by_mass, [*FRESH, common])[Origin.PREFIX]


def test_stored_groups_have_all_of_their_share_where_training_is_free_and_little_where_it_is_dear() -> None:
    assert quotas(Mixture(rho=0.0), FRESH)[Origin.STORED] == 1.0
    assert quotas(Mixture(rho=100.0), FRESH)[Origin.STORED] == 0.1


def test_a_source_that_teaches_nothing_withdraws_to_the_floor_and_is_tried_again_later() -> None:
    failed = [child(MIXED[2], (1, 8), 0)] * 8
    mixture = Mixture(floor=0.05)
    assert quotas(mixture, [*FRESH, *failed])[Origin.PREFIX] == 0.05
    assert quotas(mixture, [*FRESH, *failed], *[FRESH] * 60)[Origin.PREFIX] == pytest.approx(0.5, abs=0.01)


def test_an_outcome_of_hinted_problems_is_one_of_fresh_ones() -> None:
    hinted = [replace(g, request=structs.replace(g.request, origin=Origin.HINTED)) for g in FRESH]
    failed = [child(MIXED[2], (1, 8), 0)]
    assert quotas(Mixture(), [*hinted, *failed]) == quotas(Mixture(), [*FRESH, *failed])


def test_a_quota_scales_the_share_of_a_member_and_is_met_over_the_steps() -> None:
    plan = Plan(0, 16, 8, member="probe")
    assert slots_left(plan, 0.25, Origin.GENERATED) == 4
    halved = replace(plan, quotas={Origin.GENERATED: 0.5})
    assert (slots_left(halved, 0.25, Origin.GENERATED), slots_left(halved, 0.25, Origin.PREFIX)) == (2, 4)
    rare = [replace(plan, step=step, quotas={Origin.GENERATED: 0.1}) for step in range(100)]
    slots = [slots_left(one, 0.25, Origin.GENERATED) for one in rare]
    assert set(slots) == {0, 1} and sum(slots) == pytest.approx(40, abs=1)  # .4 of a slot in the mean
    taken = replace(halved, step=1).add([Request(MIXED.generated[0], 8, Origin.GENERATED)], "probed")
    assert slots_left(taken, 0.25, Origin.GENERATED) == 1
    extended = plan.add([Request(MIXED.generated[0], 8, Origin.GENERATED, extends="0.0.0")], "probed")
    assert slots_left(extended, 0.25, Origin.GENERATED) == 4  # what extends a group in hand takes no slot


@pytest.mark.parametrize("amount", [0.0, 0.07, 0.5, 2.0, 3.9])
def test_dithering_keeps_the_mean(amount: float) -> None:
    numbers = [dither(amount, step) for step in range(1000)]
    assert max(numbers) - min(numbers) <= 1 and sum(numbers) == pytest.approx(1000 * amount, abs=3)


def generated_slots(fresh_passed: int, generated_passed: int) -> list[int]:
    """Slots of 16 that generated problems got in each of 40 steps, for groups with these numbers of successes."""
    parts = chain(("mixture", Mixture(credit=Credit(generated=1.0))), ("probe", Probed()), ("uniform", Uniform()))
    session, slots = Session(MIXED, parts, 8, provides=NEEDS), []
    for _ in range(40):
        tickets = session.next_batch(16)
        slots.append(sum(ticket.request.origin is Origin.GENERATED for ticket in tickets))
        for ticket in tickets:
            made = Origin.GENERATED is ticket.request.origin
            outcome = group(ticket.request.problem, generated_passed if made else fresh_passed)
            session.record_group(ticket.id, replace(outcome, request=ticket.request))
        session.commit()
    return slots


def test_in_a_chain_a_source_that_pays_keeps_its_share_and_one_that_does_not_withdraws() -> None:
    pays, does_not = generated_slots(0, 4), generated_slots(4, 8)
    assert pays[0] == does_not[0] == 4 and min(pays[2:20]) == 8  # half of the share of one half, then all of it
    assert sum(does_not[10:]) == pytest.approx(0.8 * 30, abs=1) and max(does_not[10:]) == 1  # a tenth of it


def test_it_comes_before_the_members_whose_shares_it_scales() -> None:
    check_chain(members(["mixture", "replay", "uniform", "greso"]))
    with pytest.raises(UserError, match=says("'mixture'", "'replay'")):
        check_chain(members(["replay", "mixture", "uniform"]))
    with pytest.raises(UserError, match=says("members", "share")):
        check_chain(members(["mixture", "pros"]))
    with pytest.raises(UserError, match=says("quotas")):
        check_chain(members(["mixture", {"other": {"use": "mixture"}}, "replay", "uniform"]))
