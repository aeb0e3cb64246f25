"""The sweeps that tuned the arms before the comparison, as tuning.json records them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import read_json_text, reading

SWEEPS = "tuning.json"


@dataclass(frozen=True)
class Trial:
    """One setting and its results.

    Attributes:
        areas: area under the curve by tuning seed, for finished seeds.
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
        at_edge: fields with the smallest or largest tried value chosen, unless a setting with another value did as
            well.
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
    """Read the sweep of every tuned arm.

    Raises:
        UserError: if the file cannot be read.
    """
    path, remedy = directory / SWEEPS, "remove it and tune again"
    with reading(path, remedy):
        return msgspec.json.decode(read_json_text(path, remedy), type=_File).arms if path.exists() else {}
