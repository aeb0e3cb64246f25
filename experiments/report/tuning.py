"""How each arm was tuned before the comparison: the records of tuning.json, and their table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import reading
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds
from halfway.experiments.report.tables.text import TextTable, interval

SWEEPS = "tuning.json"


@dataclass(frozen=True)
class Trial:
    """One setting and its results.

    Attributes:
        areas: area under the curve by tuning seed, for the seeds that have finished.
        mean_area: mean over all tuning seeds; None while a seed is missing.
        final_areas, final_area: the same with the whole budget and the seeds of the finals, for finalists only.
    """

    name: str
    values: Mapping[str, Any]
    areas: Mapping[str, float]
    mean_area: float | None
    final_areas: Mapping[str, float] = field(default_factory=dict)
    final_area: float | None = None


@dataclass(frozen=True)
class Sweep:
    """The result of one arm's sweep.

    Attributes:
        chosen: name of the best setting; None if there is none yet.
        at_edge: fields whose chosen value is the smallest or largest that was tried, unless a setting with another
            value did as well.
        equals: number of settings that did as well as the chosen one, including it; the first of them is chosen.
    """

    settings: Sequence[Trial]
    chosen: str | None = None
    at_edge: Sequence[str] = field(default_factory=list)
    equals: int = 1

    @property
    def choice(self) -> Trial | None:
        return next((trial for trial in self.settings if trial.name == self.chosen), None)


class _File(msgspec.Struct):
    arms: dict[str, Sweep]


def read_tuning(directory: Path) -> dict[str, Sweep]:
    """The sweep of every arm that was tuned.

    Raises:
        UserError: if the file cannot be read.
    """
    path = directory / SWEEPS
    with reading(path, "remove it and tune again"):
        return msgspec.json.decode(path.read_bytes(), type=_File).arms if path.exists() else {}


def tuning_table(sweeps: Mapping[str, Sweep]) -> TextTable:
    """Every setting that was tried, with the chosen setting marked."""
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
    return over_seeds(list(areas.values())) if areas else None


def _final(trial: Trial) -> str:
    """The mean area in the finals, and the area of each seed, which shows a setting that collapses with some seeds."""
    by_seed = "; ".join(f"{seed}: {area:.3f}" for seed, area in trial.final_areas.items())
    return interval(_mean(trial.final_areas)) + (f" ({by_seed})" if len(trial.final_areas) > 1 else "")


def _mark(sweep: Sweep, trial: Trial) -> str:
    if trial.name != sweep.chosen:
        return ""
    return "chosen" + ", first of equals" * (sweep.equals > 1) + ", at the edge" * bool(sweep.at_edge)
