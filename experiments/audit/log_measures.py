"""Computes the numbers of an audit: where the rollouts went, and how well a problem's past predicts its future.

All numbers are counts from the log, without a model. Shares of groups are over fresh groups with at least one scored
rollout, unless stated otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from halfway.curriculum.decision_log import UNUSED
from halfway.curriculum.signals import NEAR_HALF
from halfway.experiments.audit.database import Tables
from halfway.experiments.audit.history import OUTCOMES, UNKNOWN, History, Log

BINS = 12
LONGEST = 4
"""Streaks of at least this many zero-variance groups are counted together."""

SOLVED = 0.5
"""The lowest pass rate at which a problem counts as solved at a visit."""

LEAST_CATEGORY = 10
"""Minimum number of groups of a listed kind of problem, in the first and in the last third of the steps."""

MOST_CATEGORIES = 20

VISITS = """
    WITH kinds AS (
        SELECT *,
            CASE WHEN NOT zero_variance_V THEN 'mixed'
                WHEN 2 * passed_V > size_V THEN 'all passed' ELSE 'all failed' END AS kind,
            row_number() OVER (PARTITION BY problem_V ORDER BY step_V, place) AS visit
        FROM fresh),
    streaks AS (
        SELECT *, visit - row_number() OVER (PARTITION BY problem_V, kind ORDER BY visit) AS streak FROM kinds)
    SELECT *, lag(kind) OVER problem AS before, lead(kind) OVER problem AS after,
        row_number() OVER (PARTITION BY problem_V, kind, streak ORDER BY visit) AS length
    FROM streaks WINDOW problem AS (PARTITION BY problem_V ORDER BY visit)
"""
"""The fresh groups as visits to their problems: the kinds of a visit and of the visits before and after it, and the
number of consecutive visits of its kind up to it."""

ALL_VISITS = """
    SELECT avg(zero_variance_V::INT), avg((kind = 'all failed')::INT), avg((kind = 'all passed')::INT),
        avg((passed_V = 0)::INT), avg((passed_V = size_V)::INT), avg((passed_V / size_V BETWEEN ? AND ?)::INT)
    FROM visits
"""
SHARES_OF_ALL = ("zero_variance", "all_failed", "all_passed", "none_passed", "none_failed", "near_half")
SHARES = "avg((kind = 'all failed')::INT), avg((kind = 'mixed')::INT), avg((kind = 'all passed')::INT)"
MEMORY = f"""
    SELECT before, count(*), {SHARES} FROM visits WHERE before IS NOT NULL GROUP BY before
    ORDER BY list_position(['all failed', 'mixed', 'all passed'], before)
"""
STREAKS = f"""
    SELECT kind, least(length, {LONGEST}) AS length, count(*), avg((after = kind)::INT) FROM visits
    WHERE kind <> 'mixed' AND after IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
OVER_TIME = """
    WITH steps AS (SELECT DISTINCT step_V FROM visits),
    stretches AS (SELECT step_V, ntile(?) OVER (ORDER BY step_V) AS stretch FROM steps),
    shares AS (
        SELECT min(step_V) AS first, max(step_V) AS last, count(*) AS visits, avg((kind = 'all failed')::INT) AS failed,
            avg((kind = 'all passed')::INT) AS passed, sum(passed_V) / sum(size_V) AS rate
        FROM visits JOIN stretches USING (step_V) GROUP BY stretch)
    SELECT first, last, visits, failed, 1 - failed - passed, passed, rate FROM shares ORDER BY first
"""
FATES = f"""
    WITH problems AS (
        SELECT count(*) > 1 AS again, sum(passed_V) AS passed, sum(size_V - passed_V) AS failed,
            arg_min(passed_V, visit) AS first, arg_max(passed_V, visit) AS last,
            bool_or(passed_V / size_V >= {SOLVED}) AS solved
        FROM visits GROUP BY problem_V)
    SELECT count(*), count_if(again), count_if(passed = 0), count_if(failed = 0),
        count_if(again AND solved AND last = 0), count_if(again AND first = 0 AND passed > 0)
    FROM problems
"""
KINDS = f"""
    WITH thirds AS (
        SELECT *, step_V <= ? AS early, step_V > ? AS late FROM visits WHERE category <> -1)
    SELECT category, count(*), sum(passed_V) FILTER (early) / sum(size_V) FILTER (early),
        sum(passed_V) FILTER (late) / sum(size_V) FILTER (late), avg(zero_variance_V::INT)
    FROM thirds GROUP BY category
    HAVING count_if(early) >= {LEAST_CATEGORY} AND count_if(late) >= {LEAST_CATEGORY}
    ORDER BY count(*) DESC, category LIMIT {MOST_CATEGORIES}
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The fresh groups in a range of steps, including its first and last step, with shares of their outcomes."""

    first: int
    last: int
    groups: int
    all_failed: float
    mixed: float
    all_passed: float
    rate: float

    @property
    def steps(self) -> str:
        """The steps as text: "0-3", or "0" for a single step."""
        return f"{self.first}-{self.last}" if self.last > self.first else str(self.first)


