"""Open slots of a plan: the number that a member may take, and the problems for them."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.beliefs.forest_beliefs import Aim
from halfway.controllers.laws.choose_problems import Choice
from halfway.controllers.laws.feedback import floor_product
from halfway.curriculum import Origin, Plan, ProblemSet, Request, Stream, Verdict

PATIENCE = 100
"""Refused candidates per slot after which a plan accepts the next one."""
GOLDEN = (5**0.5 - 1) / 2

Rates = Callable[[Positions, Aim | None, Stream], tuple[Positions, Floats]]
"""The belief about free positions: (their array, `Aim` or None for all, a stream for draws) -> the positions that may
be chosen, and their pass rates."""

Choose = Callable[[Positions, int], Positions]
"""Chooses among free positions: (their array, how many are wanted) -> that many of them, or all if there are fewer."""


def fill_slots(plan: Plan, problems: ProblemSet, choose: Choose) -> list[int]:
    """Choose positions for all missing requests of a plan.

    First come problems that are not in the plan (for example in flight), not in hand from an earlier round of the step,
    and not refused by another member. If these run out, the last two kinds are offered again. Only a plan that wants
    more groups than there are problems repeats a problem.
    """
    held = _positions(problems, _own(plan.requests))
    seen = held | _positions(problems, _own(group.request for group in plan.in_hand))
    seen |= _positions(problems, (skip.problem_id for skip in plan.skipped))
    chosen: list[int] = []
    for barred in (seen, held):
        chosen += _choose_free(len(problems), barred.union(chosen), plan.missing - len(chosen), choose)
    while len(chosen) < plan.missing:
        chosen += _choose_free(len(problems), set(), plan.missing - len(chosen), choose)
    return chosen


def slots_left(plan: Plan, share: float, origin: Origin) -> int:
    """Number of slots that a member may still take under its share of the plan, rounded down; 0 or less if none.

    Args:
        origin: origin of the requests that the member adds. If the plan has a quota for it, the member may take that
            part of its share, rounded up or down from step to step, so that even a small part gives a slot now and
            then.
    """
    quota = plan.quotas.get(origin)
    slots = floor_product(share, plan.wanted) if quota is None else dither(quota * share * plan.wanted, plan.step)
    return min(plan.missing, slots - len(plan.decided))


def dither(amount: float, step: int) -> int:
    """Round an amount so that its mean over steps is exact: up in a step whose multiple of the golden ratio has a
    smaller fractional part than the amount."""
    whole = floor_product(amount, 1)
    return whole + (step * GOLDEN % 1 < amount - whole)


def fill_by_rate(
    plan: Plan, problems: ProblemSet, rates: Rates, law: Choice, stream: Stream, candidates: int | None = None
) -> Plan:
    """Fill a plan with the problems that a law chooses by their believed pass rates.

    Args:
        rates: the believed pass rates. It may omit problems that cannot be nearest the target of the law.
        candidates: number of random problems that compete for each slot; None = all.
    """
    if plan.missing == 0:
        return plan
    generator = stream.at("choose").generator()
    believed: dict[int, float] = {}

    def choose(free_F: Positions, wanted: int) -> Positions:
        if candidates is not None and candidates * wanted < len(free_F):
            free_F = generator.choice(free_F, candidates * wanted, replace=False, shuffle=False)
        near = None if law.aim is None else Aim(law.aim, wanted)
        free_F, rate_F = rates(free_F, near, stream.at("rates", len(believed)))
        places = law.choose(rate_F, wanted, generator, plan.num_rollouts)
        believed.update(zip(free_F[places].tolist(), rate_F[places].tolist(), strict=True))
        chosen: Positions = free_F[places]
        return chosen

    chosen = fill_slots(plan, problems, choose)
    requests = [Request(problems[position], plan.num_rollouts) for position in chosen]
    return plan.add(requests, [f"believed {believed[position]:.2f}" for position in chosen])


def _choose_free(num_problems: int, barred: set[int], wanted: int, choose: Choose) -> list[int]:
    if wanted <= 0 or len(barred) >= num_problems:
        return []
    free_P = np.ones(num_problems, np.bool_)
    free_P[list(barred)] = False
    free_F = np.flatnonzero(free_P)
    chosen: list[int] = choose(free_F, min(wanted, len(free_F))).tolist()
    assert len(chosen) == min(wanted, len(free_F)), "a law left problems unchosen although they were wanted"
    return chosen


def _own(requests: Iterable[Request]) -> Iterator[str]:
    return (request.problem.id for request in requests if request.origin is not Origin.GENERATED)


def _positions(problems: ProblemSet, ids: Iterable[object]) -> set[int]:
    """Positions of those ids that belong to the set."""
    return {problems.position(str(problem_id)) for problem_id in ids if problem_id in problems}


def judge_fresh(plan: Plan, problems: int, judge: Callable[[Request], Verdict]) -> list[Verdict]:
    """A filter's verdicts on the undecided requests of a plan, in order; requests that are not fresh are exempt.

    A plan always fills: after as many candidates as there are problems, or `PATIENCE` refusals for each filled slot and
    one more, it accepts the next candidate ("readmitted"). So some hundred passes fill it.
    """
    fresh = [request for request in plan.decided if request.origin is Origin.FRESH]
    refused = plan.refused.get(plan.member, 0)
    offered, filled, verdicts = refused + len(fresh), sum(not request.ticket for request in fresh), []
    for request in plan.undecided:
        verdict = judge(request) if request.origin is Origin.FRESH else Verdict(True, "exempt")
        if not verdict.keep and (offered >= problems or refused >= PATIENCE * (filled + 1)):
            verdict = Verdict(True, "readmitted")
        offered += request.origin is Origin.FRESH
        filled += verdict.keep and request.origin is Origin.FRESH
        refused += not verdict.keep
        verdicts.append(verdict)
    return verdicts
