"""Tables that compare arms where they have spent equally."""

from collections.abc import Callable

from halfway.experiments.report.analysis.contrasts import ContrastRow
from halfway.experiments.report.analysis.matched import Matched, MatchedRow
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import (
    NONE,
    TextTable,
    interval,
    number,
    p_value,
    percent_interval,
    seeds_text,
    table_of,
)

POWER = "shown with 80 % power"


def contrast_table(summary: Summary) -> TextTable:
    """The contrasts of the headline, with the smallest difference that the runs can be expected to show."""
    headline = next((matched for matched in summary.matched if matched.headline), None)
    columns = ("arms", "difference", "p", "p, Holm", "clear", POWER, "seeds", "rollouts / trained group, ratio")
    if headline is None:
        return TextTable("Contrasts", columns, (), "")
    ratios = {(filled.arm, filled.reference): filled.ratio for filled in summary.filled}
    rows = tuple(
        (*_contrast_cells(row), interval(ratios.get((row.arm, row.reference)), 2)) for row in headline.contrasts
    )
    return TextTable(
        f"Contrasts at equal {headline.axis.label} (headline)", columns, rows, contrast_caption(summary, headline)
    )


def quick_contrasts(summary: Summary) -> TextTable:
    """The contrasts of the headline in five columns, which fit a terminal of 80 characters."""
    table = contrast_table(summary)
    cells = [(arms, found.replace(" [", "\n["), p, clear, shown) for arms, found, _, p, clear, shown, *_ in table.rows]
    columns = ("arms", "difference", "p, Holm", "clear", "shown with\n80 % power")
    family = contrast_family(len(summary.design.contrasts), summary.design.named)
    caption = (
        f"Held-out pass@1 of the first arm minus that of the second. Clear: p below .05 after Holm's adjustment over "
        f"{family}. {POWER.capitalize()}: the true difference that would come out clear four times out of five."
    )
    return TextTable(table.title, columns, tuple(cells), caption)


def contrast_family(planned: int, named: bool) -> str:
    """The family of contrasts over which p-values are adjusted, in words."""
    if named:
        return f"the {planned} contrasts that the file names" if planned > 1 else "the one contrast that the file names"
    return f"all {planned} pairs of arms, since the file names no contrasts" if planned > 1 else "the one pair of arms"


def contrast_caption(summary: Summary, matched: Matched) -> str:
    """The caption of the contrasts: how differences, errors and p-values were computed, and what is missing."""
    planned = len(summary.design.contrasts)
    notes = [
        "Held-out pass@1 of the first arm minus that of the second, at the point where every run has spent "
        f"{matched.axis.phrase(matched.amount)}; linear between evaluations. {errors_text(matched)} Intervals are for "
        "each pair alone. p is two-sided; Holm's adjustment is over "
        f"{contrast_family(planned, summary.design.named)}, and a contrast is clear if its adjusted p is below .05. "
        f"{POWER.capitalize()}: the true difference that would come out clear four times out of five, given the row's "
        "own standard error.",
    ]
    missing = planned - len(matched.contrasts)
    if missing:
        lack = "1 contrast has" if missing == 1 else f"{missing} contrasts have"
        notes.append(f"{lack} no runs to compare yet, and {'counts' if missing == 1 else 'count'} in the adjustment.")
    if any(not row.paired for row in matched.contrasts):
        notes.append("Unpaired: arms that share fewer than two seeds are compared by their means.")
    if any(row.seeds == 1 for row in matched.contrasts):
        notes.append("1 only: one seed shows no spread over seeds, so nothing is clear; intervals are over problems.")
    notes.append("A ratio of rollouts below 1 means that the first arm filled its batches with fewer rollouts.")
    return " ".join(notes)


def errors_text(matched: Matched) -> str:
    """Say how the standard errors were computed."""
    if not matched.problems:
        return "Standard errors are over seeds only, since passes by problem were not recorded; Student's t."
    return (
        f"Standard errors: seeds and the {matched.problems} held-out problems are resampled independently (the two-way "
        "bootstrap, in its closed form); Student's t with one degree of freedom fewer than seeds (than problems, where "
        "there is one seed)."
    )


