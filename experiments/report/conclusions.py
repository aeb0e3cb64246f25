"""Writes the findings of a comparison in a few sentences."""

from collections.abc import Iterator, Sequence

import numpy as np

from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.analysis.equal_cost import Matched, MatchedRow
from halfway.experiments.report.analysis.equal_decisions import Decided
from halfway.experiments.report.analysis.pooled import PooledRatio
from halfway.experiments.report.analysis.savings import END
from halfway.experiments.report.statistics.holm import seeds_needed
from halfway.experiments.report.statistics.intervals import FEW
from halfway.experiments.report.tables.contrasts import contrast_family
from halfway.experiments.report.text_tables import interval


def conclude(summary: Summary) -> list[str]:
    """Write the sentences, the most important first."""
    headline = next((matched for matched in summary.matched if matched.headline), None)
    if headline is None:
        return [*_without_evaluation(summary), *_decisions(summary)]
    rows = [row for row in headline.rows if row.arm not in summary.same]
    said = list(_comparison(summary, headline, rows) if len(rows) > 1 else _single(summary))
    said[:0] = map(sentence_of_same, summary.same.values())
    said += _decisions(summary)
    if unfinished := sum(arm.unfinished for arm in summary.arms):
        said.append(f"Preliminary: {unfinished} run{' has' if unfinished == 1 else 's have'} not finished.")
    if summary.failed:
        said.append(f"Failed before the first step: {', '.join(summary.failed)}.")
    if arms := [f"{arm.arm} ({arm.extra_information})" for arm in summary.arms if arm.extra_information]:
        said.append(f"Extra information, beside the outcomes of rollouts: {'; '.join(arms)}.")
    return said


def _without_evaluation(summary: Summary) -> Iterator[str]:
    """Sentences about the rollouts of runs without evaluations, as in another trainer."""
    for arm in summary.arms:
        if arm.wasted is not None:
            wasted = 100 * arm.wasted.value
            share = f"{wasted:.0f} % of its {arm.rollouts.value:,.0f} rollouts are in groups that did not train"
            remedy = "" if arm.wasted.value < 1 else ": read some answers and their rewards, or take easier problems"
            yield f"{arm.arm}: {share}, or are lost{remedy}."
    yield "No run has been evaluated twice yet, so learning cannot be measured."


def _single(summary: Summary) -> Iterator[str]:
    for arm in summary.arms:
        if arm.gain is not None:
            yield f"{arm.arm} goes from {interval(arm.before)} to {interval(arm.after)}: {interval(arm.gain, 3, True)}."


def sentence_of_same(one: Decided) -> str:
    """A sentence about an arm that equals another one."""
    return (
        f"{one.arm} made the same decisions as {one.reference} in all {one.groups:,} groups: it never acted, "
        "so there is nothing to compare between the two (docs/troubleshooting.md#my-arm-equals-grpo)."
    )


def _decisions(summary: Summary) -> Iterator[str]:
    """Sentences about decisions that differ from the baseline's, and members that never acted."""
    if others := [one for one in summary.decided if not one.same]:
        shares = ", ".join(f"{one.arm} {100 * one.differing:.0f} %" for one in others)
        yield f"Decisions that differ from {others[0].reference}'s: {shares}."
    for idle in summary.idle:
        if idle.arm not in summary.same:
            what = f"it chose, skipped and changed none of {idle.groups:,} groups"
            yield f"In arm {idle.arm}, {idle.member} never acted: {what}."


def _comparison(summary: Summary, headline: Matched, rows: Sequence[MatchedRow]) -> Iterator[str]:
    """Sentences about the highest arm at equal cost, significant differences, and savings."""
    best, *_, last = sorted(rows, key=lambda row: -row.pass_at_1.value)
    level = best.pass_at_1.value == last.pass_at_1.value
    ends = f"{best.arm} is highest with {interval(best.pass_at_1)}, {last.arm} lowest with {interval(last.pass_at_1)}"
    all_alike = f"every arm has {best.pass_at_1.value:.3f}"
    yield f"Where every run has spent {headline.axis.phrase(headline.amount)}, {all_alike if level else ends}."
    family = contrast_family(len(summary.design.contrasts), summary.design.named)
    clear = [row for row in headline.contrasts if row.clear]
    for row in clear:
        yield f"{row.arm} minus {row.reference}: {interval(row.difference, 3, True)}, significant."
    shown = [row.smallest_shown for row in headline.contrasts if row.smallest_shown is not None and row.seeds > FEW]
    if not headline.contrasts:
        yield "No planned contrast has runs of both its arms yet."
    elif all(row.p is None for row in headline.contrasts):
        yield "One seed shows no spread over seeds, so no difference can be significant."
    elif not clear:
        smallest = f"; differences from {min(shown):.3f} on would be" if shown else ""
        yield f"No difference is significant after Holm's adjustment over {family}{smallest}."
    yield from _seeds_needed(summary, headline)
    for found in summary.savings:
        if found.axis == headline.axis:
            for saving in found.rows:
                ratio = saving.ratios.get(END)
                if ratio is not None and ratio.clear and ratio.value is not None:
                    saved = f"{_fewer(ratio)} {found.axis.label}"
                    yield f"{saving.arm} reaches {found.baseline}'s final score with {saved} (significant)."


def _fewer(ratio: PooledRatio) -> str:
    """Express a multiple of a cost as a saving or an increase in percent."""
    assert ratio.value is not None
    less = ratio.value <= 1
    bounds = [bound if bound is None else 100 * (1 - bound if less else bound - 1) for bound in (ratio.low, ratio.high)]
    shown = ["never" if bound is None else f"{bound:.0f}" for bound in (reversed(bounds) if less else bounds)]
    within = f" [{', '.join(shown)}]" if ratio.never is not None else ""
    return f"{100 * abs(1 - ratio.value):.0f} %{within} {'fewer' if less else 'more'}"


def _seeds_needed(summary: Summary, headline: Matched) -> Iterator[str]:
    """A sentence on the number of seeds that the largest difference needs, if there are few."""
    rows = [row for row in headline.contrasts if 1 < row.seeds <= FEW]
    if not rows or any(row.clear for row in rows):
        return
    row = max(rows, key=lambda row: abs(row.difference.value))
    ends = {each.arm: each.pass_at_1.values for each in headline.rows}
    spread = float(np.mean([np.var(ends[arm], ddof=1) for arm in (row.arm, row.reference)])) ** 0.5
    if not spread or not row.difference.value:
        return
    needed = seeds_needed(row.difference.value, spread, len(summary.design.contrasts))
    many = f"about {needed}" if needed else "more than 1,000"
    yield (
        f"{row.seeds} seeds show little: a difference as large as that of {row.arm} from {row.reference} "
        f"({row.difference.value:+.3f}) needs {many} seeds of each arm to be "
        "significant four times out of five."
    )
