"""The contract suite over every registered controller, alone, with a companion and in chains; see `halfway.testing`."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from controller_harness import child, group, problem_set, propose, simulated

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Chain, Group, Origin, Plan, Session, Stream, chain, save_state
from halfway.curriculum.controller import NEEDS
from halfway.curriculum.support.atomic import PER_PROBLEM, PLACE
from halfway.testing.controllers import SLOTS, Trial, controller_checks, sample_problems

PROBLEMS = sample_problems(60, generated=120)
FULL = ("prefix_sampling", "uniform", "greso")


def chain_of(names: tuple[str, ...], **options: Any) -> Chain:
    return chain(*((name, CONTROLLERS.get(name)(**options)) for name in names))


def with_company(name: str) -> tuple[str, ...]:
    """A chain in which the controller has work to do: it goes first if it takes slots, last if it judges."""
    claims = CONTROLLERS.get(name)().claims
    return (name,) if "problems" in claims else (name, "uniform") if claims & SLOTS else ("uniform", name)


def then(name: str, **options: Any) -> Chain:
    """Uniform, and a controller that judges what it chose."""
    return chain(("uniform", CONTROLLERS.get("uniform")()), (name, CONTROLLERS.get(name)(**options)))


CHAINS: dict[str, Callable[[], Chain]] = {
    **{name: (lambda name=name: chain_of(with_company(name))) for name in CONTROLLERS.names()},
    "blog": lambda: chain(
        ("ps", CONTROLLERS.get("prefix_sampling")(variant="categories", max_age=3)),
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
    "prefixes_bots_retire": lambda: chain_of(("prefix_sampling", "bots", "retire")),
    "bandit_hints_greso": lambda: chain_of(("bandit", "hints", "greso")),
    "bandit_learnability_knapsack": lambda: chain(
        ("bandit", CONTROLLERS.get("bandit")(kind="learnability")), ("knapsack", CONTROLLERS.get("knapsack")())
    ),
    "replay_bounded": lambda: chain(
        ("replay", CONTROLLERS.get("replay")(matched=True, uses=2, age=10, order="rare")),
        ("uniform", CONTROLLERS.get("uniform")()),
    ),
    "bandit_survival": lambda: chain(("bandit", CONTROLLERS.get("bandit")(kind="survival"))),
    "bandit_thompson": lambda: chain(("bandit", CONTROLLERS.get("bandit")(kind="thompson"))),
    "servo_e2h_retire": lambda: chain(
        ("servo", CONTROLLERS.get("servo")(rule="cosine", levels=4)), ("retire", CONTROLLERS.get("retire")(returns=5))
    ),
    "cdas_hints_retire": lambda: chain_of(("cdas", "hints", "retire")),
    "hints_seele": lambda: then("hints", kind="seele", tries=2),
    "hints_ghpo": lambda: then("hints", kind="ghpo"),
    "hints_shared": lambda: then("hints", kind="shared"),
    "hints_adaprefix": lambda: then("hints", kind="adaprefix", stage_steps=6),
    "hints_schedule": lambda: then("hints", kind="schedule", place="prompt"),
    "knapsack_unbounded": lambda: then("knapsack", certainty=1.0, alpha=0.5),
    "pilot_hora": lambda: then("pilot", kind="hora"),
    "rounds_of_four": lambda: then("rounds", stop="positive", keep=0, size=4),
    "pilot_commit": lambda: then("pilot", kind="commit", initial=4, commits=2, patience=1),
    "pilot_commit_retire": lambda: chain(
        ("uniform", CONTROLLERS.get("uniform")()),
        ("retire", CONTROLLERS.get("retire")(above=1.0, returns=None)),
        ("pilot", CONTROLLERS.get("pilot")(kind="commit")),
    ),
    "frontier_ngu": lambda: chain_of(("frontier", "ngu")),
    "prefixes_frontier_ngu": lambda: chain_of(("replay", "prefix_sampling", "frontier", "ngu")),
    "signal_ngrpo": lambda: then("signal", kind="ngrpo"),
    "downsample_vcrl": lambda: chain(
        *then("downsample", baseline="group", keep=0.5).members.items(), ("vcrl", CONTROLLERS.get("vcrl")())
    ),
    "mixture": lambda: chain_of(("mixture", "replay", "prefix_sampling", "probe", "uniform")),
    "mixture_of_bounded_replay": lambda: chain(
        ("mixture", CONTROLLERS.get("mixture")(worth="mass", rho=1.0)),
        ("replay", CONTROLLERS.get("replay")(matched=True, uses=2, age=10, order="rare")),
        *chain_of(("prefix_sampling", "frontier", "maxrl")).members.items(),
    ),
    "replay_hints_pilot": lambda: chain(
        *((name, CONTROLLERS.get(name)()) for name in ("replay", "uniform", "hints", "pilot", "signal"))
    ),
}
CHECKS = controller_checks()


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS)
def test_a_chain_keeps_the_contract(make: Callable[[], Chain], check: Any) -> None:
    check(Trial("", make(), PROBLEMS))


@pytest.mark.parametrize("name", CONTROLLERS.names())
def test_alone_on_an_empty_plan_it_ends(name: str) -> None:
    controller = CONTROLLERS.get(name)()
    plan, _ = propose(controller, controller.init(PROBLEMS), 0)
    share = plan.wanted // 2 if "generated" in controller.claims else plan.wanted
    assert len(plan.requests) in (0, share)


@pytest.mark.parametrize("name", ["bandit", "bots", "cdas", "frontier", "greso", "knapsack", "mopps"])
def test_prefixed_and_generated_groups_are_not_evidence(name: str) -> None:
    controller = CONTROLLERS.get(name)()
    state = controller.init(PROBLEMS)
    others = [child(PROBLEMS[0], (1, 8), 4), group(PROBLEMS[1], 4, origin=Origin.GENERATED)]
    after, unchanged = (controller.observe(state, seen, 0) for seen in (others, []))
    assert save_state(after) == save_state(unchanged)


def test_plan_that_wants_nothing_stays_empty() -> None:
    controller = chain_of(FULL)
    plan, _ = controller.propose(Plan(0, 0, 8), controller.init(PROBLEMS), Stream(0))
    assert plan.requests == ()


def test_pass_rate_of_no_rollouts_is_an_error_not_a_number() -> None:
    assert group(PROBLEMS[0], 2).pass_rate == 0.25
    with pytest.raises(ValueError, match=r"problem 'p0' has no rollouts, so no pass rate"):
        _ = group(PROBLEMS[0], 0, size=0).pass_rate


WANTED, SIZE, STEPS = 8, 8, 12
CHAINED = ("prefixes_bots_retire", "cdas_hints_retire", "pros_greso")
FATES: dict[str, Callable[[int, int], bool | None]] = {
    "always passes": lambda step, place: True,
    "never passes": lambda step, place: False,
    "passes, then never": lambda step, place: step < STEPS // 2,
    "every other group is lost": lambda step, place: None if place % 2 else True,
}


def turned_out(group: Group, passes: bool) -> Group:
    return replace(group, rollouts=tuple(replace(rollout, success=passes) for rollout in group.rollouts))


@pytest.mark.parametrize("fate", FATES.values(), ids=FATES)
@pytest.mark.parametrize("name", [*CONTROLLERS.names(), *CHAINED])
def test_every_plan_is_full_though_there_are_fewer_problems_than_groups(
    name: str, fate: Callable[[int, int], bool | None]
) -> None:
    session = Session(problem_set(5, generated=2 * WANTED), CHAINS[name](), SIZE, provides=NEEDS)
    for step in range(STEPS):
        tickets = session.next_batch(WANTED)
        assert len(tickets) == WANTED, f"step {step}: {len(tickets)} of {WANTED} groups"
        for round_ in range(10):
            asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
            for place, made in enumerate(simulated(step).run(asked, Stream(0).at(step, round_))):
                passes = fate(step, place)
                if passes is None:
                    session.abandon(made.request.ticket, "lost")
                else:
                    session.record_group(made.request.ticket, turned_out(made, passes))
            tickets = session.next_batch(0) if session.continues else []
            if not tickets:
                break
        session.commit()


@pytest.mark.parametrize("name", sorted(set(CONTROLLERS.names()) - {"mixture", "pros", "replay"}))
def test_a_problem_adds_few_values_to_a_checkpoint(name: str) -> None:
    """A state with more than `read_state` allows could be saved and not be resumed. The members left out store
    responses, with which the files beside grow, and so does the limit."""

    def values(problems: int) -> int:
        session = Session(problem_set(problems, generated=problems), CHAINS[name](), SIZE, provides=NEEDS)
        for step in range(5):  # each problem about twice
            asked = [ticket.request for ticket in session.next_batch(problems // 2)]
            for made in simulated(step).run([one for one in asked if one.stored is None], Stream(0).at(step)):
                session.record_group(made.request.ticket, made)
            session.commit()
        text = json.dumps(save_state(session.state, lambda array: [0, *array.shape]))
        return sum(found.lastindex is not None for found in PLACE.finditer(text.encode()))

    assert values(150) - values(50) <= PER_PROBLEM * 200  # half of them are generated
