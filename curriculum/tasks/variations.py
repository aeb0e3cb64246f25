"""Variations by verifier: from one problem to another like it, whose answer is computed."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.registry import Registry
from halfway.curriculum.tasks.sources import content_id

Variation = Callable[[Problem, Stream], Problem]
"""(a problem, where to draw from) -> another one with an answer of its own. Its id depends on its content alone."""

VARIATIONS = Registry(
    what="variation",
    group="halfway.variations",
    builtin={
        "operator_sheets": "halfway.curriculum.lab.variations:operator_sheets",
        "running_sums": "halfway.curriculum.lab.variations:running_sums",
    },
)
"""Under the name of the verifier that judges the problems."""


def varied(problem: Problem, prompt: str, answer: str, features: Mapping[str, float]) -> Problem:
    """The problem with another prompt and answer; `features` replace those that differ."""
    return replace(
        problem,
        id=content_id(f"{problem.source or problem.verifier}-varied", prompt, answer),
        prompt=prompt,
        answer=answer,
        solution=answer if problem.solution else "",
        features={**problem.features, **features},
    )
