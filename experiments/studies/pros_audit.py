"""Checks that the counts that steer PROS agree with the decision log."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from halfway.controllers.beliefs.forest import Floats
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.pros import ProsState
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.support.errors import UserError

TOLERANCE = 1e-6


def recount(
    records: Iterable[Mapping[str, Any]], problems: ProblemSet, belief: PassRateBelief
) -> tuple[Floats, Floats]:
    """Discounted successes and rollouts of each problem's own groups, (problems,) each, from the decision log alone.

    Args:
        records: all steps' records so far, in the order in which the training loop wrote them. A group that is carried
            over was observed in the step that rolled it out; it appears again among the first records of the next step.
        belief: the belief whose discount applies.
    """
    steps: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        if record["outcome"] != "skipped":
            steps[record["step"]].append(record)
    forest, carried = belief.init(len(problems)), 0
    for step in range(max(steps, default=-1) + 1):
        observed = steps[step][carried:]
        carried = sum(record["outcome"] == "carried" for record in steps[step])
        fresh = [record for record in observed if record["origin"] == "fresh" and record["n"]]
        nodes = [problems.position(record["problem"]) for record in fresh]
        forest = belief.learn(forest, nodes, [r["k"] for r in fresh], [r["n"] for r in fresh])
    return forest.passed_M, forest.tried_M


def check_against_log(state: ProsState, belief: PassRateBelief, records: Iterable[Mapping[str, Any]]) -> None:
    """Raise UserError, naming the first problem, if a state's counts differ from the decision log's."""
    passed_R, tried_R = recount(records, state.problems, belief)
    held = (state.forest.passed_M[: len(passed_R)], state.forest.tried_M[: len(passed_R)])
    wrong = (np.abs(held[0] - passed_R) > TOLERANCE) | (np.abs(held[1] - tried_R) > TOLERANCE)
    if wrong.any():
        tree = int(np.argmax(wrong))
        raise UserError(
            f"decisions.jsonl: problem {state.problems[tree].id!r} has {passed_R[tree]:.4g} successes of "
            f"{tried_R[tree]:.4g} rollouts in the log, {held[0][tree]:.4g} of {held[1][tree]:.4g} in the state; "
            "resume from a checkpoint of the same run"
        )
