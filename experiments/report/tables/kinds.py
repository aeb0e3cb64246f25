"""Tables by kind of problem: where groups started, and the pass rates of the held-out problems' strata."""

from collections.abc import Callable

from halfway.experiments.report.kinds import StartRow
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import NONE, TextTable, interval, percent_interval, seeds_text, table_of


def strata_table(summary: Summary) -> TextTable:
    """Pass rates of every arm's last evaluations, with one column per stratum."""
    names = list(summary.strata[0].rates) if summary.strata else []
    rows = tuple(
        (row.arm, seeds_text(row.seeds), *(interval(row.rates[name]) for name in names)) for row in summary.strata
    )
    caption = (
        "Held-out pass rate of the problems of each stratum at the last evaluation of each run; means over seeds with "
        "95 % Student-t intervals. Arms may end at different costs: the figure shows the strata along the way."
    )
    columns = ("arm", "seeds", *(name or "no stratum" for name in names))
    return TextTable("Final pass rate by stratum", columns, rows, caption)


def start_table(summary: Summary) -> TextTable:
    """Fresh, generated and prefixed groups of every arm; prefixed groups also by the pass count of their parents."""
    columns: list[tuple[str, Callable[[StartRow], str]]] = [
        ("arm, start", lambda row: f"{row.arm}, {row.start}"),
        ("groups", lambda row: str(row.groups)),
        ("pass rate", lambda row: interval(row.mean)),
        ("degenerate", lambda row: percent_interval(row.degenerate)),
        ("3/8..5/8", lambda row: percent_interval(row.band)),
        ("prefix tokens", lambda row: f"{row.prefix_tokens:.1f}" if row.prefix_tokens else NONE),
        ("final ratio", lambda row: NONE if row.ratio is None else f"{row.ratio:.2f}"),
    ]
    caption = (
        "Groups that start at a problem of the data set (fresh), at a generated problem, or behind a prefix, the "
        "latter also by the pass count k of the parent group. A mean near one half helps only if the groups themselves "
        "are not degenerate: read both columns. Counts: all seeds together. Means and shares: over the seeds that have "
        "such groups, with 95 % Student-t intervals, which are not cut at 0 and 1. If only one seed has such groups, "
        "the intervals say nothing about the spread over seeds: means have normal intervals clustered by problem, and "
        "shares have Wilson intervals, which treat groups as independent."
    )
    return table_of("Where groups started", summary.starts, columns, caption)
