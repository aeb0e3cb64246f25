"""Reads from tuning.json how each arm was tuned before the comparison, and shows it as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds
from halfway.experiments.report.tables.text import NONE, TextTable, interval

TUNING = "tuning.json"
FINALS = ("whole budget", "whole budget, by seed")


@dataclass(frozen=True, slots=True)
class TunedRow:
    """One setting that was tried for one arm.

    Attributes:
        setting: the tuned fields with their values, as text.
        area: mean height of the held-out curve over the sweep's budget, over the seeds of the tuning.
        chosen: whether the comparison runs with this setting.
        edge: fields of the chosen setting whose value is at an end of the grid, so that a better value may lie beyond.
        final: the area over the whole budget, for settings that reached the finals.
        final_areas: the area over the whole budget, by seed of the finals.
        equals: for the chosen setting, the number of settings that did as well, including itself.
    """

    arm: str
    setting: str
    area: Estimate | None
    chosen: bool
    edge: tuple[str, ...]
    final: Estimate | None = None
    final_areas: Mapping[str, float] = field(default_factory=dict)
    equals: int = 1


class _Setting(msgspec.Struct):
    name: str
    values: dict[str, Any]
    areas: dict[str, float] = {}
    final_areas: dict[str, float] = {}


class _Arm(msgspec.Struct):
    settings: list[_Setting]
    chosen: str | None = None
    at_edge: list[str] = []
    equals: int = 1


class _Tuning(msgspec.Struct):
    arms: dict[str, _Arm]


def read_tuning(directory: Path, arms: Sequence[str]) -> list[TunedRow]:
    """Every setting that was tried, in the order of the arms; empty if the arms were not tuned.

    Raises:
        UserError: if the file cannot be read.
    """
    path = directory / TUNING
    if not path.exists():
        return []
    try:
        tuning = msgspec.json.decode(path.read_bytes(), type=_Tuning)
    except msgspec.MsgspecError as error:
        raise UserError(f"{path}: {error}; remove it and tune again") from error
    return [
        TunedRow(
            arm,
            ", ".join(f"{field}={_text(value)}" for field, value in setting.values.items()),
            _over_seeds(setting.areas),
            chosen=setting.name == tuned.chosen,
            edge=tuple(tuned.at_edge) if setting.name == tuned.chosen else (),
            final=_over_seeds(setting.final_areas),
            final_areas=setting.final_areas,
            equals=tuned.equals if setting.name == tuned.chosen else 1,
        )
        for arm in arms
        if (tuned := tuning.arms.get(arm)) is not None
        for setting in tuned.settings
    ]


def _over_seeds(areas: dict[str, float]) -> Estimate | None:
    return over_seeds(list(areas.values())) if areas else None


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def tuning_table(tuned: Sequence[TunedRow]) -> TextTable:
    """Every setting that was tried, with the chosen setting marked."""
    finals = any(row.final for row in tuned)
    by_seed = any(len(row.final_areas) > 1 for row in tuned)
    rows = tuple(
        (f"{row.arm}, {row.setting}", interval(row.area), *_final_cells(row)[: finals + by_seed], _mark(row))
        for row in tuned
    )
    edges = [f"{row.arm} ({', '.join(row.edge)})" for row in tuned if row.edge]
    intervals = any(row.area and row.area.low is not None for row in tuned)
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
