"""What each arm was tuned to before the comparison, as tuning.json in its folder says.

    {"seeds": [100, 101],
     "arms": {"grpo": {"choice": 1, "edge": false,
                       "settings": [{"values": {"learner.lr": 0.0001}, "areas": [0.41, 0.43]}, ...]}, ...}}

`areas` has one number for each of the seeds: the mean height of the held-out curve over the budget. `choice` counts
from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds

TUNING = "tuning.json"


@dataclass(frozen=True, slots=True)
class TunedRow:
    """One setting of one arm.

    Attributes:
        setting: the fields that were tried, with their values.
        area: mean height of the held-out curve over the budget, over the seeds of the tuning.
        chosen: whether the comparison runs with it.
        edge: whether it is the chosen one and at the end of the grid, so that a better one may lie beyond.
    """

    arm: str
    setting: str
    area: Estimate | None
    chosen: bool
    edge: bool


class _Setting(msgspec.Struct):
    values: dict[str, Any]
    areas: list[float]


class _Arm(msgspec.Struct):
    settings: list[_Setting]
    choice: int
    edge: bool = False


class _Tuning(msgspec.Struct):
    arms: dict[str, _Arm]
    seeds: list[int] = []


def read_tuning(directory: Path, arms: Sequence[str]) -> list[TunedRow]:
    """Every setting that was tried, in the order of the arms; nothing without a tuning.

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
            over_seeds(setting.areas) if setting.areas else None,
            chosen=i == tuned.choice,
            edge=i == tuned.choice and tuned.edge,
        )
        for arm in arms
        if (tuned := tuning.arms.get(arm)) is not None
        for i, setting in enumerate(tuned.settings)
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
