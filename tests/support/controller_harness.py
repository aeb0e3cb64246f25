"""Shared by tests of controllers: problems, groups with a given outcome, and a loop without a model."""

import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfway.controllers.beliefs.calibration import RATE
from halfway.curriculum import (
    Group,
    Origin,
    PassRateController,
    Plan,
    Prefix,
    Problem,
    ProblemSet,
    Request,
    Rollout,
    Stream,
    Turn,
    Unit,
    cut,
    propose_until_full,
    restore_state,
    save_state,
)
from halfway.curriculum.tasks.lab import sums
from halfway.testing.simulator import SimulatedRollouts

POLICY_VERSION = 3


def simulated(version: int) -> SimulatedRollouts:
    """The simulated learner after `version` updates."""
    return SimulatedRollouts(policy_version=version)


def problem_set(count: int, generated: int = 0, solution: str = "one\ntwo\nthree\n") -> ProblemSet:
    """A set of `count` problems, and `generated` generated problems beside them.

    All have a probe's guess, a reference solution, and the columns that controllers read: the difficulty that the
    simulated learner gives them, a category, and the pass rates of a weak and of a strong reference model.
    """
    made = [
        Problem(
            f"{kind}{i}",
            sums.render(sums.Sheet(i % 6, tuple(1 + i // 4**place % 4 for place in range(4)), 1)),
            "0",
            verifier="running_sums",
            features=features_of(f"{kind}{i}", i, count),
            solution=solution,
        )
        for kind, number in (("p", count), ("g", generated))
        for i in range(number)
    ]
    return ProblemSet(made[:count], made[count:])


def features_of(problem_id: str, place: int, count: int) -> dict[str, float | str]:
    difficulty = SimulatedRollouts().difficulty(Problem(problem_id, "", ""))
    weak, strong = ((1 + math.tanh((skill - difficulty) / 2)) / 2 for skill in (-1.0, 2.0))
    return {
        RATE: (place % 19 + 1) / 20,
        "difficulty": difficulty,
        "category": f"c{place % (2 if count > 3 else 1)}",
        "weak_rate": weak,
        "strong_rate": strong,
    }


def rollout(success: bool, length: int = 8, unit: Unit = "tokens", truncated: bool = False, first: int = 0) -> Rollout:
    """One turn of `length` tokens, or `length` turns of one token; tokens count up from `first`."""
    tokens = np.arange(first, first + length, dtype=np.int32)
    values = np.full(length, -0.25, np.float32)
    if unit == "tokens":
        return Rollout((Turn(tokens, values, -values, POLICY_VERSION),), success, truncated)
    turns = (
        Turn(tokens[i : i + 1], values[i : i + 1], -values[i : i + 1], POLICY_VERSION, observation=f"o{i}")
        for i in range(length)
    )
    return Rollout(tuple(turns), success, truncated)


def group(
    problem: Problem,
    passed: int,
    size: int = 8,
    origin: Origin = Origin.FRESH,
    prefix: Prefix | None = None,
    rollouts: Sequence[Rollout] | None = None,
    unit: Unit = "tokens",
) -> Group:
    """A group whose last `passed` rollouts succeeded. Rollout i begins with the token 100 i."""
    made = rollouts or [rollout(i >= size - passed, unit=unit, first=100 * i) for i in range(size)]
    return Group(Request(problem, size, origin, prefix), np.zeros(2, np.int32), tuple(made), unit)


def child(problem: Problem, parent: tuple[int, int], passed: int, size: int = 8) -> Group:
    """A group that started from a prefix of a parent with k of N."""
    success = parent[0] < parent[1] / 2
    turns = cut(rollout(success), 2, "tokens")
    prefix = Prefix(turns, 2, "tokens", *parent, parent_success=success)
    return group(problem, passed, size, Origin.PREFIX, prefix)


def coin(problem: Problem, response: str) -> bool:
    """A verifier that passes one response in `problem.answer` ("2", "4", or "never"), whatever the policy is."""
    return problem.answer != "never" and zlib.crc32(response.encode()) % int(problem.answer) == 0


def describe(plan: Plan) -> list[Any]:
    """Everything in a plan, as values that can be compared."""
    return [
        [
            r.problem.id,
            r.num_rollouts,
            r.origin.value,
            r.decisions,
            r.prefix and [r.prefix.length, r.prefix.parent_passed, [t.tokens_T.tolist() for t in r.prefix.turns]],
            r.hint and r.hint.text,
            r.stored and [t.tokens_T.tolist() for rollout in r.stored.rollouts for t in rollout.turns],
        ]
        for r in plan.requests
    ] + list(plan.skipped)


def propose(
    controller: PassRateController[Any], state: Any, step: int, wanted: int = 16, size: int = 8, seed: int = 0
) -> tuple[Plan, Any]:
    stream = Stream(seed).at(step, "propose")
    return propose_until_full(controller, Plan(step, wanted, size), state, stream)


def rolled_out(plan: Plan, step: int, seed: int = 0, learner: SimulatedRollouts | None = None) -> list[Group]:
    """The groups that the simulated learner makes of a plan's requests, without those for stored groups."""
    requests = [request for request in plan.requests if request.stored is None]
    return (learner or simulated(step)).run(requests, Stream(seed).at(step, "rollout"))


def play(
    controller: PassRateController[Any],
    state: Any,
    steps: range,
    seed: int = 0,
    wanted: int = 16,
    learner: SimulatedRollouts | None = None,
) -> tuple[list[Any], Any]:
    """The plans of these steps, and the controller's state after them.

    Args:
        learner: rolls the plans out; None = a simulated learner that improves with every step.
    """
    plans = []
    for step in steps:
        plan, state = propose(controller, state, step, wanted, seed=seed)
        plans.append(describe(plan))
        state = controller.observe(state, rolled_out(plan, step, seed, learner), step)
    return plans, state


def through_json(controller: PassRateController[Any], problems: ProblemSet, state: Any) -> Any:
    """The state after being saved as JSON and restored, as a resumed run would get it."""
    return restore_state(controller.init(problems), json.loads(json.dumps(save_state(state))))
