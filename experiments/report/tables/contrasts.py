"""Tables that compare arms at equal cost."""

from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.analysis.equal_cost import ContrastRow, Matched
from halfway.experiments.report.statistics.intervals import FEW
from halfway.experiments.report.text_tables import NONE, TextTable, interval, p_value, seeds_text

POWER = "shown with 80 % power"


def contrast_table(summary: Summary) -> TextTable:
    """The contrasts of the headline, with the smallest difference that the runs can show."""
    headline = next((matched for matched in summary.matched if matched.headline), None)
    columns = ("arms", "difference", "p", "p, Holm", "clear", POWER, "seeds")
    if headline is None:
        return TextTable("Contrasts", columns, (), "")
    rows = tuple(map(_contrast_cells, headline.contrasts))
    return TextTable(
        f"Contrasts at equal {headline.axis.label} (headline)", columns, rows, contrast_caption(summary, headline)
    )


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
        f"{contrast_family(planned, summary.design.named)}, and a contrast is clear if its adjusted p is below 0.05. "
        f"{POWER.capitalize()}: the true difference that would come out clear four times out of five, given the row's "
        "own standard error; -: none below 1.",
    ]
    missing = planned - len(matched.contrasts)
    if missing:
        lack = "1 contrast has" if missing == 1 else f"{missing} contrasts have"
        notes.append(f"{lack} no runs to compare yet, and {'counts' if missing == 1 else 'count'} in the adjustment.")
    if any(1 < row.seeds <= FEW for row in matched.contrasts):
        notes.append("Two or three seeds: no interval, since it would say little more than that they are few.")
    if any(row.seeds == 1 for row in matched.contrasts):
        notes.append("1 only: one seed shows no spread over seeds, so nothing is clear and there is no interval.")
    return " ".join(notes)


def errors_text(matched: Matched) -> str:
    """Describe how the standard errors were computed."""
    if not matched.problems:
        return "Standard errors are over seeds only, since passes by problem were not recorded; Student's t."
    return (
        f"Standard errors: seeds and the {matched.problems} held-out problems are resampled independently (the two-way "
        "bootstrap, in its closed form), the seeds of each arm apart; Student's t over seeds, or over problems "
        "where there is one seed."
    )


def equal_cost_table(summary: Summary) -> TextTable:
    """Every arm's score at equal cost, with one column per measure of cost."""
    rows = tuple(
        (first.arm, seeds_text(first.seeds), *(interval(matched.rows[i].pass_at_1) for matched in summary.matched))
        for i, first in enumerate(summary.matched[0].rows if summary.matched else ())
    )
    columns = ("arm", "seeds", *(matched.axis.phrase(matched.amount) for matched in summary.matched))
    caption = "Held-out pass@1 at the largest amounts that every run has spent, linear between evaluations."
    if summary.matched:
        caption += f" {errors_text(summary.matched[0])}"
    return TextTable("Pass@1 at equal cost", columns, rows, caption)


def _contrast_cells(row: ContrastRow) -> tuple[str, ...]:
    return (
        f"{row.arm} vs {row.reference}",
        interval(row.difference, signed=True),
        p_value(row.p),
        p_value(row.adjusted_p),
        NONE if row.adjusted_p is None else "clear" if row.clear else "no",
        NONE if row.smallest_shown is None else f"{row.smallest_shown:.3f}",
        seeds_text(row.seeds),
    )
