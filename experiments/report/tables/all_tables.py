"""Collects the tables of a comparison, and writes them to files."""

from pathlib import Path

import msgspec

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.tables.arm_tables import (
    arm_table,
    quick_table,
    rollout_table,
    start_table,
    strata_table,
)
from halfway.experiments.report.tables.contrasts import contrast_table, equal_cost_table
from halfway.experiments.report.tables.costs import saving_tables
from halfway.experiments.report.tables.sweep_table import tuning_table
from halfway.experiments.report.text_tables import TextTable


def tables(summary: Summary) -> list[TextTable]:
    """Every table with rows, the most important first."""
    made = [
        arm_table(summary),
        contrast_table(summary),
        *saving_tables(summary),
        equal_cost_table(summary),
        strata_table(summary.strata),
        rollout_table(summary),
        start_table(summary.starts),
        tuning_table(summary.tuned),
    ]
    return [table for table in made if table.rows]


def quick_tables(summary: Summary) -> list[TextTable]:
    """The tables for the terminal, besides the verdict: the arms, and the tried settings."""
    made = [quick_table(summary), tuning_table(summary.tuned)]
    return [table for table in made if table.rows]


def write_tables(directory: Path, summary: Summary) -> None:
    """Write summary.json and summary.md, each atomically."""
    write_text(directory / "summary.json", msgspec.json.format(msgspec.json.encode(summary)).decode() + "\n")
    write_text(directory / "summary.md", "\n".join(table.markdown() for table in tables(summary)))