def separation_table(summary: Summary) -> TextTable:
    """For every arm of the headline, the arms that score clearly lower; no rows with fewer than two pairs of arms."""
    headline = next((matched for matched in summary.matched if matched.headline), None)
    columns = ("arm", "pass@1", "clearly above")
    if headline is None or len(headline.pairs) < 2:
        return TextTable("Arms told apart", columns, (), "")
    below: dict[str, list[str]] = {row.arm: [] for row in headline.rows}
    for pair in headline.pairs:
        if pair.clear:
            below[pair.arm].append(pair.reference)
    ranked = sorted(headline.rows, key=lambda row: -row.pass_at_1.value)
    rows = tuple((row.arm, f"{row.pass_at_1.value:.3f}", ", ".join(below[row.arm]) or NONE) for row in ranked)
    clear = sum(map(len, below.values()))
    return TextTable(
        "Arms told apart",
        columns,
        rows,
        f"{clear} of {len(headline.pairs)} pairs differ clearly at equal {headline.axis.label}, after Holm's "
        "adjustment over all pairs. Differences and standard errors as in the contrasts.",
    )


def other_contrasts_table(summary: Summary) -> TextTable:
    """The contrasts under the conditions other than the headline, with one column per condition."""
    others = [matched for matched in summary.matched if not matched.headline and matched.contrasts]
    rows = []
    for i, first in enumerate(others[0].contrasts if others else ()):
        cells = [difference_cell(matched.contrasts[i]) for matched in others]
        rows.append((f"{first.arm} vs {first.reference}", *cells))
    columns = ("arms", *(f"equal {matched.axis.label}" for matched in others))
    caption = (
        "Differences as above, at the points where every run has spent the amounts named in the tables below. *: clear "
        "after Holm's adjustment over the contrasts of the column."
    )
    return TextTable("Contrasts under other conditions", columns, tuple(rows), caption)


def difference_cell(row: ContrastRow) -> str:
    """A difference with its interval, and a star if it is clear."""
    return interval(row.difference, signed=True) + ("*" if row.clear else "")


def matched_table(matched: Matched) -> TextTable:
    """Every arm at the largest amount that all runs have reached."""
    columns: list[tuple[str, Callable[[MatchedRow], str]]] = [
        ("arm", lambda row: row.arm),
        ("seeds", lambda row: seeds_text(row.seeds)),
        ("pass@1", lambda row: interval(row.pass_at_1)),
        ("degenerate groups", lambda row: percent_interval(row.degenerate)),
        ("trained groups", lambda row: number(row.trained, 0)),
        ("steps", lambda row: f"{row.steps:,.0f}"),
        ("rollouts", lambda row: f"{row.rollouts:,.0f}"),
        ("tokens", lambda row: f"{row.tokens:,.0f}"),
    ]
    caption = (
        f"Every arm at the point where it has spent {matched.axis.phrase(matched.amount)}, the most that every run has "
        "reached."
    )
    if matched.headline:
        caption += (
            f" Linear between evaluations and within steps. {errors_text(matched)} Degenerate groups: the share of the "
            "groups scored up to that point. Trained groups, steps, rollouts and tokens: totals up to that point, "
            "means over seeds."
        )
    title = f"Equal {matched.axis.label}: {matched.amount:,.0f}" + (" (headline)" if matched.headline else "")
    return table_of(title, matched.rows, columns, caption)


def _contrast_cells(row: ContrastRow) -> tuple[str, ...]:
    return (
        f"{row.arm} vs {row.reference}",
        interval(row.difference, signed=True),
        p_value(row.p),
        p_value(row.adjusted_p),
        NONE if row.adjusted_p is None else "clear" if row.clear else "no",
        NONE if row.smallest_shown is None else f"{row.smallest_shown:.3f}",
        seeds_text(row.seeds) + ("" if row.paired else ", unpaired"),
    )
