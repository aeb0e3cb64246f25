"""The tables of a comparison: in the terminal, as Markdown, as HTML cells and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.summary import ArmSummary, Reach, StartRow, Summary

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"
COST_NAMES = {"rollouts": "rollouts", "tokens": "tokens", "step": "steps", "seconds": "seconds"}


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text. The first column is a name, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str

    def markdown(self) -> str:
        header = f"| {' | '.join(self.columns)} |"
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        body = "\n".join(f"| {' | '.join(row)} |" for row in self.rows)
        return f"**{self.title}**\n\n{header}\n{rule}\n{body}\n\n{self.caption}\n"

    def rich(self) -> "Table":
        """The same for the terminal."""
        from rich import box
        from rich.table import Table

        table = Table(title=self.title, caption=self.caption, box=box.SIMPLE_HEAD, caption_justify="left", padding=0)
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left", style="bold" if i == 0 else "")
        for row in self.rows:
            table.add_row(*row)
        return table


def tables(summary: Summary) -> list[TextTable]:
    """Every table that has rows: arms, rollouts, differences, cost to reach, and where groups started from."""
    made = [arm_table, rollout_table, difference_table, reach_table, start_table]
    return [table for make in made if (table := make(summary)).rows]


def arm_table(summary: Summary) -> TextTable:
    """Held-out pass@1 and what it cost, one row an arm, in the declared order."""
    rank = {arm: str(i + 1) for i, arm in enumerate(summary.ranking)}
    unfinished = sum(arm.unfinished for arm in summary.arms)
    notes = [
        f"Budget: {budget_text(summary)}.",
        f"Intervals: {summary.intervals}.",
        "Seconds: of the training loop without evaluation and checkpoints, median over seeds. Controllers: propose and "
        "observe, share of those seconds.",
    ]
    if unfinished:
        notes.append(f"{unfinished} of the runs have not finished: their numbers are those of their last record.")
    if summary.unreadable:
        notes.append(f"{summary.unreadable} cut-off last lines of record files were left out.")
    columns = (
        "arm",
        "rank",
        "seeds",
        "pass@1 before",
        "pass@1 after",
        "gain",
        "rollouts",
        "tokens",
        "steps",
        "seconds",
    )
    rows = tuple(_arm_row(arm, rank.get(arm.arm, NONE)) for arm in summary.arms)
    return TextTable("Arms", (*columns, "controllers"), rows, " ".join(notes))


def rollout_table(summary: Summary) -> TextTable:
    """What became of the rollouts, one row an arm."""
    columns = (
        "arm",
        "non-degenerate groups / step",
        "3/8..5/8, fresh",
        "3/8..5/8, trained",
        "wasted rollouts",
        "replayed tokens",
        "entropy",
        "rollouts / trained group",
        "skipped",
        "starved steps",
    )
    caption = (
        "Non-degenerate groups: trained ones that neither all passed nor all failed. 3/8..5/8: share of groups with "
        "such a pass rate, of the fresh ones (degenerate ones included) and of the trained ones of any origin. Wasted: "
        "rollouts in dropped or surplus groups, or lost before scoring, out of those generated. Replayed: tokens of "
        "prefixes, out of all tokens of rollouts. Entropy: of the policy at the trained tokens, nats, mean over the "
        "steps. Skipped: problems refused before any rollout. "
        "Starved: steps that trained on fewer groups than asked for. Intervals as above, over seeds; for the shares of "
        "groups of a single seed, Wilson intervals over groups."
    )
    return TextTable("What the rollouts gave", columns, tuple(map(_rollout_row, summary.arms)), caption)


def quick_table(summary: Summary) -> TextTable:
    """The arms in seven columns, narrow enough for a terminal of 80 characters."""
    columns = (
        "arm",
        "pass@1\nbefore -> after",
        "rollouts",
        "valid\ngroups\n/ step",
        "3/8..5/8\ntrained",
        "wasted",
        "seconds",
    )
    rows = tuple(
        (
            arm.arm,
            f"{number(arm.before)} -> {interval(arm.after)}".replace(" [", "\n["),
            f"{arm.rollouts:,.0f}",
            number(arm.trained_per_step, 1),
            percent(arm.band_trained),
            percent(arm.wasted),
            f"{arm.seconds:.0f}",
        )
        for arm in summary.arms
    )
    caption = f"Valid groups are not degenerate. Budget: {budget_text(summary)}. {summary.intervals}."
    return TextTable("Arms", columns, rows, caption)


def difference_table(summary: Summary) -> TextTable:
    """Every pair of arms."""
    rows = tuple(
        (
            f"{difference.arm} vs {difference.reference}",
            interval(difference.pass_at_1, signed=True),
            interval(difference.rollout_ratio, 2),
            "by seed" if difference.paired else "no",
        )
        for difference in summary.differences
    )
    columns = ("arms", "final pass@1", "rollouts / trained group, ratio", "paired")
    caption = (
        "First arm minus, or divided by, the second. Ratios below 1: the first arm filled its batches with fewer "
        "rollouts. Ratios are of geometric means over seeds; paired ones have intervals of the logarithm. Nothing here "
        "is adjusted for the number of pairs."
    )
    return TextTable("Differences between arms", columns, rows, caption)


def reach_table(summary: Summary) -> TextTable:
    """What it cost each arm to reach the lowest final pass@1."""
    target = summary.reach[0].target if summary.reach else 0.0
    columns = ("arm", *COST_NAMES.values())
    rows = tuple((reach.arm, *_reach_cells(reach)) for reach in summary.reach)
    caption = (
        f"Spent until the mean curve over seeds first crosses {target:.3f}, the lowest of the arms' final pass@1; "
        "linear between evaluations; in brackets relative to the first arm. Evaluations are few, so read it coarsely."
    )
    return TextTable(f"Cost to reach pass@1 = {target:.3f}", columns, rows, caption)


def start_table(summary: Summary) -> TextTable:
    """Fresh, generated and prefixed groups, these by bucket of the parent too."""
    columns = (
        "arm, start",
        "groups",
        "pass rate",
        "degenerate",
        "3/8..5/8",
        "groups, 2nd half",
        "pass rate, 2nd half",
        "degenerate, 2nd half",
        "3/8..5/8, 2nd half",
        "prefix tokens",
        "final ratio",
    )
    caption = (
        "Groups of the data set's problems from their start (fresh), of generated problems, and behind a prefix, these "
        "by pass count k of the parent group too. A mean near one half helps only if the groups themselves are not "
        "degenerate: read both columns. Counts: all seeds together. Means and shares: over the seeds that have such "
        "groups, with 95 % Student-t intervals, which are not cut at 0 and 1. Where a single seed has, its intervals "
        "say nothing about the spread over seeds: normal ones clustered by problem for means, Wilson ones, which take "
        "groups for independent, for shares."
    )
    return TextTable("Where groups started", columns, tuple(map(_start_row, summary.starts)), caption)


def write_tables(directory: Path, summary: Summary) -> None:
    """Write summary.json and summary.md, each atomically."""
    write_text(directory / "summary.json", msgspec.json.format(msgspec.json.encode(summary)).decode() + "\n")
    write_text(directory / "summary.md", "\n".join(table.markdown() for table in tables(summary)))


def budget_text(summary: Summary) -> str:
    """The shared budget in words."""
    if summary.budget is None:
        return "not declared"
    unit, total = summary.budget
    return f"{total:,.0f} {unit} a run"


def number(estimate: Estimate | None, digits: int = 3, signed: bool = False) -> str:
    """The value alone."""
    if estimate is None:
        return NONE
    return f"{estimate.value:+.{digits}f}" if signed else f"{estimate.value:.{digits}f}"


def interval(estimate: Estimate | None, digits: int = 3, signed: bool = False) -> str:
    """The value with its bounds, if it has any."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return number(estimate, digits, signed)
    sign = "+" if signed else ""
    return f"{number(estimate, digits, signed)} [{estimate.low:{sign}.{digits}f}, {estimate.high:{sign}.{digits}f}]"


