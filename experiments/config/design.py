"""The design of a comparison, fixed in advance: its arms, their sweeps, the contrasts, the targets and the costs."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any

from halfway.curriculum import refusal, require, unknown
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.validation import Reader

Grid = Mapping[str, Sequence[Any]]
"""The values to try, by the dotted field of a run."""


@dataclass(frozen=True)
class Setting:
    """One point of a grid: a value for each field."""

    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A valid folder name: "learner.lr-0.0003_fill.groups-8"."""
        words = (f"{name}-{value}" for name, value in self.values.items())
        return "_".join(re.sub(r"[^\w.-]+", "-", word) for word in words)

    @property
    def changes(self) -> dict[str, Any]:
        """The run fields that this setting changes, nested as in YAML."""
        changes: dict[str, Any] = {}
        for name, value in self.values.items():
            for part in reversed(name.split(".")):
                value = {part: value}
            changes = yaml_bases.merge(changes, value)
        return changes


def settings_of(grid: Grid) -> list[Setting]:
    """Every combination of values, with the last field changing fastest; empty for an empty grid."""
    return [Setting(dict(zip(grid, values, strict=True))) for values in product(*grid.values())] if grid else []


def flatten(data: Any, path: str = "") -> dict[str, Any]:
    """Map dotted fields to values. Entries of `controllers` are named by their labels; other lists are values."""
    if isinstance(data, list | tuple) and path == "controllers" and all(isinstance(entry, Mapping) for entry in data):
        data = {yaml_bases.label_of(entry): entry[yaml_bases.label_of(entry)] for entry in data}
    if not isinstance(data, Mapping) or not data:
        return {path: data}
    return {
        k: v for key, value in data.items() for k, v in flatten(value, f"{path}.{key}" if path else str(key)).items()
    }


def read_grid(grid: Any, path: str) -> Grid:
    """A grid with dotted fields. Raises UserError unless it gives lists of different values."""
    remedy = "give fields and their values, such as {learner.lr: [1e-4, 3e-4]}"
    require(isinstance(grid, Mapping), path, grid, remedy)
    read = flatten(grid) if grid else {}  # an override on the command line nests its fields
    for name, values in read.items():
        listed = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
        require(listed, f"{path}.{name}", values, "give a list of values, such as [1e-4, 3e-4]")
        folders = [Setting({name: value}).name for value in values]
        require(len(set(folders)) == len(folders), f"{path}.{name}", list(values), "list each value once")
    return read


GRID = Reader(read_grid, "a mapping of fields and their values")


