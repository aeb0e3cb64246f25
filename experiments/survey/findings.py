"""Findings from a survey's records: zero-variance groups of each size and kind, lengths, lost attempts, by column.

It also selects the problems that an expression such as `0 < rate < 1` keeps.
"""

import ast
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

import numpy as np
from msgspec import structs

from halfway.curriculum import Problem, UserError, refusal
from halfway.curriculum.tasks.files import write_problems
from halfway.experiments.survey.sampling import Record

GROUP_SIZES = (4, 8, 16)
MOST_WORDS, BANDS = 12, 4
"""Maximum number of words of a column to break down, and bands of equal count for a column of numbers."""


@dataclass(frozen=True, slots=True)
class ZeroVariance:
    """Expected shares of zero-variance groups of a given size.

    Attributes:
        size: rollouts of a group.
    """

    size: int
    all_fail: float
    all_pass: float

    @property
    def share(self) -> float:
        return self.all_fail + self.all_pass


@dataclass(frozen=True, slots=True)
class Part:
    """The problems with one value of a column, or in one of its bands."""

    column: str
    value: str
    problems: int
    rate: float
    zero_variance: ZeroVariance


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of a survey.

    Attributes:
        problems: number of problems with at least one judged attempt.
        samples: median number of judged attempts per problem.
        attempts: judged attempts at all problems.
        rate: mean pass rate.
        stderr: standard error of `rate`, over the choice of problems.
        never, always, middle: shares of problems that never passed, always passed, or passed in 1/4 to 3/4 of attempts.
        zero_variance: by group size, up to `samples`.
        repeated: share of the never or always passed problems whose attempts all repeat one text.
        tokens, long_tokens: mean length, and the length that one attempt in ten exceeds.
        truncated: share of attempts ended by a limit.
        malformed: share of the other attempts without an answer of the right form; None if no form is known.
        lost: reason -> number of attempts that could not be judged.
    """

    problems: int
    samples: int
    attempts: int
    rate: float
    stderr: float
    never: float
    always: float
    middle: float
    zero_variance: tuple[ZeroVariance, ...]
    repeated: float | None
    tokens: float
    long_tokens: float
    truncated: float
    malformed: float | None
    lost: Mapping[str, int]
    parts: tuple[Part, ...]


def zero_variance_share(records: Sequence[Record], size: int) -> ZeroVariance:
    """Unbiased: a group of N drawn from the n attempts fails with C(n - k, N) / C(n, N), passes with C(k, N) / C(n, N).

    Problems with fewer than N judged attempts are left out.
    """
    enough = [record for record in records if record.samples >= size]
    assert enough, f"no problem has {size} judged attempts"
    fails = [math.comb(r.samples - r.passed, size) / math.comb(r.samples, size) for r in enough]
    passes = [math.comb(r.passed, size) / math.comb(r.samples, size) for r in enough]
    return ZeroVariance(size, float(np.mean(fails)), float(np.mean(passes)))


def find(records: Sequence[Record]) -> Findings:
    """Compute the findings of a survey.

    Raises:
        UserError: if no attempt could be judged.
    """
    judged = [record for record in records if record.samples]
    lost = sum((Counter(record.lost) for record in records), Counter[str]())
    if not judged:
        raise UserError(f"survey: no attempt could be judged ({dict(lost)}); fix the cause and survey again")
    rates = np.array([record.rate for record in judged])
    samples = median_low(record.samples for record in judged)
    attempts = sum(record.samples for record in judged)
    truncated = sum(record.truncated for record in judged)
    known_form = [record.malformed for record in judged if record.malformed is not None]
    alike = [record for record in judged if record.passed in (0, record.samples)]
    lengths = np.concatenate([record.lengths for record in judged])
    return Findings(
        problems=len(judged),
        samples=samples,
        attempts=attempts,
        rate=float(rates.mean()),
        stderr=float(rates.std(ddof=1) / math.sqrt(len(rates))) if len(rates) > 1 else 0.5,
        never=float(np.mean(rates == 0)),
        always=float(np.mean(rates == 1)),
        middle=float(np.mean((rates >= 0.25) & (rates <= 0.75))),
        zero_variance=tuple(zero_variance_share(judged, size) for size in GROUP_SIZES if size <= samples),
        repeated=_share(record.distinct == 1 for record in alike),
        tokens=float(lengths.mean()),
        long_tokens=float(np.quantile(lengths, 0.9)),
        truncated=truncated / attempts,
        malformed=sum(known_form) / max(1, attempts - truncated) if known_form else None,
        lost=dict(lost),
        parts=tuple(parts(judged, samples)),
    )


def parts(records: Sequence[Record], samples: int) -> Iterable[Part]:
    """The findings by source, and by every column that all problems have with different values."""
    size = max((size for size in GROUP_SIZES[:2] if size <= samples), default=max(2, samples))
    columns = set.intersection(*(set(record.features) for record in records))
    for column in ("source", *sorted(columns - {"source"})):
        divided = divide(records, [r.source if column == "source" else r.features[column] for r in records])
        for name, some in divided.items() if len(divided) > 1 else ():
            if any(record.samples >= size for record in some):
                rate = float(np.mean([record.rate for record in some]))
                yield Part(column, name, len(some), rate, zero_variance_share(some, size))


def divide(records: Sequence[Record], values: Sequence[float | str]) -> dict[str, list[Record]]:
    """Divide the records by word or few numbers, or by bands of about equal count; empty if there are too many words.

    Args:
        values: the value of each record.
    """
    divided: defaultdict[str, list[Record]] = defaultdict(list)
    if len(set(values)) <= MOST_WORDS:
        order = sorted(set(values), key=lambda value: (isinstance(value, str), value))
        return {_shown(value): [r for r, own in zip(records, values, strict=True) if own == value] for value in order}
    if any(isinstance(value, str) for value in values):
        return {}
    edges = np.unique(np.quantile(np.array(values, float), np.linspace(0, 1, BANDS + 1)))
    bands = np.clip(np.searchsorted(edges, np.array(values, float), side="right") - 1, 0, len(edges) - 2)
    for band, record in sorted(zip(bands.tolist(), records, strict=True), key=lambda pair: pair[0]):
        divided[f"{edges[band]:.3g} to {edges[band + 1]:.3g}"].append(record)
    return dict(divided)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _share(flags: Iterable[bool]) -> float | None:
    listed = list(flags)
    return sum(listed) / len(listed) if listed else None


RATE, PASSED, ATTEMPTS = "pass_rate", "passed", "attempts"
COMPARISONS = (ast.Compare, ast.BoolOp, ast.UnaryOp)
WORDS = (ast.And, ast.Or, ast.Not, ast.Load, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


KNOWN = ("rate", "passed", "samples", "distinct", "truncated", "lost", "tokens")
"""Names in an expression; tokens are the mean length of an attempt."""


def values_of(record: Record) -> dict[str, float]:
    tokens = sum(record.lengths) / len(record.lengths) if record.lengths else 0.0
    values = (record.rate, record.passed, record.samples, record.distinct, record.truncated, sum(record.lost.values()))
    return dict(zip(KNOWN, (*values, tokens), strict=True))


def check_expression(expression: str) -> None:
    """Refuse an invalid expression, see `holds`; an empty one keeps all problems."""
    if expression:
        holds(expression, dict.fromkeys(KNOWN, 1.0))


def holds(expression: str, values: Mapping[str, float]) -> bool:
    """True if an expression of comparisons, `and`, `or` and `not` holds. It evaluates nothing else.

    Raises:
        UserError: if it has another form or an unknown name.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        if isinstance(tree.body, COMPARISONS) and all(_allowed(node, values) for node in ast.walk(tree.body)):
            return bool(eval(compile(tree, "--keep", "eval"), {"__builtins__": {}}, dict(values)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise refusal("--keep", expression, f"compare {', '.join(values)} with numbers, such as '0 < rate < 1'")


def _allowed(node: ast.AST, values: Mapping[str, float]) -> bool:
    """True if a part of an expression compares known values and numbers, or joins comparisons."""
    match node:
        case ast.Name(id=name):
            return name in values
        case ast.Constant(value=value):
            return type(value) in (int, float)
    return isinstance(node, (*COMPARISONS, *WORDS))


def write_kept(problems: Sequence[Problem], records: Sequence[Record], expression: str, path: Path) -> int:
    """Write the problems that an expression keeps; returns their number.

    They have further columns: `pass_rate`, judged `attempts`, and how many of them `passed`.

    Problems without a judged attempt are left out. An empty expression keeps all others.

    Raises:
        UserError: if no problem is left.
    """
    kept = [
        structs.replace(
            problem,
            features={**problem.features, RATE: record.rate, PASSED: record.passed, ATTEMPTS: record.samples},
        )
        for problem, record in zip(problems, records, strict=True)
        if record.samples and (not expression or holds(expression, values_of(record)))
    ]
    if not kept:
        raise UserError(f"--keep: {expression!r} keeps none of {len(problems)} problems; give a wider one")
    write_problems(kept, str(path), features=True)
    return len(kept)