def percent(estimate: Estimate | None) -> str:
    """A share without its bounds."""
    return NONE if estimate is None else f"{100 * estimate.value:.1f} %"


def percent_interval(estimate: Estimate | None) -> str:
    """A share with its bounds, if it has any."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return percent(estimate)
    return f"{percent(estimate)} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _arm_row(arm: ArmSummary, rank: str) -> tuple[str, ...]:
    return (
        arm.arm,
        rank,
        str(len(arm.seeds)),
        interval(arm.before),
        interval(arm.after),
        interval(arm.gain, signed=True),
        f"{arm.rollouts:,.0f}",
        f"{arm.tokens:,.0f}",
        f"{arm.steps:.0f}",
        f"{arm.seconds:.0f}",
        NONE if arm.controller_share is None else f"{100 * arm.controller_share:.2f} %",
    )


def _rollout_row(arm: ArmSummary) -> tuple[str, ...]:
    return (
        arm.arm,
        interval(arm.trained_per_step, 1),
        percent_interval(arm.band_fresh),
        percent_interval(arm.band_trained),
        percent_interval(arm.wasted),
        percent_interval(arm.replayed),
        interval(arm.entropy),
        interval(arm.rollouts_per_group, 1),
        f"{arm.skipped:,.0f}",
        f"{arm.starved:.0f}",
    )


def _reach_cells(reach: Reach) -> Sequence[str]:
    cells = []
    for unit in COST_NAMES:
        cost, ratio = reach.cost[unit], reach.ratio[unit]
        if cost is None:
            cells.append("not reached")
        else:
            cells.append(f"{cost:,.0f}" + (f" (x{ratio:.2f})" if ratio is not None else ""))
    return cells


def _start_row(row: StartRow) -> tuple[str, ...]:
    return (
        f"{row.arm}, {row.start}",
        str(row.groups),
        interval(row.mean),
        percent_interval(row.degenerate),
        percent_interval(row.band),
        str(row.late_groups),
        interval(row.late_mean),
        percent_interval(row.late_degenerate),
        percent_interval(row.late_band),
        f"{row.prefix_tokens:.1f}" if row.prefix_tokens else NONE,
        NONE if row.ratio is None else f"{row.ratio:.2f}",
    )
