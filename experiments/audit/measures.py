"""Computes the numbers of an audit: where the rollouts went, and what a problem's past says about its future.

Everything is counted from the log; nothing is modelled. Shares of groups are over fresh groups with at least one scored
rollout, unless stated otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.signals import NEAR_HALF
from halfway.experiments.audit.history import OUTCOMES, UNKNOWN, Flags, History, Ints, Log, Visits

BINS = 12
KINDS = ("all failed", "mixed", "all passed")
LONGEST = 4
"""Streaks of at least this many silent groups are counted together."""

SOLVED = 0.5
"""The lowest pass rate at which a problem counts as solved at a visit."""

LEAST_CATEGORY = 10
"""How many groups a kind of problem needs in the first and in the last third of the steps to be listed."""

MOST_CATEGORIES = 20


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
    """How a problem's next visit turned out after a visit with the outcome `before`, with shares over `visits`."""

    before: str
    visits: int
    all_failed: float
    mixed: float
    all_passed: float


@dataclass(frozen=True, slots=True)
class Streak:
    """Visits after a streak of `length` silent groups of one kind; `again` is the share that had that kind again."""

    kind: str
    length: int
    visits: int
    again: float


@dataclass(frozen=True, slots=True)
class CategoryChange:
    """Pass rates of a kind of problem in the first and the last third of the steps, and its share of silent groups."""

    category: str
    groups: int
    before: float
    after: float
    silent: float


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent in all and on silent groups. Rollouts that were lost before they were scored count as spent.

    Attributes:
        rollouts: number of rollouts in the log, including lost rollouts.
        silent: number of rollouts in silent groups of any origin.
        lost: number of rollouts that were never scored.
        tokens, silent_tokens: amounts generated in all and for silent groups, in the unit of `Reading.measure`; None if
            the log does not tell.
        hours: duration of the run; None if it is unknown.
        silent_hours: the silent groups' part of the hours, in proportion to tokens or else to rollouts.
    """

    rollouts: int
    silent: int
    lost: int
    tokens: int | None
    silent_tokens: int | None
    hours: float | None
    silent_hours: float | None

    @property
    def share(self) -> float:
        return self.silent / self.rollouts if self.rollouts else 0.0


@dataclass(frozen=True, slots=True)
class Fates:
    """Numbers of problems by how they fared over their visits.

    Attributes:
        problems: number of problems that were visited.
        revisited: number of problems visited at least twice; only these count for `forgotten` and `unlocked`.
        never: number of problems without a single passing rollout.
        always: number of problems without a single failing rollout.
        forgotten: number of problems of which at least half of the rollouts passed at some visit, but none at the last.
        unlocked: number of problems of which no rollout passed at the first visit, but some did later.
    """

    problems: int
    revisited: int
    never: int
    always: int
    forgotten: int
    unlocked: int


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that an audit says about one log, except for counterfactuals.

    Attributes:
        groups, steps: number of fresh groups, and number of steps.
        group_size: the most common group size N.
        silent, all_failed, all_passed: shares of the fresh groups.
        near_half: share of the fresh groups with a pass rate in `NEAR_HALF`.
        price: rollouts per fresh group that is not silent, which is what DAPO's dynamic sampling pays for every group
            that it trains; None if all are silent.
        outcomes: number of groups of any origin by outcome; empty if the log does not say.
        wasted: share of the rollouts that were in degenerate or surplus groups, or were lost; None if the log does not
            say.
        skipped: number of problems refused before any rollout.
    """

    groups: int
    steps: int
    group_size: int
    silent: float
    all_failed: float
    all_passed: float
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
        hours: how long the run took; None = what the log says, if it does.
    """
    history = log.history
    fresh = history.fresh()
    visits = history.visits()
    silent_V = fresh.silent_V
    size = history.group_size
    taught = int((~silent_V).sum())
    rate_V = fresh.rate_V
    return Findings(
        groups=len(fresh),
        steps=len(np.unique(history.step_V)),
        group_size=size,
        silent=_share(silent_V),
        all_failed=_share(fresh.all_failed_V),
        all_passed=_share(fresh.all_passed_V),
        near_half=_share((rate_V >= NEAR_HALF[0]) & (rate_V <= NEAR_HALF[1])),
        price=fresh.num_rollouts / taught if taught else None,
        spending=spending(history, log.hours if hours is None else hours),
        fates=fates(visits),
        over_time=over_time(fresh),
        memory=memory(visits) if log.reading.identified else (),
        streaks=streaks(visits) if log.reading.identified else (),
        kinds=kinds(fresh),
        outcomes=outcomes(history),
        wasted=wasted(history),
        skipped=sum(history.skipped.values()),
    )


def over_time(fresh: History, bins: int = BINS) -> tuple[Stretch, ...]:
    """The fresh groups in at most `bins` stretches with about equally many steps each."""
    steps = np.unique(fresh.step_V)
    found = []
    for part in np.array_split(steps, min(bins, len(steps))) if len(steps) else ():
        inside_V = (fresh.step_V >= part[0]) & (fresh.step_V <= part[-1])
        some = fresh.where(inside_V)
        failed, passed = _share(some.all_failed_V), _share(some.all_passed_V)
        rate = float(some.passed_V.sum() / some.size_V.sum())
        found.append(Stretch(int(part[0]), int(part[-1]), len(some), failed, 1 - failed - passed, passed, rate))
    return tuple(found)


def kind_V(history: History) -> NDArray[np.int8]:
    """The kind of each group, as a position in `KINDS`, (groups,)."""
    return np.asarray(1 - history.all_failed_V.astype(np.int8) + history.all_passed_V.astype(np.int8), np.int8)


def memory(visits: Visits) -> tuple[Memory, ...]:
    """The outcomes of visits, given the outcome of the same problem's previous visit."""
    kinds_V = kind_V(visits.history)
    again_V = visits.index_V[1:] > 0
    before_V, after_V = kinds_V[:-1][again_V], kinds_V[1:][again_V]
    found = []
    for code, name in enumerate(KINDS):
        after = after_V[before_V == code]
        if len(after):
            shares = np.bincount(after, minlength=len(KINDS)) / len(after)
            found.append(Memory(name, len(after), *map(float, shares)))
    return tuple(found)


