"""Summarises groups by where they began: at a problem of the data set, at a generated problem, or behind a prefix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.prefix_metrics import final_ratio
from halfway.experiments.report.records import Run, parent_counts
from halfway.experiments.report.shares import by_seed, mean_pass_rate, share
from halfway.experiments.report.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True)
class StartRow:
    """One arm's groups that began in one kind of state: a data set problem, a generated problem, or behind a prefix.

    Estimates are over the seeds that have such groups. If only one seed has any, they are over its groups: the mean has
    an interval clustered by problem, and shares have intervals that treat groups as independent.

    Attributes:
        start: "fresh" (from the beginning of a data set problem), "generated", "prefixed" (all buckets together), or
            "k of N" for prefixes whose parent group had that pass count.
        groups: number of scored groups over all seeds. The `late_*` fields cover the second half of the steps.
        mean: mean pass rate.
        degenerate: share of groups with k = 0 or k = N.
        band: share of groups with a pass rate in 3/8..5/8.
        prefix_tokens: mean length of the replayed prefix.
        ratio: the controller's prefix ratio for this bucket after the last step; None if it reports none.
    """

    arm: str
    start: str
    groups: int
    mean: Estimate | None
    degenerate: Estimate | None
    band: Estimate | None
    late_groups: int
    late_mean: Estimate | None
    late_degenerate: Estimate | None
    late_band: Estimate | None
    prefix_tokens: float
    ratio: float | None


def start_rows(runs: Sequence[Run]) -> list[StartRow]:
    """The rows of one arm: fresh, generated and prefixed groups, and prefixed groups by their parents' pass count.

    Empty if the arm has only fresh groups.
    """
    parents = parent_counts(runs)
    generated = any(group.generated for run in runs for group in run.groups)
    if not parents and not generated:
        return []
    rows = [_start_row(runs, "fresh", lambda group: group.fresh, None)]
    if generated:
        rows.append(_start_row(runs, "generated", lambda group: group.generated, None))
    if parents:
        rows.append(_start_row(runs, "prefixed", lambda group: group.prefixed, None))
    for parent in parents:
        ratios = [value for run in runs if (value := final_ratio(run, parent)) is not None]
        rows.append(
            _start_row(
                runs,
                f"{parent.passed} of {parent.size}",
                lambda group, parent=parent: group.prefixed and group.parent_count == parent,  # type: ignore[misc]
                fmean(ratios) if ratios else None,
            )
        )
    return rows


def _start_row(
    runs: Sequence[Run], start: str, belongs: Callable[[GroupRecord], bool], ratio: float | None
) -> StartRow:
    def counts(group: GroupRecord) -> bool:
        return group.scored and belongs(group)

    cases = by_seed((run.groups for run in runs), counts)
    late = by_seed((run.second_half() for run in runs), counts)
    return StartRow(
        arm=runs[0].arm,
        start=start,
        groups=sum(map(len, cases)),
        mean=mean_pass_rate(cases),
        degenerate=share(cases, lambda group: group.degenerate),
        band=share(cases, lambda group: group.near_half),
        late_groups=sum(map(len, late)),
        late_mean=mean_pass_rate(late),
        late_degenerate=share(late, lambda group: group.degenerate),
        late_band=share(late, lambda group: group.near_half),
        prefix_tokens=fmean([group.prefix_tokens for groups in cases for group in groups] or [0]),
        ratio=ratio,
    )
