"""A table of how each arm was tuned before the comparison."""

from halfway.experiments.report.analysis.tuning import TunedRow
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import NONE, TextTable, interval

FINALS = ("whole budget", "whole budget, by seed")


def tuning_table(summary: Summary) -> TextTable:
    """Every setting that was tried, with the chosen setting marked."""
    finals = any(row.final for row in summary.tuned)
    by_seed = any(len(row.final_areas) > 1 for row in summary.tuned)
    rows = tuple(
        (f"{row.arm}, {row.setting}", interval(row.area), *_final_cells(row)[: finals + by_seed], _mark(row))
        for row in summary.tuned
    )
    edges = [f"{row.arm} ({', '.join(row.edge)})" for row in summary.tuned if row.edge]
    intervals = any(row.area and row.area.low is not None for row in summary.tuned)
    caption = (
        "Area: mean height of the held-out curve over the budget, on seeds that the comparison does not use"
        + (", with 95 % Student-t intervals over those seeds" if intervals else "")
        + ". The setting with the largest area was chosen"
        + (": among the finalists, by their area over the whole budget." if finals else ".")
    )
    if edges:
        caption = f"Warning: {', '.join(edges)} chose an end of the grid, so a better setting may lie beyond. {caption}"
    columns = ("arm, setting", "area", *FINALS[: finals + by_seed], "choice")
    return TextTable("Tuning", columns, rows, caption)


def _final_cells(row: TunedRow) -> tuple[str, str]:
    """The mean area in the finals, and the area of each seed, which shows a setting that collapses with some seeds."""
    by_seed = "; ".join(f"{seed}: {area:.3f}" for seed, area in row.final_areas.items())
    return interval(row.final), by_seed or NONE


def _mark(row: TunedRow) -> str:
    if not row.chosen:
        return ""
    words = ["chosen", *(["first of equals"] if row.equals > 1 else []), *(["at the edge"] if row.edge else [])]
    return ", ".join(words)
