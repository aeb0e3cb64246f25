"""What each arm was tuned to before the comparison."""

from halfway.experiments.report.analysis.tuning import TunedRow
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import TextTable, interval


def tuning_table(summary: Summary) -> TextTable:
    """Every setting that was tried, the chosen one marked."""
    finals = any(row.final for row in summary.tuned)
    rows = tuple(
        (f"{row.arm}, {row.setting}", interval(row.area), *([interval(row.final)] if finals else []), _mark(row))
        for row in summary.tuned
    )
    edges = [f"{row.arm} ({', '.join(row.edge)})" for row in summary.tuned if row.edge]
    caption = (
        "Area: mean height of the held-out curve over rollouts, on seeds that the comparison does not use; with 95 % "
        "Student-t intervals over them. The setting with the largest area was chosen"
        + (", by the whole budget among those that came so far." if finals else ".")
    )
    if edges:
        caption = f"Warning: {', '.join(edges)} chose an end of the grid, so a better setting may lie beyond. {caption}"
    columns = ("arm, setting", "area", *(["whole budget"] if finals else []), "choice")
    return TextTable("Tuning", columns, rows, caption)


def _mark(row: TunedRow) -> str:
    if not row.chosen:
        return ""
    return "chosen, at the edge" if row.edge else "chosen"