def streaks(visits: Visits) -> tuple[Streak, ...]:
    """How often a streak of silent groups of one kind continues, by its length, which is what GRESO relies on."""
    kinds_V = kind_V(visits.history)
    length_V = streak_lengths(kinds_V, visits.index_V)
    again_V = visits.index_V[1:] > 0
    before_V, after_V, long_V = kinds_V[:-1][again_V], kinds_V[1:][again_V], length_V[:-1][again_V]
    found = []
    for code in (0, 2):
        for length in range(1, LONGEST + 1):
            chosen_V = (before_V == code) & ((long_V >= length) if length == LONGEST else (long_V == length))
            if chosen_V.any():
                again = _share(after_V[chosen_V] == code)
                found.append(Streak(KINDS[code], length, int(chosen_V.sum()), again))
    return tuple(found)


def streak_lengths(kinds_V: NDArray[np.int8], index_V: Ints) -> Ints:
    """For each visit, how many consecutive visits to its problem, ending with this one, were of its kind, (visits,)."""
    if not len(kinds_V):
        return np.zeros(0, np.int64)
    begins_V = np.append(True, (kinds_V[1:] != kinds_V[:-1]) | (index_V[1:] == 0))
    starts = np.flatnonzero(begins_V)
    lengths_V: Ints = np.arange(len(kinds_V)) - starts[np.cumsum(begins_V) - 1] + 1
    return lengths_V


