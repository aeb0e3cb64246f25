"""Collects the tables of a comparison, and writes them to files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.analysis.sweeps import Sweep, Trial
from halfway.experiments.report.statistics.intervals import Estimate, few_over_seeds
from halfway.experiments.report.tables.arm_tables import (
    arm_table,
    quick_table,
    rollout_table,
    start_table,
    strata_table,
)
from halfway.experiments.report.tables.contrasts import contrast_table, equal_cost_table
from halfway.experiments.report.tables.costs import saving_tables
from halfway.experiments.report.text_tables import TextTable, interval


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


def tuning_table(sweeps: Mapping[str, Sweep]) -> TextTable:
    """Every tried setting, with the chosen one marked."""
    trials = [(arm, sweep, trial) for arm, sweep in sweeps.items() for trial in sweep.settings]
    finals = any(trial.final_areas for _, _, trial in trials)
    rows = tuple(
        (f"{arm}, {_text(trial.values)}", interval(_mean(trial.areas)), *[_final(trial)] * finals, _mark(sweep, trial))
        for arm, sweep, trial in trials
    )
    caption = (
        "Area: mean height of the held-out curve over the budget, with its 95 % Student-t interval where there are "
        "several seeds, none of them one of the comparison's. The setting with the largest area was chosen"
        + (": among the finalists, by their area over the whole budget." if finals else ".")
    )
    if edges := [f"{arm} ({', '.join(sweep.at_edge)})" for arm, sweep in sweeps.items() if sweep.at_edge]:
        caption = f"Warning: {', '.join(edges)} chose an end of the grid, so a better setting may lie beyond. {caption}"
    return TextTable("Tuning", ("arm, setting", "area", *["whole budget, by seed"] * finals, "choice"), rows, caption)


def _text(values: Mapping[str, Any]) -> str:
    shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _mean(areas: Mapping[str, float]) -> Estimate | None:
    return few_over_seeds(list(areas.values())) if areas else None


def _final(trial: Trial) -> str:
    """The mean area in the finals, and the area of each seed: a setting may collapse with some seeds."""
    by_seed = "; ".join(f"{seed}: {area:.3f}" for seed, area in trial.final_areas.items())
    return interval(_mean(trial.final_areas)) + (f" ({by_seed})" if len(trial.final_areas) > 1 else "")


def _mark(sweep: Sweep, trial: Trial) -> str:
    if trial.name != sweep.chosen:
        return ""
    return "chosen" + ", first of equals" * (sweep.equals > 1) + ", at the edge" * bool(sweep.at_edge)
