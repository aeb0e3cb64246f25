"""The numbers of an audit: where the rollouts went, and what a problem's past says about its future.

Everything is counted from the log; nothing is modelled. Shares of groups are of fresh groups with at least one scored
rollout, unless said otherwise.
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
"""Streaks of silent groups of this length or more are counted together."""

SOLVED = 0.5
"""The lowest pass rate at which a problem counts as solved at a visit."""

LEAST_CATEGORY = 10
"""Number of groups that a kind of problem needs in each part of the run to be compared."""

MOST_CATEGORIES = 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps in a row, first and last included."""

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
    """What followed a group of one kind at the problem's next visit."""

    before: str
    visits: int
    all_failed: float
    mixed: float
    all_passed: float


@dataclass(frozen=True, slots=True)
class Streak:
    """Visits after a streak of silent groups of one kind, and how many of them were of that kind again."""

    kind: str
    length: int
    visits: int
    again: float


@dataclass(frozen=True, slots=True)
class CategoryChange:
    """A kind of problem in the first and in the last third of the steps."""

    category: str
    groups: int
    before: float
    after: float
    silent: float


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent on groups without any advantage. Rollouts that were lost before they were scored count as spent.

    Attributes:
        rollouts: number of rollouts in the log, including lost rollouts.
        silent: number of these in silent groups of any origin.
        lost: number of these that were never scored.
        tokens, silent_tokens: totals in the unit of `Reading.measure`; None where the log does not tell.
        hours: duration of the run; None where it is unknown.
        silent_hours: the silent groups' part, in proportion to tokens or else to rollouts.
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
    """Problems by what became of them over their visits.

    Attributes:
        problems: number of problems that were visited.
        revisited: number visited at least twice, to which `forgotten` and `unlocked` refer.
        never, always: number without a single pass in any visit, and without a single failure.
        forgotten: number of which half of the rollouts or more passed at some visit, and none at the last visit.
        unlocked: number of which none passed at the first visit, and some did later.
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
        silent, all_failed, all_passed: shares of the fresh groups.
        near_half: share with a pass rate in `NEAR_HALF`.
        groups, steps, group_size: numbers of groups and of steps, and the commonest N.
        outcomes: number of groups of any origin by what became of them, where the log says so.
        wasted: share of the rollouts in groups that did not train, or that were lost; None where the log does not say.
        price: rollouts for each fresh group that teaches; DAPO's dynamic sampling pays it for every group it trains.
            None if nothing teaches.
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
    """What the log says.

    Args:
        hours: how long the run took, if the user knows better than the log.
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
    """The fresh groups in stretches of steps, each with about as many steps as the others."""
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
    """Positions in `KINDS` of each group."""
    return np.asarray(1 - history.all_failed_V.astype(np.int8) + history.all_passed_V.astype(np.int8), np.int8)


def memory(visits: Visits) -> tuple[Memory, ...]:
    """What a problem's group was like, given what its group was like the time before."""
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
    """How often a streak of silent groups of one kind continues, by its length: GRESO's premise, on this log."""
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
    """How many visits of the problem in a row, including this one, were of this visit's kind."""
    if not len(kinds_V):
        return np.zeros(0, np.int64)
    begins_V = np.append(True, (kinds_V[1:] != kinds_V[:-1]) | (index_V[1:] == 0))
    starts = np.flatnonzero(begins_V)
    lengths_V: Ints = np.arange(len(kinds_V)) - starts[np.cumsum(begins_V) - 1] + 1
    return lengths_V


def fates(visits: Visits) -> Fates:
    """Problems by what became of them."""
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
    """Pass rates by kind of problem, in the first and in the last third of the steps, the largest kinds first."""
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
    """Rollouts, tokens and hours in all, and of silent groups."""
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
    """Number of groups of any origin by what became of them; empty where the log does not say."""
    counts = np.bincount(history.outcome_V[history.outcome_V != UNKNOWN], minlength=len(OUTCOMES))
    return {name: int(count) for name, count in zip(OUTCOMES, counts, strict=True) if count}


def wasted(history: History) -> float | None:
    """Share of the generated rollouts in degenerate or surplus groups, or lost before scoring, as in our reports."""
    if not (history.outcome_V != UNKNOWN).any():
        return None
    thrown_V = np.isin(history.outcome_V, [OUTCOMES.index("degenerate"), OUTCOMES.index("surplus")])
    lost = int(history.lost_V.sum())
    return (int(history.size_V[thrown_V].sum()) + lost) / max(1, history.num_rollouts + lost)


def _share(chosen: Flags | Sequence[bool]) -> float:
    return float(np.mean(chosen)) if len(chosen) else 0.0
