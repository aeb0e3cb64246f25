"""Shares and means of groups: over seeds or, with a single seed, over that seed's groups."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.statistics.intervals import Estimate, clustered_mean, over_seeds, proportion


def by_seed(seeds: Iterable[Sequence[GroupRecord]], counts: Callable[[GroupRecord], bool]) -> list[list[GroupRecord]]:
    """The groups for which `counts` holds: one list for each seed that has any."""
    return [chosen for groups in seeds if (chosen := [group for group in groups if counts(group)])]


def share(cases: Sequence[Sequence[GroupRecord]], hit: Callable[[GroupRecord], bool]) -> Estimate | None:
    """Share of the groups for which `hit` holds, with an interval over seeds, or over groups if there is one seed.

    None without any group.
    """
    if len(cases) == 1:
        return proportion(sum(map(hit, cases[0])), len(cases[0]))
    return over_seeds([sum(map(hit, groups)) / len(groups) for groups in cases]) if cases else None


def mean_pass_rate(cases: Sequence[Sequence[GroupRecord]]) -> Estimate | None:
    """Mean pass rate of the groups, with an interval over seeds, or over problems if there is one seed.

    None without any group.
    """
    if len(cases) == 1:
        return clustered_mean([group.pass_rate for group in cases[0]], [group.problem for group in cases[0]])
    return over_seeds([fmean(group.pass_rate for group in groups) for groups in cases]) if cases else None