@dataclass(frozen=True, slots=True)
class Memory:
    """Outcomes of a problem's next visit after a visit with the outcome `before`, as shares of `visits`."""

    before: str
    visits: int
    all_failed: float
    mixed: float
    all_passed: float


@dataclass(frozen=True, slots=True)
class Streak:
    """Visits after `length` groups in a row that all passed, or all failed; `again`: share with the same outcome."""

    kind: str
    length: int
    visits: int
    again: float


@dataclass(frozen=True, slots=True)
class CategoryChange:
    """A kind of problem: pass rates in the first and last third of the steps, and the share of zero-variance groups."""

    category: str
    groups: int
    before: float
    after: float
    zero_variance: float


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost of a run, total and in zero-variance groups, including rollouts lost before scoring.

    Attributes:
        rollouts: number of rollouts in the log, including lost rollouts.
        zero_variance: number of rollouts in zero-variance groups of any origin.
        lost: number of rollouts that were never scored.
        tokens, zero_variance_tokens: amounts generated, total and in zero-variance groups, in the unit of
            `Reading.measure`; None if unknown.
        hours: duration of the run; None if unknown.
        zero_variance_hours: the zero-variance groups' part of the hours, in proportion to tokens, otherwise to
            rollouts.
    """

    rollouts: int
    zero_variance: int
    lost: int
    tokens: int | None
    zero_variance_tokens: int | None
    hours: float | None
    zero_variance_hours: float | None

    @property
    def share(self) -> float:
        return self.zero_variance / self.rollouts if self.rollouts else 0.0


@dataclass(frozen=True, slots=True)
class Fates:
    """Numbers of problems by their outcomes over all visits.

    Attributes:
        problems: number of visited problems.
        revisited: number of problems visited at least twice; only these count for `forgotten` and `unlocked`.
        never: number of problems without a passing rollout.
        always: number of problems without a failing rollout.
        forgotten: number of problems with at least half of the rollouts passing at some visit, but none at the last.
        unlocked: number of problems without a passing rollout at the first visit, but with one later.
    """

    problems: int
    revisited: int
    never: int
    always: int
    forgotten: int
    unlocked: int


@dataclass(frozen=True, slots=True)
class Findings:
    """All numbers of an audit about one log, except counterfactuals.

    Attributes:
        groups, steps: number of fresh groups, and number of steps.
        group_size: the most common group size N.
        zero_variance, all_failed, all_passed: shares of the fresh groups; the last two are parts of the first.
        none_passed, none_failed: shares of the fresh groups without a pass, and without a failure; their rewards may
            differ.
        near_half: share of the fresh groups with a pass rate in `NEAR_HALF`.
        price: rollouts per mixed fresh group, the price of DAPO's dynamic sampling for every trained group; None if no
            group is mixed.
        outcomes: number of groups of any origin by outcome; empty if unknown.
        wasted: share of the rollouts in groups that do not train, or lost; None if unknown.
        skipped: number of problems refused before any rollout.
    """

    groups: int
    steps: int
    group_size: int
    zero_variance: float
    all_failed: float
    all_passed: float
    none_passed: float
    none_failed: float
    near_half: float
    price: float | None
    spending: Spending
    fates: Fates
    over_time: tuple[Stretch, ...]
    memory: tuple[Memory, ...] = ()
    streaks: tuple[Streak, ...] = ()
    kinds: tuple[CategoryChange, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    wasted: float | None = None
    skipped: int = 0


def findings(log: Log, hours: float | None = None) -> Findings:
    """Compute the numbers of one log.

    Args:
        hours: duration of the run; None = from the log, if it has one.
    """
    history = log.history
    fresh = history.fresh()
    mixed = int(((fresh.passed_V > 0) & (fresh.passed_V < fresh.size_V)).sum())
    names = sorted({name for name in fresh.category_P if name})
    codes = {name: code for code, name in enumerate(names)}
    code_P = np.asarray([codes.get(name, UNKNOWN) for name in fresh.category_P], np.int32)
    columns = {**fresh.columns, "place": np.arange(len(fresh)), "category": code_P[fresh.problem_V]}
    with Tables(fresh=columns) as tables:
        tables.define("visits", VISITS)
        shares = tables.rows(ALL_VISITS, *NEAR_HALF)[0] if len(fresh) else (0.0,) * 6
        return Findings(
            groups=len(fresh),
            steps=len(np.unique(history.step_V)),
            group_size=history.group_size,
            **dict(zip(SHARES_OF_ALL, shares, strict=True)),
            price=fresh.num_rollouts / mixed if mixed else None,
            spending=spending(history, log.hours if hours is None else hours),
            fates=Fates(*tables.rows(FATES)[0]),
            over_time=tuple(Stretch(*row) for row in tables.rows(OVER_TIME, BINS)),
            memory=tuple(Memory(*row) for row in tables.rows(MEMORY)) if log.reading.identified else (),
            streaks=tuple(Streak(*row) for row in tables.rows(STREAKS)) if log.reading.identified else (),
            kinds=kinds(fresh, names, tables),
            outcomes=outcomes(history),
            wasted=wasted(history),
            skipped=history.skipped,
        )


def kinds(fresh: History, names: Sequence[str], tables: Tables) -> tuple[CategoryChange, ...]:
    """Pass rates by kind of problem in the first and in the last third of the log, for the largest kinds first."""
    if not names or not len(fresh):
        return ()
    thirds = np.quantile(fresh.step_V, (1 / 3, 2 / 3)).tolist()
    return tuple(CategoryChange(names[code], *row) for code, *row in tables.rows(KINDS, *thirds))


def spending(history: History, hours: float | None) -> Spending:
    """Rollouts, tokens and hours, in all and for zero-variance groups."""
    rollouts = history.num_rollouts + int(history.lost_V.sum())
    zero_variance = int(history.size_V[history.zero_variance_V].sum())
    counted = len(history) > 0 and bool((history.tokens_V != UNKNOWN).all())
    tokens = int(history.tokens_V.sum()) if counted else None
    zero_variance_tokens = int(history.tokens_V[history.zero_variance_V].sum()) if counted else None
    share = (
        zero_variance_tokens / tokens
        if tokens and zero_variance_tokens is not None
        else zero_variance / max(1, rollouts)
    )
    return Spending(
        rollouts=rollouts,
        zero_variance=zero_variance,
        lost=int(history.lost_V.sum()),
        tokens=tokens,
        zero_variance_tokens=zero_variance_tokens,
        hours=hours,
        zero_variance_hours=None if hours is None else hours * share,
    )


def outcomes(history: History) -> dict[str, int]:
    """Number of groups of any origin by outcome; empty if unknown."""
    counts = np.bincount(history.outcome_V[history.outcome_V != UNKNOWN], minlength=len(OUTCOMES))
    return {name: int(count) for name, count in zip(OUTCOMES, counts, strict=True) if count}


def wasted(history: History) -> float | None:
    """Share of the generated rollouts in groups that do not train, or lost before scoring.

    None if the log does not have the outcomes of its groups. Reports of comparisons use the same definition.
    """
    if not (history.outcome_V != UNKNOWN).any():
        return None
    thrown_V = np.isin(history.outcome_V, [OUTCOMES.index(outcome) for outcome in UNUSED])
    lost = int(history.lost_V.sum())
    return (int(history.size_V[thrown_V].sum()) + lost) / max(1, history.num_rollouts + lost)
