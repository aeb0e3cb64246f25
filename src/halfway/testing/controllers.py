"""The contract of every controller, checked on a simulated learner in seconds."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from halfway.controllers.uniform import Uniform
from halfway.curriculum import (
    Chain,
    Group,
    Origin,
    PassRateController,
    Plan,
    Prefix,
    Problem,
    ProblemSet,
    Request,
    Session,
    Stream,
    UserError,
    chain,
    cut,
    save_state,
)
from halfway.curriculum.controller import NEEDS
from halfway.curriculum.groups import require_valid_weights
from halfway.curriculum.tasks.lab import sums
from halfway.testing.simulator import SimulatedRollouts

Check = Callable[["Trial"], None]
SLOTS = frozenset({"prefixes", "generated", "stored", "quotas"})
"""Claims of controllers that take or divide slots, and so come before the one that fills the rest."""
COMPANY = "company"


def sample_problems(count: int = 60, generated: int = 120) -> ProblemSet:
    """Make problems with every feature that this package's controllers may need, and reference solutions."""
    made = [
        Problem(
            f"{kind}{i}",
            sums.render(sums.Sheet(i % 6, tuple(1 + i // 4**place % 4 for place in range(4)), 1)),
            "0",
            verifier="running_sums",
            features={
                "probed_rate": (i % 19 + 1) / 20,
                "difficulty": (i * 7 % count) / 10 - 3,
                "category": f"c{i % 5}",
                "embedding": (math.sin(i), math.cos(i)),
                "weak_rate": (i % 11) / 20,
                "strong_rate": (i % 11 + 5) / 20,
            },
            solution=f"first {i}, then {i + 1}, and so on",
        )
        for kind, number in (("p", count), ("g", generated))
        for i in range(number)
    ]
    return ProblemSet(made[:count], made[count:])


@dataclass(frozen=True)
class Trial:
    """A controller in a chain for its trial.

    Attributes:
        name: name of the controller in the chain.
        controller: the chain.
        problems: at least 40 problems.
        size: N, rollouts per group.
        wanted: groups per step.
    """

    name: str
    controller: PassRateController[Any]
    problems: ProblemSet = field(default_factory=sample_problems)
    size: int = 8
    wanted: int = 12

    def session(self, seed: int = 0, controller: PassRateController[Any] | None = None) -> Session:
        return Session(self.problems, controller or self.controller, self.size, seed, provides=NEEDS)


CHECKS: dict[str, Check] = {}


def promise(check: Check) -> Check:
    """Make a function one of `controller_checks`."""
    CHECKS[check.__name__] = check
    return check


def check_controller(controller: PassRateController[Any], problems: ProblemSet | None = None) -> None:
    """Run all of `controller_checks` on a controller, in a chain in which it has work to do.

    Args:
        problems: at least 40; by default `sample_problems()`. Give your own if the controller needs their features.

    Raises:
        AssertionError: naming the broken promise.
    """
    trial = trial_of(controller, problems)
    for name, check in controller_checks().items():
        try:
            check(trial)
        except AssertionError as error:
            raise AssertionError(f"{type(controller).__name__}: {name.replace('_', ' ')}: {error}") from error


def trial_of(controller: PassRateController[Any], problems: ProblemSet | None = None) -> Trial:
    """Put the controller in a chain, after `Uniform` or, if it takes slots, before it; alone if it chooses problems."""
    problems = problems or sample_problems()
    if isinstance(controller, Chain):
        return Trial("", controller, problems)
    name = "tried"
    own, company = (name, controller), (COMPANY, Uniform())
    if "problems" in controller.claims:
        return Trial(name, chain(own), problems)
    return Trial(name, chain(own, company) if controller.claims & SLOTS else chain(company, own), problems)


def controller_checks() -> Mapping[str, Check]:
    """Every promise of the contract by name, as a function of a trial that raises AssertionError if it is broken."""
    return CHECKS


@promise
def equal_seeds_give_equal_decisions_and_other_seeds_give_others(trial: Trial) -> None:
    first, again, other = (_run(trial.session(seed), range(12)) for seed in (0, 0, 1))
    assert first == again, "two runs with one seed differ"
    assert first != other, "two seeds give the same decisions, so nothing is drawn from the stream"


@promise
def a_saved_state_continues_as_the_original_does(trial: Trial) -> None:
    whole, expected, saved = trial.session(), [], {}
    for step in range(30):
        if step in (0, 1, 14):
            saved[step] = json.dumps(whole.state_dict())
        expected.append(_step(whole, step))
    for stop, state in saved.items():
        resumed = trial.session()
        resumed.load_state_dict(json.loads(state))
        decisions = _run(resumed, range(stop, stop + 16))
        assert decisions == expected[stop : stop + 16], f"decisions differ after a restart at step {stop}"


@promise
def a_full_plan_passes_unchanged(trial: Trial) -> None:
    session = trial.session()
    _run(session, range(8))
    plan = Plan(8, trial.wanted, trial.size)
    stream = Stream(0).at(8, "propose")
    state = session.state
    for i in range(50):
        if plan.missing == 0:
            break
        plan, state = trial.controller.propose(plan, state, stream.at(i))
    again, after = trial.controller.propose(plan, state, stream.at("once more"))
    assert _described(again.requests) == _described(plan.requests), "a plan that lacks nothing was changed"
    assert save_state(after) == save_state(state), "a plan that lacks nothing changed the state"


@promise
def plans_are_filled(trial: Trial) -> None:
    session = trial.session()
    for step in range(20):
        tickets = session.next_batch(trial.wanted)
        assert len(tickets) == trial.wanted, f"{len(tickets)} of {trial.wanted} wanted groups in step {step}"
        assert all(ticket.request.num_rollouts >= 1 for ticket in tickets), "a request asks for no rollout"
        _finish(session, tickets, step)


@promise
def what_is_in_flight_is_not_proposed_again(trial: Trial) -> None:
    session = trial.session()
    _run(session, range(4))
    third = len(trial.problems) // 3
    drawn = [ticket for _ in range(3) for ticket in session.next_batch(min(trial.wanted, third))]
    fresh = [t.request.problem.id for t in drawn if t.request.origin is Origin.FRESH and not t.request.extends]
    assert len(set(fresh)) == len(fresh), "a problem in flight was proposed once more"


@promise
def groups_that_teach_nothing_are_fine(trial: Trial) -> None:
    for passed in (0, trial.size):
        session = trial.session()
        for _ in range(20):
            tickets = session.next_batch(trial.wanted)
            assert len(tickets) == trial.wanted, f"all groups had {passed} of {trial.size}, and then a plan was short"
            asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
            for group in _simulated(0).run(asked, Stream(0)):
                same = tuple(replace(rollout, success=passed > 0) for rollout in group.rollouts)
                session.record_group(group.request.ticket, replace(group, rollouts=same))
            session.commit()


@promise
def groups_that_are_lost_are_fine(trial: Trial) -> None:
    session = trial.session()
    _run(session, range(3))
    for _ in range(3):
        for ticket in session.next_batch(trial.wanted):
            if ticket.request.stored is None:
                session.abandon(ticket.id, "lost")
        session.commit()
    assert len(session.next_batch(trial.wanted)) == trial.wanted, "after lost groups a plan was short"


@promise
def steps_without_groups_are_fine(trial: Trial) -> None:
    session = trial.session()
    for _ in range(5):
        session.commit()
    assert len(session.next_batch(trial.wanted)) == trial.wanted, "after empty steps a plan was short"


@promise
def metrics_are_finite_floats(trial: Trial) -> None:
    session = trial.session()
    for steps in (range(0), range(1), range(1, 15)):
        _run(session, steps)
        for name, value in trial.controller.metrics(session.state).items():
            assert type(value) is float and math.isfinite(value), f"{name} is {value!r}"


@promise
def no_call_changes_the_state_it_is_given(trial: Trial) -> None:
    session = trial.session()
    _run(session, range(6))
    state, before = session.state, json.dumps(save_state(session.state))
    plan, _ = trial.controller.propose(Plan(6, trial.wanted, trial.size), state, Stream(0).at(6))
    groups = _simulated(6).run([request for request in plan.requests if request.stored is None], Stream(5))
    trial.controller.weigh(groups, state, Stream(0))
    trial.controller.observe(state, groups, 6)
    trial.controller.metrics(state)
    assert json.dumps(save_state(state)) == before, "the state that was passed in has changed"


@promise
def groups_of_unknown_problems_are_refused_or_ignored(trial: Trial) -> None:
    session = trial.session()
    stranger = _group(Problem("nobody knows it", "?", "0"), 1, trial.size)
    try:
        after = trial.controller.observe(session.state, [stranger], 0)
    except KeyError as error:
        assert "nobody knows it" in str(error), "the error does not name the problem"
    else:
        assert save_state(after) == save_state(session.state), "a problem of another set changed the state"


@promise
def prefixed_and_generated_groups_say_nothing_of_their_problems(trial: Trial) -> None:
    session = trial.session()
    _run(session, range(6))
    others = [_child(problem, trial.size) for problem in trial.problems]
    others += [_group(problem, trial.size, trial.size, Origin.GENERATED) for problem in trial.problems]

    def next_fresh(state: Any) -> list[str]:
        plan, _ = trial.controller.propose(Plan(7, trial.wanted, trial.size), state, Stream(0).at(7))
        return [request.problem.id for request in plan.requests if request.origin is Origin.FRESH]

    informed, uninformed = (next_fresh(trial.controller.observe(session.state, seen, 6)) for seen in (others, []))
    if "quotas" in trial.controller.claims:  # they may change how many fresh problems there are, though not which
        fewer = min(len(informed), len(uninformed))
        informed, uninformed = informed[:fewer], uninformed[:fewer]
    assert informed == uninformed, "outcomes of prefixes or generated problems changed which fresh problem comes next"


@promise
def weights_are_sound_and_keep_groups_in_place(trial: Trial) -> None:
    session = trial.session()
    _run(session, range(5))
    tickets = [ticket for ticket in session.next_batch(trial.wanted) if ticket.request.stored is None]
    groups = _simulated(5).run([ticket.request for ticket in tickets], Stream(0).at("weigh"))
    weighed = session.weigh(groups)
    assert len(weighed) == len(groups), f"{len(groups)} groups came back as {len(weighed)}"
    asked = [(group.request.ticket, [rollout.success for rollout in group.rollouts]) for group in groups]
    returned = [(group.request.ticket, [rollout.success for rollout in group.rollouts]) for group in weighed]
    assert returned == asked, "groups were moved or changed"
    try:
        require_valid_weights(weighed, trial.name)
    except UserError as error:
        raise AssertionError(str(error)) from None
    first, again = ([group.weights_N.tolist() for group in groups_] for groups_ in (weighed, session.weigh(groups)))
    assert first == again, "weights are not a function of groups, state and stream"


@promise
def a_neighbour_that_does_nothing_changes_nothing(trial: Trial) -> None:
    members = trial.controller.members if isinstance(trial.controller, Chain) else {trial.name: trial.controller}
    more = ("idle", PassRateController[None]())
    plain, beside, inside = (
        [[request[:3] for request in step] for step in _run(trial.session(controller=tried), range(8))]
        for tried in (
            chain(*members.items()),
            chain(*members.items(), more),
            chain(("inner", chain(*members.items())), more),
        )
    )
    assert plain == beside, "a member that does nothing shifted a draw"
    assert plain == inside, "nesting the chain shifted a draw"


@promise
def a_single_problem_is_enough(trial: Trial) -> None:
    alone = replace(trial, problems=ProblemSet(trial.problems[:1], trial.problems.generated), wanted=3)
    session = alone.session()
    for step in range(4):
        tickets = session.next_batch(3)
        assert len(tickets) == 3, f"one problem, three groups wanted, {len(tickets)} proposed"
        _finish(session, tickets, step)


@promise
def a_configuration_compares_prints_and_hashes(trial: Trial) -> None:
    members = trial.controller.members if isinstance(trial.controller, Chain) else {trial.name: trial.controller}
    for member in members.values():
        if not isinstance(member, Chain):
            copy = replace(member)  # type: ignore[type-var]
            assert member == copy and hash(member) == hash(copy), "two equal configurations differ"
            assert repr(member).startswith(f"{type(member).__name__}("), "its options are not in its name"


@promise
def needs_and_claims_are_words_of_the_contract(trial: Trial) -> None:
    strange = {need for need in trial.controller.needs if need not in NEEDS and not need.startswith("feature:")}
    assert not strange, f"needs {sorted(strange)}, unknown to the contract; choose from {sorted(NEEDS)} or feature:NAME"
    known = {"problems", "generated", "prefixes", "hints", "rounds", "rollouts", "stored", "advantages", "quotas"}
    assert trial.controller.claims <= known, (
        f"claims {sorted(trial.controller.claims - known)}; choose from {sorted(known)}"
    )
    for claim in ("hints", "rounds", "rollouts", "stored", "prefixes"):
        if claim in trial.controller.claims:
            needed = {claim, "waits"} if claim == "rounds" else {claim}
            assert needed & trial.controller.needs, f"claims {claim!r}, so it has to need it too"


def _simulated(version: int) -> SimulatedRollouts:
    return SimulatedRollouts(policy_version=version)


def _run(session: Session, steps: range) -> list[list[tuple[Any, ...]]]:
    """Run steps of a session with the simulated learner; returns the decisions of each step."""
    return [_step(session, step) for step in steps]


def _step(session: Session, step: int, wanted: int = 12) -> list[tuple[Any, ...]]:
    tickets = session.next_batch(wanted)
    decided = _described([ticket.request for ticket in tickets])
    decided += [(skip.problem_id, skip.member, skip.reason) for _, skip in session.skipped]
    _finish(session, tickets, step)
    return decided


def _finish(session: Session, tickets: Sequence[Any], step: int) -> None:
    """Roll out until the chain asks for no more, and commit."""
    for round_ in range(20):
        asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
        for group in _simulated(step).run(asked, Stream(0).at(step, round_, "rollout")):
            session.record_group(group.request.ticket, group)
        session.weigh(list(session.in_hand()))
        tickets = session.next_batch(0) if session.continues else []
        if not tickets:
            break
    session.commit()


def _described(requests: Sequence[Request]) -> list[tuple[Any, ...]]:
    """Convert requests to comparable values."""
    return [
        (
            request.problem.id,
            request.origin.value,
            request.num_rollouts,
            request.prefix and (request.prefix.length, [turn.tokens_T.tolist() for turn in request.prefix.turns]),
            request.hint,
            request.stored and request.stored.request.ticket,
            request.extends,
            request.decisions,
        )
        for request in requests
    ]


def _group(problem: Problem, passed: int, size: int, origin: Origin = Origin.FRESH) -> Group:
    made = SimulatedRollouts(skill=0.0).run([Request(problem, size, origin)], Stream(0).at(problem.id))[0]
    rollouts = [replace(rollout, success=i < passed) for i, rollout in enumerate(made.rollouts)]
    return replace(made, rollouts=tuple(rollouts))


def _child(problem: Problem, size: int) -> Group:
    """Make a failed group that started from a prefix of a success."""
    parent = _group(problem, 1, size)
    prefix = Prefix(cut(parent.rollouts[0], 2, "tokens"), 2, "tokens", 1, size, parent_success=True)
    made = _group(problem, 0, size)
    return replace(made, request=structs.replace(made.request, origin=Origin.PREFIX, prefix=prefix))