def fates(visits: Visits) -> Fates:
    """Count problems by how they fared over their visits."""
    history, index_V = visits
    if not len(history):
        return Fates(0, 0, 0, 0, 0, 0)
    problems, place_V = np.unique(history.problem_V, return_inverse=True)
    count = len(problems)
    passed_P = np.bincount(place_V, history.passed_V, count)
    failed_P = np.bincount(place_V, history.size_V - history.passed_V, count)
    visits_P = np.bincount(place_V, minlength=count)
    solved_P = np.bincount(place_V, history.rate_V >= SOLVED, count) > 0
    last_P = history.passed_V[visits.last_V]
    first_P = history.passed_V[index_V == 0]
    twice_P = visits_P >= 2
    return Fates(
        problems=count,
        revisited=int(twice_P.sum()),
        never=int((passed_P == 0).sum()),
        always=int((failed_P == 0).sum()),
        forgotten=int((twice_P & solved_P & (last_P == 0)).sum()),
        unlocked=int((twice_P & (first_P == 0) & (passed_P > 0)).sum()),
    )


def kinds(fresh: History) -> tuple[CategoryChange, ...]:
    """Pass rates by kind of problem in the first and in the last third of the steps, for the largest kinds first."""
    names = sorted({name for name in fresh.category_P if name})
    if not names or not len(fresh):
        return ()
    code = {name: i for i, name in enumerate(names)}
    code_P = np.asarray([code.get(name, UNKNOWN) for name in fresh.category_P])
    code_V = code_P[fresh.problem_V]
    low, high = np.quantile(fresh.step_V, (1 / 3, 2 / 3))
    early_V, late_V = fresh.step_V <= low, fresh.step_V > high
    found = []
    for i, name in enumerate(names):
        mine_V = code_V == i
        parts = [fresh.where(mine_V & part_V) for part_V in (early_V, late_V)]
        if min(map(len, parts)) >= LEAST_CATEGORY:
            before, after = (float(part.passed_V.sum() / part.size_V.sum()) for part in parts)
            found.append(CategoryChange(name, int(mine_V.sum()), before, after, _share(fresh.silent_V[mine_V])))
    return tuple(sorted(found, key=lambda kind: -kind.groups)[:MOST_CATEGORIES])


def spending(history: History, hours: float | None) -> Spending:
    """Rollouts, tokens and hours, in all and for silent groups."""
    rollouts = history.num_rollouts + int(history.lost_V.sum())
    silent = int(history.size_V[history.silent_V].sum())
    told = len(history) > 0 and bool((history.tokens_V != UNKNOWN).all())
    tokens = int(history.tokens_V.sum()) if told else None
    silent_tokens = int(history.tokens_V[history.silent_V].sum()) if told else None
    share = silent_tokens / tokens if tokens and silent_tokens is not None else silent / max(1, rollouts)
    return Spending(
        rollouts=rollouts,
        silent=silent,
        lost=int(history.lost_V.sum()),
        tokens=tokens,
        silent_tokens=silent_tokens,
        hours=hours,
        silent_hours=None if hours is None else hours * share,
    )


def outcomes(history: History) -> dict[str, int]:
    """Number of groups of any origin by outcome; empty if the log does not say."""
    counts = np.bincount(history.outcome_V[history.outcome_V != UNKNOWN], minlength=len(OUTCOMES))
    return {name: int(count) for name, count in zip(OUTCOMES, counts, strict=True) if count}


def wasted(history: History) -> float | None:
    """Share of the generated rollouts that were in degenerate or surplus groups, or lost before scoring.

    None if the log does not say what became of its groups. Reports of comparisons use the same definition.
    """
    if not (history.outcome_V != UNKNOWN).any():
        return None
    thrown_V = np.isin(history.outcome_V, [OUTCOMES.index("degenerate"), OUTCOMES.index("surplus")])
    lost = int(history.lost_V.sum())
    return (int(history.size_V[thrown_V].sum()) + lost) / max(1, history.num_rollouts + lost)


def _share(chosen: Flags | Sequence[bool]) -> float:
    return float(np.mean(chosen)) if len(chosen) else 0.0