@dataclass(frozen=True)
class Arm:
    """The settings that distinguish an arm.

    Attributes:
        fields: run fields that differ from the base of the comparison, nested as in YAML.
        grid: fields and values to try for this arm; they override the common grid.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)

    @property
    def as_yaml(self) -> dict[str, Any]:
        """The arm as `read_arms` reads it."""
        return {**self.fields, "tune": {"grid": dict(self.grid)}} if self.grid else dict(self.fields)


def read_arms(arms: Any, path: str) -> dict[str, Arm]:
    """The arms by name. Raises UserError unless each is a mapping of fields whose `tune`, if any, has only a grid."""
    read = {}
    for name, given in arms.items():
        own = {} if given is None else given
        require(isinstance(own, Mapping), f"{path}.{name}", own, "give the fields in which the arm differs")
        tune = own.get("tune", {})
        known = isinstance(tune, Mapping) and set(tune) <= {"grid"}
        require(known, f"{path}.{name}.tune", tune, "give {grid: ...}; the rest of `tune` is for all arms")
        grid = read_grid(tune.get("grid", {}), f"{path}.{name}.tune.grid")
        read[str(name)] = Arm({k: v for k, v in own.items() if k != "tune"}, grid)
    return read


ARMS = Reader(read_arms, "a mapping of arms")


@dataclass(frozen=True)
class TuneOptions:
    """A sweep before the comparison, with its own seeds. Each arm then trains with its best setting.

    The best setting has the largest mean area under held-out pass@1, as a function of the spent budget
    (`halfway.experiments.comparing.tuning`).

    Attributes:
        grid: dotted run field -> values to try, such as `learner.lr: [1e-4, 3e-4]`; several fields give all
            combinations. `arms.NAME.tune.grid` may add fields or replace values for one arm. Empty = no sweep.
        seeds: every setting runs once with each seed. They must differ from the seeds of the comparison.
        share: budget of one run of the sweep, as a fraction of the budget of the comparison.
        finals: number of settings per arm, those with the largest areas, that run again with the whole budget; the one
            with the largest mean area in these runs is chosen (one round of successive halving: Jamieson and Talwalkar
            2016, "Non-stochastic best arm identification"). A setting that learns fastest at first may collapse later.
            0 = no finals; the sweep decides.
        final_seeds: every finalist runs once with each seed. More seeds than in `seeds` reveal, at little cost, a
            setting that collapses with some seeds only. Empty = `seeds`.
    """

    grid: Annotated[Grid, GRID] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    share: float = 1.0
    finals: int = 0
    final_seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, seeds in (("seeds", self.seeds), ("final_seeds", self.final_seeds)):
            different = len(set(seeds)) == len(seeds) and min(seeds, default=0) >= 0
            require(different, f"tune.{name}", list(seeds), "give different integers of at least 0")
        require(0 < self.share <= 1, "tune.share", self.share, "give a number above 0, at most 1")
        useful = self.finals == 0 or (self.finals >= 2 and self.share < 1)
        require(useful, "tune.finals", self.finals, "give 2 or more with a share below 1, or 0 for none")
        idle = bool(self.final_seeds) and not self.finals
        require(not idle, "tune.final_seeds", list(self.final_seeds), "there are no finals; give tune.finals too")

    @property
    def seeds_of_finals(self) -> tuple[int, ...]:
        """The seeds with which every finalist runs."""
        return self.final_seeds or self.seeds


def contrast_pairs(contrasts: Any, arms: Iterable[str]) -> list[tuple[str, str]]:
    """The planned pairs (arm, reference), from `{baseline: ARM}` (every other arm against it) or a list of pairs.

    Raises:
        UserError: for an unknown arm, an arm compared with itself, or a pair given twice, in either order.
    """
    arms = list(arms)
    match contrasts:
        case None | []:
            return []
        case {"baseline": baseline, **rest} if not rest:
            _require_known(baseline, arms, "contrasts.baseline")
            return [(arm, str(baseline)) for arm in arms if arm != str(baseline)]
        case [*pairs] if pairs and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            return _checked_pairs(pairs, arms)
        case _:
            remedy = "give {baseline: ARM}, or a list of pairs such as [[greso, grpo]]"
            raise refusal("contrasts", contrasts, remedy)


def _checked_pairs(pairs: Iterable[Sequence[Any]], arms: Sequence[str]) -> list[tuple[str, str]]:
    checked: list[tuple[str, str]] = []
    for left, right in pairs:
        for arm in (left, right):
            _require_known(arm, arms, "contrasts")
        left, right = str(left), str(right)
        require(left != right, "contrasts", [left, right], "name two different arms")
        again = (left, right) in checked or (right, left) in checked
        require(not again, "contrasts", [left, right], "it is listed twice; remove one")
        checked.append((left, right))
    return checked


def _require_known(arm: Any, arms: Sequence[str], where: str) -> None:
    if str(arm) not in arms:
        require(isinstance(arm, str), where, arm, "YAML does not read this as text; write the arm's name in quotes")
        raise unknown(where, arm, arms)


def check_targets(targets: Sequence[float]) -> None:
    """Raise UserError unless the targets are different values of pass@1 that a curve can cross."""
    for target in targets:
        require(0 < target < 1, "targets", target, "give values of pass@1 between 0 and 1, such as [0.4, 0.5]")
    require(len(set(targets)) == len(targets), "targets", list(targets), "list each target once")


@dataclass(frozen=True)
class Costs:
    """Prices of what a run spends, in generated tokens.

    Attributes:
        rho: prices of a trained token; empty = the prices implied by the hours of published runs.
        judge_second: price of a second of judging; null = judging is free.
    """

    rho: tuple[float, ...] = ()
    judge_second: float | None = None

    def __post_init__(self) -> None:
        for rho in self.rho:
            remedy = "give 0 or more; it is the cost of a trained token in generated tokens"
            require(0 <= rho < math.inf, "costs.rho", rho, remedy)
        require(len(set(self.rho)) == len(self.rho), "costs.rho", list(self.rho), "list each ratio once")
        price = 0 if self.judge_second is None else self.judge_second
        remedy = "give 0 or more; it is the cost of a second of judging in generated tokens"
        require(price >= 0, "costs.judge_second", price, remedy)
