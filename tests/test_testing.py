"""The simulated learner: its curve, its rollouts, and that its groups are a function of its arguments."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from controller_harness import problem_set
from msgspec import structs
from transformers import Qwen3ForCausalLM

from halfway.curriculum import (
    Group,
    Origin,
    PassRateController,
    Plan,
    Prefix,
    Problem,
    Request,
    Stream,
    Verdict,
    cut,
)
from halfway.curriculum.environments.ledger_turns import Ledger
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS
from halfway.testing import check_controller, check_engine, check_environment, check_verifier
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.transformers.engine import TransformersEngine

AVERAGE = Problem("a", "", "", features={"difficulty": 0.0})
STREAM = Stream(0, ("test",))


def prefix_of(rollouts: SimulatedRollouts, length: int, success: bool) -> Prefix:
    parent = rollouts.run([Request(AVERAGE, 1)], STREAM)[0].rollouts[0]
    return Prefix(cut(parent, length, rollouts.unit), length, rollouts.unit, 1, 8, success)


def test_pass_probability_rises_with_skill_and_head_starts_and_falls_with_handicaps():
    learner = SimulatedRollouts(growth=0.1, pull=4.0, length=12)
    head_start, handicap = prefix_of(learner, 6, True), prefix_of(learner, 6, False)
    assert learner.pass_probability(AVERAGE, None) == 0.5
    assert learner.pass_probability(AVERAGE, head_start) == pytest.approx(1 / (1 + np.exp(-2)))
    assert learner.pass_probability(AVERAGE, handicap) == pytest.approx(1 / (1 + np.exp(2)))
    learner.sync(10)
    assert learner.pass_probability(AVERAGE, None) == pytest.approx(1 / (1 + np.exp(-1)))


def test_pass_rate_is_the_probability():
    group = SimulatedRollouts(skill=1.0).run([Request(AVERAGE, 20_000)], STREAM)[0]
    assert group.pass_rate == pytest.approx(1 / (1 + np.exp(-1)), abs=0.01)


def test_difficulties_are_normal_and_belong_to_the_id():
    learner = SimulatedRollouts(spread=2.0)
    difficulties = [learner.difficulty(problem) for problem in problem_set(4000)]
    assert np.mean(difficulties) == pytest.approx(0.0, abs=0.15)
    assert np.std(difficulties) == pytest.approx(2.0, abs=0.1)
    assert difficulties == [learner.difficulty(problem) for problem in problem_set(4000)]


@pytest.mark.parametrize(("unit", "tokens"), [("tokens", 3), ("steps", 9)])
def test_rollouts_continue_their_prefix(unit, tokens: int):
    learner = SimulatedRollouts(unit=unit, length=12)
    prefix = prefix_of(learner, 3, True)
    learner.sync(5)
    (group,) = learner.run([Request(AVERAGE, 4, Origin.PREFIX, prefix)], STREAM)
    assert prefix.policy_version == 0
    assert group.unit == unit and group.policy_versions == (5,) and group.size == 4
    for rollout in group.rollouts:
        assert rollout.length(unit) == 12
        assert rollout.num_replayed == tokens
        replayed = np.concatenate([turn.tokens_T for turn in cut(rollout, 3, unit)])
        assert replayed.tolist() == np.concatenate([turn.tokens_T for turn in prefix.turns]).tolist()
        assert all((turn.logprobs_T[: turn.num_replayed] == 0).all() for turn in rollout.turns)


def test_groups_do_not_depend_on_the_other_requests():
    problems = problem_set(3)
    learner = SimulatedRollouts()

    def outcome(indices: list[int]) -> list[list[int]]:
        groups = learner.run([Request(problems[i], 8) for i in indices], STREAM)
        return [[t for r in g.rollouts for t in (*r.turns[0].tokens_T.tolist(), r.success)] for g in groups]

    assert outcome([0, 1, 2])[2] == outcome([2])[0]
    twice = outcome([1, 1])
    assert twice[0] != twice[1]


def test_stream_uniform_is_uniform_and_repeats():
    draws = [Stream(3).at(i).uniform() for i in range(4000)]
    assert draws == [Stream(3).at(i).uniform() for i in range(4000)]
    assert min(draws) >= 0 and max(draws) < 1
    assert np.mean(draws) == pytest.approx(0.5, abs=0.02)
    assert np.var(draws) == pytest.approx(1 / 12, abs=0.005)


# The public contract suites: sound parts pass them, and a part broken in one way fails in that way.


@dataclass(frozen=True)
class Skips(PassRateController[None]):
    """Refuses some problems; the base of what is broken below."""

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        return plan.decide([Verdict(True, "fine") for _ in plan.undecided]), state


class Impatient(Skips):
    """Decides on the same requests again and again."""

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        return replace(plan, requests=plan.requests[1:]), state


class Doubling(Skips):
    """Adds to a plan that lacks nothing."""

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        return plan.add([structs.replace(request) for request in plan.requests[:1]], "more"), state


class Negative(Skips):
    """Gives negative weights."""

    def weigh(self, groups: Sequence[Group], state: None, stream: Stream) -> Sequence[Group]:
        return [group.with_weights(np.full(group.size, -1.0)) for group in groups]


class Talkative(Skips):
    """Has a metric that is not a number."""

    def metrics(self, state: None) -> dict[str, float]:
        return {"share": float("nan")}


class Wishful(Skips):
    """Needs what nobody has heard of."""

    needs = frozenset({"moonlight"})


class Forgetful(PassRateController[dict[str, int]]):
    """Keeps its state inside itself."""

    def __init__(self) -> None:
        self.count = 0

    def propose(self, plan: Plan, state: Any, stream: Stream) -> tuple[Plan, Any]:
        self.count += 1
        return plan.decide([Verdict(True, str(self.count)) for _ in plan.undecided]), state


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Impatient(), "a plan that lacks nothing was changed|was short|wanted groups"),
        (Doubling(), "a plan that lacks nothing was changed|twice|wanted groups|in flight"),
        (Negative(), "finite and at least 0"),
        (Talkative(), "share is nan"),
        (Wishful(), "moonlight"),
        (Forgetful(), "two runs with one seed differ"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PassRateController) else "",
)
def test_a_broken_controller_fails_with_the_broken_law(broken: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        check_controller(broken)


def test_a_controller_that_keeps_the_contract_passes() -> None:
    check_controller(Skips())


def test_verifiers() -> None:
    exact = VERIFIERS.get("exact")
    check_verifier(exact, [(Problem("a", "1+1=", "2"), "2")])
    with pytest.raises(AssertionError, match="passed as"):
        check_verifier(exact, [(Problem("a", "1+1=", "2"), "3")])
    with pytest.raises(AssertionError, match="'' passed"):
        check_verifier(lambda problem, response: True, [(Problem("a", "1+1=", "2"), "2")])
    with pytest.raises(AssertionError, match="raised"):
        check_verifier(lambda problem, response: int(response) == 2, [(Problem("a", "1+1=", "2"), "2")])
    with pytest.raises(AssertionError, match="is not a bool"):
        check_verifier(lambda problem, response: 1, [(Problem("a", "1+1=", "2"), "2")])  # type: ignore[arg-type, return-value]


def test_environments() -> None:
    check_environment(SingleTurn(), [(Problem("a", "1+1=", "2"), ["2"]), (Problem("b", "1+2=", "3"), ["3"])])
    assert Ledger().unit == "steps"
    with pytest.raises(AssertionError, match="end with success False"):
        check_environment(SingleTurn(), [(Problem("a", "1+1=", "2"), ["3"])])


def test_the_engine_of_transformers(tiny_model: Qwen3ForCausalLM) -> None:
    contexts = [np.asarray(tokens, np.int32) for tokens in ([5, 6, 7], [8, 9], [10])]
    engine = TransformersEngine(EngineSetup(copy.deepcopy(tiny_model), "", [1], 0))
    check_engine(engine, tiny_model, contexts, [1])
