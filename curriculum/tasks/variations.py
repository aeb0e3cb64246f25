"""Variations by verifier: from one problem to another like it, whose answer is computed."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from halfway.curriculum.lab import operators, sums
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
        "operator_sheets": "halfway.curriculum.tasks.variations:operator_sheets",
        "running_sums": "halfway.curriculum.tasks.variations:running_sums",
    },
)
"""Under the name of the verifier that judges the problems."""


def running_sums(problem: Problem, stream: Stream) -> Problem:
    """The same additions in another order, from another start value."""
    rng = random.Random(stream.integer())
    sheet = sums.parse(problem.prompt)
    operands = tuple(rng.sample(sheet.operands, len(sheet.operands)))
    varied = sheet._replace(start=(sheet.start + rng.randrange(1, sums.MODULUS)) % sums.MODULUS, operands=operands)
    answer = sums.demonstrate(varied, sums.SumsTeacher(forget=0.0, slip=0.0), rng)
    known = {"wraps": sums.wraps(varied)} if "wraps" in problem.features else {}
    return _varied(problem, sums.render(varied), answer, known)


def operator_sheets(problem: Problem, stream: Stream) -> Problem:
    """The same operators in another order, from another start value: the same skills, other lines."""
    rng = random.Random(stream.integer())
    sheet = operators.parse(problem.prompt)
    start = (sheet.start + rng.randrange(1, operators.VALUES)) % operators.VALUES
    varied = sheet._replace(start=start, operators="".join(rng.sample(sheet.operators, len(sheet.operators))))
    return _varied(problem, operators.render(varied), operators.solve(varied), {})


def _varied(problem: Problem, prompt: str, answer: str, features: Mapping[str, float]) -> Problem:
    return replace(
        problem,
        id=content_id(f"{problem.source or problem.verifier}-varied", prompt, answer),
        prompt=prompt,
        answer=answer,
        solution=answer if problem.solution else "",
        features={**problem.features, **features},
    )
