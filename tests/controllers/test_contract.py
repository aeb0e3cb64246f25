"""The contract suite over every registered controller, in company and in chains; see `halfway.testing`."""

from collections.abc import Callable
from typing import Any

import pytest
from controller_harness import group, propose

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Chain, Plan, Stream, chain
from halfway.testing.controllers import SLOTS, Trial, controller_checks, sample_problems

PROBLEMS = sample_problems(60, generated=120)
FULL = ("prefix_sampling", "uniform", "greso")


def chain_of(names: tuple[str, ...], **options: Any) -> Chain:
    return chain(*((name, CONTROLLERS.get(name)(**options)) for name in names))


def with_company(name: str) -> tuple[str, ...]:
    """A chain in which the controller has work to do: who takes slots of its own goes first, who judges goes last."""
    claims = CONTROLLERS.get(name)().claims
    return (name,) if "problems" in claims else (name, "uniform") if claims & SLOTS else ("uniform", name)


def then(name: str, **options: Any) -> Chain:
    """Uniform, and a controller that judges what it chose."""
    return chain(("uniform", CONTROLLERS.get("uniform")()), (name, CONTROLLERS.get(name)(**options)))


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
    "hints_seele": lambda: then("hints", kind="seele", tries=2),
    "hints_ghpo": lambda: then("hints", kind="ghpo"),
    "hints_schedule": lambda: then("hints", kind="schedule", place="prompt"),
    "knapsack_certain": lambda: then("knapsack", certainty=0.9, alpha=0.5),
    "pilot_hora": lambda: then("pilot", kind="hora"),
    "rounds_ar3po": lambda: chain(
        *then("rounds", stop="positive", keep=0, size=4).members.items(),
        ("replay", CONTROLLERS.get("replay")(kind="responses")),
    ),
    "signal_ngrpo": lambda: then("signal", kind="ngrpo"),
    "downsample_vcrl": lambda: chain(
        *then("downsample", baseline="group", keep=0.5).members.items(), ("vcrl", CONTROLLERS.get("vcrl")())
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


def test_plan_that_wants_nothing_stays_empty() -> None:
    controller = chain_of(FULL)
    plan, _ = controller.propose(Plan(0, 0, 8), controller.init(PROBLEMS), Stream(0))
    assert plan.requests == ()


def test_pass_rate_of_no_rollouts_is_an_error_not_a_number() -> None:
    assert group(PROBLEMS[0], 2).pass_rate == 0.25
    with pytest.raises(ValueError, match=r"problem 'p0' has no rollouts, so no pass rate"):
        _ = group(PROBLEMS[0], 0, size=0).pass_rate
