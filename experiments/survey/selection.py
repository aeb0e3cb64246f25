"""Which problems an expression such as `0 < rate < 1` keeps, and the file that a run reads."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from halfway.curriculum.problems import Problem
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.tasks.files import write_problems
from halfway.experiments.survey.sampling import Record

RATE = "pass_rate"
COMPARISONS = (ast.Compare, ast.BoolOp, ast.UnaryOp)
WORDS = (ast.And, ast.Or, ast.Not, ast.Load, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


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
    """Whether an expression of comparisons, `and`, `or` and `not` holds. Nothing else is evaluated.

    Raises:
        UserError: if it has another form or speaks of something unknown.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        if isinstance(tree.body, COMPARISONS) and all(_allowed(node, values) for node in ast.walk(tree.body)):
            return bool(eval(compile(tree, "--keep", "eval"), {"__builtins__": {}}, dict(values)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise UserError(
        f"--keep: {expression!r} is not acceptable; compare {', '.join(values)} with numbers, such as '0 < rate < 1'"
    )


def _allowed(node: ast.AST, values: Mapping[str, float]) -> bool:
    """Whether a part of an expression compares known values and numbers, or joins comparisons."""
    match node:
        case ast.Name(id=name):
            return name in values
        case ast.Constant(value=value):
            return type(value) in (int, float)
    return isinstance(node, (*COMPARISONS, *WORDS))


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
