"""The lab's variations of a problem: the same skills, from another start and in another order."""

import random
from collections.abc import Mapping
from dataclasses import replace

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.lab import operators, sums
from halfway.curriculum.tasks.sources import content_id


def running_sums(problem: Problem, stream: Stream) -> Problem:
    """The same additions in another order, from another start value."""
    rng = random.Random(stream.integer())
    sheet = sums.parse(problem.prompt)
    operands = tuple(rng.sample(sheet.operands, len(sheet.operands)))
    other = sheet._replace(start=(sheet.start + rng.randrange(1, sums.MODULUS)) % sums.MODULUS, operands=operands)
    answer = sums.demonstrate(other, sums.SumsTeacher(forget=0.0, slip=0.0), rng)
    known = {"wraps": sums.wraps(other)} if "wraps" in problem.features else {}
    return varied(problem, sums.render(other), answer, known)


def operator_sheets(problem: Problem, stream: Stream) -> Problem:
    """The same operators in another order, from another start value: the same skills, other lines."""
    rng = random.Random(stream.integer())
    sheet = operators.parse(problem.prompt)
    start = (sheet.start + rng.randrange(1, operators.VALUES)) % operators.VALUES
    other = sheet._replace(start=start, operators="".join(rng.sample(sheet.operators, len(sheet.operators))))
    return varied(problem, operators.render(other), operators.solve(other, operators.table_of(problem.features)), {})


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
