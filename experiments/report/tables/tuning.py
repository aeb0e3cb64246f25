"""What each arm was tuned to before the comparison."""

from halfway.experiments.report.analysis.tuning import TunedRow
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import TextTable, interval


def tuning_table(summary: Summary) -> TextTable:
    """Every setting that was tried, the chosen one marked."""
    rows = tuple((f"{row.arm}, {row.setting}", interval(row.area), _mark(row)) for row in summary.tuned)
    edges = [f"{row.arm} ({', '.join(row.edge)})" for row in summary.tuned if row.edge]
    caption = (
        "Area: mean height of the held-out curve over rollouts, on seeds that the comparison does not use; with 95 % "
        "Student-t intervals over them. The setting with the largest area was chosen."
    )
    if edges:
        caption = f"Warning: {', '.join(edges)} chose an end of the grid, so a better setting may lie beyond. {caption}"
    return TextTable("Tuning", ("arm, setting", "area", "choice"), rows, caption)


def _mark(row: TunedRow) -> str:
    if not row.chosen:
        return ""
    return "chosen, at the edge" if row.edge else "chosen"
