"""Computes every number of a comparison once, from the records of its runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from halfway.experiments.report.analysis.arm_summary import ArmSummary, Timing, summarize_arm, timing_of
from halfway.experiments.report.analysis.curves import ROUNDING, problems_known
from halfway.experiments.report.analysis.equal_cost import Matched, match
from halfway.experiments.report.analysis.equal_decisions import Decided, Idle, compare_decisions, idle_members
from halfway.experiments.report.analysis.plan import Design, read_design
from halfway.experiments.report.analysis.savings import Savings, savings
from halfway.experiments.report.analysis.starts import StartRow, StrataRow, start_rows, strata_rows
from halfway.experiments.report.analysis.sweeps import Sweep, read_tuning
from halfway.experiments.report.records import Comparison, failed_early
from halfway.experiments.report.statistics.intervals import FEW


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of tables and report.

    Attributes:
        budget: unit and size of the shared budget.
        intervals: how the intervals of pass@1 were computed, in words.
        unreadable: number of cut-off last lines left out of the records.
        arms: the arms that have finished a step, in the declared order; `failed` and `not_started` name the others.
        ranking: the evaluated arms by pass@1 at equal cost, otherwise by the final pass@1, highest first; without arms
            that equal another one.
        ranks: the rank of each of these arms; arms with equal scores share the better rank, as in 1, 1, 3.
        decided: the decisions of the arms against the baseline's. An arm that equals another one has its own scores,
            but no rank, savings or contrasts.
        idle: the members of chains that never acted.
    """

    budget: tuple[str, float] | None
    intervals: str
    unreadable: int
    design: Design
    arms: tuple[ArmSummary, ...]
    ranking: tuple[str, ...]
    matched: tuple[Matched, ...]
    savings: tuple[Savings, ...]
    strata: tuple[StrataRow, ...]
    starts: tuple[StartRow, ...]
    timing: Timing | None
    tuned: Mapping[str, Sweep]
    not_started: tuple[str, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    decided: tuple[Decided, ...] = ()
    idle: tuple[Idle, ...] = ()

    @property
    def same(self) -> dict[str, Decided]:
        """The arms that made the same decisions as another arm, by name."""
        return {one.arm: one for one in self.decided if one.same}

    @property
    def without_curve(self) -> list[str]:
        """Started arms with fewer than two evaluations, which are in no comparison yet."""
        compared = {row.arm for row in self.matched[0].rows} if self.matched else set()
        return [arm.arm for arm in self.arms if arm.arm not in compared]


def summarize(comparison: Comparison) -> Summary:
    """Compute every number of the tables from the records of the runs.

    Raises:
        UserError: if the plan in comparison.yaml is invalid, or tuning.json cannot be read.
    """
    started = comparison.started()
    runs_of = started.runs
    design = read_design(comparison)
    known = problems_known(started.all_runs, design.instances)
    arms = tuple(summarize_arm(arm, runs, known) for arm, runs in runs_of.items())
    decided = compare_decisions(runs_of, design.baseline)
    same = {one.arm for one in decided if one.same}
    distinct = {arm: runs for arm, runs in runs_of.items() if arm not in same}
    failed = tuple(arm for arm in comparison.arms if arm not in runs_of and failed_early(comparison, arm))
    matched = tuple(match(runs_of, design, same))
    ends = {arm.arm: arm.after.value for arm in arms if arm.after is not None}
    ends |= {row.arm: row.pass_at_1.value for found in matched if found.headline for row in found.rows}
    ranks = ranks_of({arm: end for arm, end in ends.items() if arm in distinct})
    return Summary(
        budget=comparison.budget,
        intervals=_intervals(known, max((len(runs) for runs in runs_of.values()), default=0)),
        unreadable=sum(run.unreadable for run in comparison.all_runs),
        design=design,
        arms=arms,
        ranking=tuple(ranks),
        matched=matched,
        savings=tuple(savings(distinct, design)),
        strata=tuple(strata_rows(runs_of)),
        starts=tuple(row for runs in runs_of.values() for row in start_rows(runs)),
        timing=timing_of(started.all_runs),
        tuned=read_tuning(comparison.directory),
        not_started=tuple(arm for arm in comparison.arms if arm not in runs_of and arm not in failed),
        failed=failed,
        ranks=ranks,
        decided=tuple(decided),
        idle=tuple(idle_members(runs_of)),
    )


def _intervals(known: bool, seeds: int) -> str:
    """Describe how the intervals of pass@1 were computed."""
    if seeds == 1:
        return "none, since one seed shows no spread over seeds"
    if 1 < seeds <= FEW:
        return f"none, since {seeds} seeds are few; the single runs are in round brackets"
    return "95 %, over seeds and held-out problems" if known else "95 %, over seeds"


def ranks_of(scores: Mapping[str, float]) -> dict[str, int]:
    """Rank of each arm, the best first; arms with scores equal up to rounding share the better rank."""
    order = sorted(scores, key=lambda arm: -scores[arm])
    return {arm: 1 + sum(score > scores[arm] + ROUNDING for score in scores.values()) for arm in order}
