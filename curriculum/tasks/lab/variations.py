"""The lab's variations of a problem: the same skills, from another start and in another order."""

import random

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks.lab import operators, sums
from halfway.curriculum.tasks.variations import varied


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
    return varied(problem, operators.render(other), operators.solve(other), {})
