"""Variations by verifier: a function makes a similar problem from a given one, and computes its answer."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.registry import Registry
from halfway.curriculum.tasks.sources import content_id

Variation = Callable[[Problem, Stream], Problem]
"""(a problem, a stream to draw from) -> another problem with its own answer. Its id depends on its content alone."""

VARIATIONS = Registry(
    what="variation",
    group="halfway.variations",
    builtin={
        "operator_sheets": "halfway.curriculum.tasks.lab.variations:operator_sheets",
        "running_sums": "halfway.curriculum.tasks.lab.variations:running_sums",
    },
)
"""Variations by the name of the verifier that judges the problems."""


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
