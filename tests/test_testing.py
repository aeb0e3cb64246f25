"""The public contract suites: sound parts pass them, and a part broken in one way fails in that way."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Group, Origin, PassRateController, Plan, Problem, ProblemSet, Request, Stream, Verdict
from halfway.curriculum.environments.ledger import Ledger
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.tasks.verifiers import VERIFIERS
from halfway.testing import check_controller, check_engine, check_environment, check_verifier
from halfway.trainers.engines.transformers.engine import TransformersEngine


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
        return plan.add([replace(request) for request in plan.requests[:1]], "more"), state


class Negative(Skips):
    """Gives negative weights."""

    def weigh(self, groups: Sequence[Group], state: None, stream: Stream) -> Sequence[Group]:
        return [group.weighed(np.full(group.size, -1.0)) for group in groups]


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


class Credulous(Skips):
    """Learns about a problem from its prefixes."""

    def init(self, problems: ProblemSet) -> Any:
        return {"failed": None}


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
def test_a_broken_controller_is_told_what_it_breaks(broken: Any, words: str) -> None:
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
    engine = TransformersEngine(copy.deepcopy(tiny_model), [1], 0, temperature=1.0)
    check_engine(engine, tiny_model, contexts, [1])


def test_origins_are_the_words_of_the_decision_log() -> None:
    assert {origin.value for origin in Origin} == {"fresh", "prefix", "generated", "hinted", "stored"}
    assert Request(Problem("a", "", ""), 1).origin is Origin.FRESH
