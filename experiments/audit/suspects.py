"""Finds problems whose rewards look wrong. A suspicion is a reason to look, not a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma

import numpy as np

from halfway.experiments.audit.history import History, Log

LEAST = 8
"""Minimum number of rollouts of a problem in each of two logs for a comparison."""

LEVEL = 0.01
"""Bound on the chance of any false alarm among all problems that two logs share (Bonferroni)."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A problem that a person should look at.

    Attributes:
        log: name of the log in which it is suspicious.
        problem: the problem's id.
        why: the reason, in words.
        text: the beginning of the prompt; empty if the log does not have it.
    """

    log: str
    problem: str
    why: str
    text: str


def suspects(logs: Sequence[Log]) -> list[Suspect]:
    """Find all suspicious problems: contradictions in a log, and `find_inverted` between logs that name problems."""
    suspicious = [
        Suspect(log.name, problem, why, log.texts.get(problem, ""))
        for log in logs
        for problem, why in log.conflicts.items()
    ]
    named = [log for log in logs if log.reading.identified]
    for i, one in enumerate(named):
        for other in named[i + 1 :]:
            suspicious += find_inverted(one, other)
    return suspicious


def find_inverted(one: Log, other: Log) -> list[Suspect]:
    """Find problems in both logs that the weaker policy passes more often than the stronger one, beyond chance.

    The test is Fisher's exact test, one-sided, with Bonferroni's correction over the shared problems. The weaker policy
    is the one with the lower pass rate over the shared problems.
    """
    mine, theirs = _totals(one.history), _totals(other.history)
    shared = [name for name in mine if name in theirs and min(mine[name][1], theirs[name][1]) >= LEAST]
    if not shared:
        return []
    my_rate, their_rate = (
        sum(counts[name][0] for name in shared) / sum(counts[name][1] for name in shared) for counts in (mine, theirs)
    )
    if my_rate == their_rate:
        return []
    (weak, weak_log), (strong, strong_log) = (mine, one), (theirs, other)
    if my_rate > their_rate:
        (weak, weak_log), (strong, strong_log) = (theirs, other), (mine, one)
    suspicious = []
    for name in shared:
        (k, n), (j, m) = weak[name], strong[name]
        if k / n > j / m and fisher(k, n, j, m) < LEVEL / len(shared):
            why = f"passes {k} of {n} in {weak_log.name}, the weaker policy, and {j} of {m} in {strong_log.name}"
            suspicious.append(Suspect(strong_log.name, name, why, one.texts.get(name) or other.texts.get(name, "")))
    return suspicious


def fisher(k: int, n: int, j: int, m: int) -> float:
    """Chance of k or more successes among n, given k + j successes among n + m (Fisher's exact test, one-sided)."""
    total = k + j
    tail = range(k, min(n, total) + 1)
    whole = _log_choose(n + m, total)
    return float(sum(np.exp(_log_choose(n, i) + _log_choose(m, total - i) - whole) for i in tail if total - i <= m))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _totals(history: History) -> dict[str, tuple[int, int]]:
    """Passes and rollouts of each problem, over all fresh groups."""
    fresh = history.fresh()
    count = len(history.problems)
    passed_P = np.bincount(fresh.problem_V, fresh.passed_V, count).astype(int).tolist()
    size_P = np.bincount(fresh.problem_V, fresh.size_V, count).astype(int).tolist()
    return {name: (passed_P[i], size_P[i]) for i, name in enumerate(history.problems) if size_P[i]}
