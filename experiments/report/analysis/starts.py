"""Groups by start (a problem, a generated problem, a prefix), and scores by kind of problem."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.prefix import ParentCount
from halfway.experiments.output_flags import natural
from halfway.experiments.report.analysis.arm_summary import by_seed, mean_of_groups
from halfway.experiments.report.records import EvaluationRecord, Run
from halfway.experiments.report.statistics.intervals import Estimate, few_over_seeds


@dataclass(frozen=True, slots=True)
class StartRow:
    """One arm's groups with one kind of start: a data set problem, a generated problem, or a prefix.

    Estimates are over the seeds with such groups.

    Attributes:
        start: "fresh" (from the beginning of a data set problem), "generated", "prefixed" (all buckets together), or
            "k of N" for prefixes whose parent group had that pass count.
        groups: number of scored groups over all seeds.
        mean: mean pass rate.
        zero_variance: share of groups with k = 0 or k = N.
        band: share of groups with a pass rate in 3/8..5/8.
        prefix_tokens: mean length of the replayed prefix.
        ratio: the controller's prefix ratio for this bucket after the last step; None if it reports none.
    """

    arm: str
    start: str
    groups: int
    mean: Estimate | None
    zero_variance: Estimate | None
    band: Estimate | None
    prefix_tokens: float
    ratio: float | None = None


def start_rows(runs: Sequence[Run]) -> list[StartRow]:
    """Make the rows of one arm: fresh, generated and prefixed groups, and prefixed groups by their parents' pass count.

    Empty if the arm has only fresh groups.
    """
    parents = parent_counts(runs)
    generated = any(group.generated for run in runs for group in run.groups)
    if not parents and not generated:
        return []
    rows = [_start_row(runs, "fresh", lambda group: group.fresh)]
    if generated:
        rows.append(_start_row(runs, "generated", lambda group: group.generated))
    if parents:
        rows.append(_start_row(runs, "prefixed", lambda group: group.prefixed))
    return rows + [_parent_row(runs, parent) for parent in parents]


def _parent_row(runs: Sequence[Run], parent: ParentCount) -> StartRow:
    row = _start_row(
        runs,
        f"{parent.passed} of {parent.size}",
        lambda group: group.prefixed and group.parent_count == parent,
    )
    last = [run.steps[-1].controllers for run in runs if run.steps]
    ratios = [value for metrics in last if (value := find_reported(metrics, "ratio", parent)) is not None]
    return replace(row, ratio=fmean(ratios) if ratios else None)


def _start_row(runs: Sequence[Run], start: str, belongs: Callable[[GroupRecord], bool]) -> StartRow:
    cases = by_seed((run.groups for run in runs), lambda group: group.scored and belongs(group))
    return StartRow(
        arm=runs[0].arm,
        start=start,
        groups=sum(map(len, cases)),
        mean=mean_of_groups(cases, lambda group: group.pass_rate),
        zero_variance=mean_of_groups(cases, lambda group: group.zero_variance),
        band=mean_of_groups(cases, lambda group: group.near_half),
        prefix_tokens=fmean([group.prefix_tokens for groups in cases for group in groups] or [0]),
    )


def parent_counts(runs: Iterable[Run]) -> list[ParentCount]:
    """The distinct pass counts of the parents whose prefixes were used, sorted."""
    groups = (group for run in runs for group in run.groups if group.prefixed)
    return sorted({group.parent_count for group in groups if group.parent_count is not None})


def find_reported(metrics: Mapping[str, float | None], quantity: str, parent: ParentCount) -> float | None:
    """Find a quantity, such as "ratio", that a controller reports for parents with this pass count; None if none does.

    Args:
        metrics: the controllers' metrics of one step, keyed by `label/name`.
    """
    wanted = parent.metric(quantity)
    found = (value for name, value in metrics.items() if name.partition("/")[2] == wanted)
    return next((value for value in found if value is not None), None)


@dataclass(frozen=True, slots=True)
class StrataRow:
    """Pass rates of an arm by stratum at its runs' last evaluations, over seeds; None where no run has the stratum."""

    arm: str
    seeds: int
    rates: Mapping[str, Estimate | None]


def strata_names(runs: Sequence[Run]) -> list[str]:
    """The strata in natural order ("2" before "10"); empty if there is only one, the whole set."""
    names = {name for run in runs for evaluation in run.evaluations for name in evaluation.strata}
    return sorted(names, key=natural) if len(names) > 1 else []


def rate(evaluation: EvaluationRecord, stratum: str) -> float | None:
    """Pass rate of the stratum's problems at an evaluation; None if the evaluation does not have the stratum."""
    found = evaluation.strata.get(stratum)
    return found.passed / trials if found and (trials := found.problems * evaluation.samples) else None


def strata_rows(runs_of: Mapping[str, Sequence[Run]]) -> list[StrataRow]:
    """One row for each arm, from its runs' last evaluations; empty if the problems have no strata."""
    names = strata_names([run for runs in runs_of.values() for run in runs])
    rows = []
    for arm, runs in runs_of.items() if names else ():
        last = [run.evaluations[-1] for run in runs if run.evaluations]
        rates = {name: [found for one in last if (found := rate(one, name)) is not None] for name in names}
        rows.append(StrataRow(arm, len(last), {name: few_over_seeds(v) if v else None for name, v in rates.items()}))
    return rows
