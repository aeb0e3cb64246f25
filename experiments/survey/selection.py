"""Which problems an expression such as `0 < rate < 1` keeps, and the file that a run reads."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from halfway.curriculum.problems import Problem
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks.files import write_problems
from halfway.experiments.survey.sampling import Record

RATE = "pass_rate"
COMPARED: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def known_values(record: Record) -> dict[str, float]:
    """What an expression may speak of: rate, passed, samples, distinct, truncated, lost, tokens (mean length)."""
    tokens = sum(record.lengths) / len(record.lengths) if record.lengths else 0.0
    return {
        "rate": record.rate,
        "passed": record.passed,
        "samples": record.samples,
        "distinct": record.distinct,
        "truncated": record.truncated,
        "lost": sum(record.lost.values()),
        "tokens": tokens,
    }


def holds(expression: str, values: Mapping[str, float]) -> bool:
    """Whether an expression of comparisons, `and`, `or` and `not` holds. Nothing else in it is evaluated.

    Raises:
        UserError: if it has another form or speaks of something unknown.
    """

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in values:
                return values[name]
        raise refused

    def truth(node: ast.expr) -> bool:
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(list(map(truth, parts)))  # every part is checked
            case ast.BoolOp(op=ast.Or(), values=parts):
                return any(list(map(truth, parts)))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return not truth(part)
            case ast.Compare(left=first, ops=ops, comparators=others):
                terms = [value(term) for term in (first, *others)]
                tests = [COMPARED[type(op)] for op in ops if type(op) in COMPARED]
                if len(tests) == len(ops):
                    return all(test(*pair) for test, pair in zip(tests, pairwise(terms), strict=True))
        raise refused

    refused = UserError(
        f"--keep: {expression!r} is not acceptable; compare {', '.join(values)} with numbers, such as '0 < rate < 1'"
    )
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refused from None
    return truth(tree.body)


def write_kept(problems: Sequence[Problem], records: Sequence[Record], expression: str, path: Path) -> int:
    """Write the problems that an expression keeps, with their pass rate as the column `pass_rate`; returns how many.

    Problems of which no attempt could be judged are left out. An empty expression keeps the others.

    Raises:
        UserError: if none is left.
    """
    kept = [
        replace(problem, features={**problem.features, RATE: record.rate})
        for problem, record in zip(problems, records, strict=True)
        if record.samples and (not expression or holds(expression, known_values(record)))
    ]
    if not kept:
        raise UserError(f"--keep: {expression!r} keeps none of {len(problems)} problems; give a wider one")
    write_problems(kept, str(path), features=True)
    return len(kept)
