"""The laws of composition, by property tests."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from controller_harness import describe, play, problem_set
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import says

from halfway.controllers.greso import Greso
from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import PassRateController, Plan, Stream, UserError, Verdict, chain, restore_state, save_state

PROBLEMS = problem_set(30)


@dataclass(frozen=True)
class Coin(PassRateController[None]):
    """Drops each request with a given probability, by its own draws."""

    drop: float = 0.3

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        draws = stream.generator().random(len(plan.undecided))
        return plan.decide([Verdict(bool(draw >= self.drop), "coin") for draw in draws]), state


@dataclass(frozen=True)
class Noise(PassRateController[None]):
    """Draws, and changes nothing."""

    draws: int = 5

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        stream.generator().random(self.draws)
        return plan, state


@dataclass(frozen=True)
class Spy(PassRateController[None]):
    """Keeps everything, and writes down what it is offered."""

    offered: list[str]

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        self.offered.extend(request.problem.id for request in plan.undecided)
        return plan.decide([Verdict(True, "seen")] * len(plan.undecided)), state


FILTERS = st.sampled_from([Greso(), Greso(streaks="joint"), Coin(0.1), Coin(0.5), Noise()])
# Members in an order in which all have work to do, under labels of their own.
MEMBERS = st.builds(
    lambda prefixed, filters: [
        *([("ps", PrefixSampling())] if prefixed else []),
        ("uniform", Uniform()),
        *((f"filter{i}", member) for i, member in enumerate(filters)),
    ],
    st.booleans(),
    st.lists(FILTERS, max_size=3),
)
SEEDS = st.integers(0, 2**32)
few = settings(max_examples=15)


def plans_of(controller: PassRateController[Any], seed: int) -> list[Any]:
    return play(controller, controller.init(PROBLEMS), range(6), seed=seed, wanted=8)[0]


def without(plans: list[Any], member: str) -> list[Any]:
    """The plans without the decisions signed by a member."""
    return [
        [
            [*entry[:3], tuple(d for d in entry[3] if d.member != member), *entry[4:]]
            for entry in plan
            if len(entry) == 5
        ]
        for plan in plans
    ]


@few
@given(SEEDS)
def test_empty_chain_is_the_identity(seed: int):
    plan, _ = Uniform().propose(Plan(0, 8, 8), Uniform().init(PROBLEMS), Stream(seed))
    after, state = chain().propose(plan, {}, Stream(seed))
    assert describe(after) == describe(plan) and state == {}
    assert chain().observe({}, [], 0) == {} and chain().metrics({}) == {}


@few
@given(SEEDS, st.sampled_from([Uniform(), PrefixSampling(), Greso()]))
def test_chain_of_one_does_what_its_member_does(seed: int, member: PassRateController[Any]):
    alone = member.propose(Plan(0, 8, 8, member="m"), member.init(PROBLEMS), Stream(seed).for_member("m"))
    single = chain(("m", member))
    chained = single.propose(Plan(0, 8, 8), single.init(PROBLEMS), Stream(seed))
    assert describe(chained[0]) == describe(alone[0])
    assert save_state(chained[1]) == {"m": save_state(alone[1])}


@few
@given(SEEDS, MEMBERS, st.data())
def test_nesting_changes_no_plan(seed: int, members: list[Any], data: st.DataObject):
    start = data.draw(st.integers(0, len(members) - 1))
    end = data.draw(st.integers(start + 1, len(members)))
    nested = chain(*members[:start], ("inner", chain(*members[start:end])), *members[end:])
    assert plans_of(nested, seed) == plans_of(chain(*members), seed)


@few
@given(SEEDS, MEMBERS, st.data(), st.integers(0, 50))
def test_a_member_that_draws_shifts_no_draw_of_others(seed: int, members: list[Any], data: st.DataObject, draws: int):
    place = data.draw(st.integers(0, len(members)))
    noisy = chain(*members[:place], ("noise", Noise(draws)), *members[place:])
    assert plans_of(noisy, seed) == plans_of(chain(*members), seed)


@few
@given(SEEDS, MEMBERS)
def test_filter_that_keeps_everything_changes_no_request(seed: int, members: list[Any]):
    plain, more = chain(*members), chain(*members, ("keeper", Coin(drop=0.0)))
    assert without(plans_of(more, seed), "keeper") == without(plans_of(plain, seed), "keeper")


@few
@given(SEEDS, MEMBERS)
def test_no_problem_twice_and_nothing_lost(seed: int, members: list[Any]):
    controller = chain(*members)
    for plan in plans_of(controller, seed):
        requests = [entry for entry in plan if isinstance(entry, list)]
        assert len(requests) == len({(entry[0], entry[2]) for entry in requests}) == 8


def test_order_of_an_epoch_is_the_same_next_to_a_filter():
    plain, filtered = Spy([]), Spy([])
    plans_of(chain(("uniform", Uniform()), ("spy", plain)), seed=4)
    plans_of(chain(("uniform", Uniform()), ("spy", filtered), ("coin", Coin(0.5))), seed=4)
    # Six plans of eight take 48 problems without the filter, and run on into later epochs with it.
    assert len(plain.offered) == 48 < len(filtered.offered)
    # Within the first epoch the order is the same; at its end a problem that the plan holds has to wait.
    assert plain.offered[:30] == filtered.offered[:30]
    assert len(set(plain.offered[:30])) == 30


@pytest.mark.parametrize(
    ("members", "claim"),
    [
        ([("first", PrefixSampling()), ("second", PrefixSampling())], "prefixes"),
        ([("first", Uniform()), ("second", Uniform())], "problems"),
        ([("first", chain(("inner", Uniform()))), ("greso", Greso()), ("second", Uniform())], "problems"),
    ],
)
def test_conflicts_are_refused_with_both_names(members: list[Any], claim: str):
    with pytest.raises(UserError) as caught:
        chain(*members)
    message = str(caught.value)
    assert "first" in message and "second" in message and claim in message and "\n" not in message


def test_equal_names_are_refused():
    with pytest.raises(UserError, match="'twin'"):
        chain(("twin", Uniform()), ("twin", Greso()))


def test_checkpoint_of_other_members_is_refused_with_both_lists():
    saved = save_state(chain(("uniform", Uniform()), ("greso", Greso())).init(PROBLEMS))
    other = chain(("ps", PrefixSampling()), ("uniform", Uniform()))
    with pytest.raises(UserError) as caught:
        restore_state(other.init(PROBLEMS), saved)
    assert "['greso', 'uniform']" in str(caught.value) and "['ps', 'uniform']" in str(caught.value)


def test_checkpoint_of_another_controller_under_the_same_name_is_refused():
    saved = save_state(chain(("a", Uniform())).init(PROBLEMS))
    with pytest.raises(UserError, match=says("GresoState", "cursor")):
        restore_state(chain(("a", Greso())).init(PROBLEMS), saved)


def test_metrics_carry_the_names_of_the_members():
    members = chain(("outer", chain(("uniform", Uniform()))), ("greso", Greso()))
    names = members.metrics(members.init(PROBLEMS))
    assert {"outer/uniform/epoch", "greso/p_easy"} <= set(names)


def test_coin_really_draws():
    # The properties above would hold trivially for a filter that never drops.
    plan, _ = Uniform().propose(Plan(0, 30, 8), Uniform().init(PROBLEMS), Stream(0))
    after, _ = Coin(0.5).propose(replace(plan, member="coin"), None, Stream(0))
    assert 5 < len(after.requests) < 25
