"""What a comparison fixes before it runs: each arm's sweep, the contrasts, the targets and the costs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.registry import unknown

IDLE_DEVICE = "device"
"""The price of a second of judging during which one device of the cluster stands idle."""

Grid = Mapping[str, Sequence[Any]]
"""The values to try, by the dotted field of a run."""


@dataclass(frozen=True)
class TuneOptions:
    """A sweep before the comparison, with its own seeds. Each arm then trains with its best setting.

    The best setting has the largest mean area under held-out pass@1 over what the budget counts
    (`halfway.experiments.comparing.tuning`).

    Attributes:
        grid: dotted field of a run -> the values to try, such as `learner.lr: [1e-4, 3e-4]`; several fields give all
            their combinations. `arms.NAME.tune.grid` may add fields or replace values for one arm. Empty = no sweep.
        seeds: every setting runs once with each seed; none of them may be a seed of the comparison.
        share: the fraction of the comparison's budget that one run of the sweep spends.
        finals: how many settings of each arm, those with the largest areas, are tried again with the whole budget; the
            largest mean area in these runs is chosen (one round of successive halving: Jamieson and Talwalkar 2016,
            "Non-stochastic best arm identification"). A setting that learns fastest at first may collapse later. 0 =
            no finals; the sweep decides.
        final_seeds: every finalist runs once with each seed. Having more of them than `seeds` reveals, at little cost,
            a setting that collapses with some seeds only. Empty = `seeds`.
    """

    grid: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    share: float = 1.0
    finals: int = 0
    final_seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_grid(self.grid, "tune.grid")
        for name, seeds in (("seeds", self.seeds), ("final_seeds", self.final_seeds)):
            different = len(set(seeds)) == len(seeds) and min(seeds, default=0) >= 0
            require(different, f"tune.{name}", list(seeds), "give different numbers from 0 on")
        require(0 < self.share <= 1, "tune.share", self.share, "give a number above 0, at most 1")
        useful = self.finals == 0 or (self.finals >= 2 and self.share < 1)
        require(useful, "tune.finals", self.finals, "give 2 or more with a share below 1, or 0 for none")
        idle = bool(self.final_seeds) and not self.finals
        require(not idle, "tune.final_seeds", list(self.final_seeds), "there are no finals; give tune.finals too")

    @property
    def seeds_of_finals(self) -> tuple[int, ...]:
        """The seeds with which every finalist runs."""
        return self.final_seeds or self.seeds


@dataclass(frozen=True)
class Setting:
    """One point of a grid: a value for each of its fields."""

    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A name fit for a folder: "learner.lr-0.0003_fill.groups-8"."""
        words = (f"{name}-{value}" for name, value in self.values.items())
        return "_".join(re.sub(r"[^\w.-]+", "-", word) for word in words)

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a run that this setting changes, nested as in YAML."""
        changes: dict[str, Any] = {}
        for name, value in self.values.items():
            for part in reversed(name.split(".")):
                value = {part: value}
            changes = yaml_bases.merge(changes, value)
        return changes


def settings_of(grid: Grid) -> list[Setting]:
    """Every combination of values, with the last field changing fastest; empty for an empty grid."""
    return [Setting(dict(zip(grid, values, strict=True))) for values in product(*grid.values())] if grid else []


def dotted(grid: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A grid with nested fields, as an override on the command line makes it, rewritten with dotted fields."""
    fields: dict[str, Any] = {}
    for name, value in grid.items():
        here = f"{path}.{name}" if path else str(name)
        fields |= dotted(value, here) if isinstance(value, Mapping) else {here: value}
    return fields


def check_grid(grid: Any, where: str) -> None:
    """Raise UserError unless `grid` gives lists of different values."""
    require(isinstance(grid, Mapping), where, grid, "give fields and their values, such as {learner.lr: [1e-4, 3e-4]}")
    for name, values in grid.items():
        listed = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
        require(listed, f"{where}.{name}", values, "give a list of values, such as [1e-4, 3e-4]")
        folders = [Setting({name: value}).name for value in values]
        require(len(set(folders)) == len(folders), f"{where}.{name}", list(values), "give each value once")


def contrast_pairs(contrasts: Any, arms: Iterable[str]) -> list[tuple[str, str]]:
    """The planned pairs (arm, reference), from `{baseline: ARM}` (every other arm against it) or a list of pairs.

    Raises:
        UserError: for an unknown arm, an arm compared with itself, or a pair that is given twice in either order.
    """
    arms = list(arms)
    match contrasts:
        case None | []:
            return []
        case {"baseline": baseline, **rest} if not rest:
            _known(baseline, arms, "contrasts.baseline")
            return [(arm, str(baseline)) for arm in arms if arm != baseline]
        case [*pairs] if pairs and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            return _checked_pairs(pairs, arms)
        case _:
            remedy = "give {baseline: ARM}, or a list of pairs such as [[greso, grpo]]"
            raise UserError(f"contrasts: {contrasts!r} is not acceptable; {remedy}")


def _checked_pairs(pairs: Iterable[Sequence[Any]], arms: Sequence[str]) -> list[tuple[str, str]]:
    checked: list[tuple[str, str]] = []
    for left, right in pairs:
        for arm in (left, right):
            _known(arm, arms, "contrasts")
        require(left != right, "contrasts", [left, right], "an arm is compared with another one")
        again = (left, right) in checked or (right, left) in checked
        require(not again, "contrasts", [left, right], "this pair is given twice; remove one")
        checked.append((str(left), str(right)))
    return checked


def _known(arm: Any, arms: Sequence[str], where: str) -> None:
    if arm not in arms:
        raise unknown(where, arm, arms)


def check_targets(targets: Sequence[float]) -> None:
    """Raise UserError unless the targets are different values of pass@1 that a curve can cross."""
    for target in targets:
        require(0 < target < 1, "targets", target, "give values of pass@1 between 0 and 1, such as [0.4, 0.5]")
    require(len(set(targets)) == len(targets), "targets", list(targets), "give each target once")


def check_costs(costs: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """Raise UserError unless the costs are a list of ratios, or come from a cluster that `base` describes.

    The price of judging must be a number, or the idle device of that cluster.
    """
    costs = _without_judging(costs)
    match costs:
        case {"rho": [*ratios], **rest} if ratios and not rest:
            for rho in ratios:
                number = isinstance(rho, int | float) and not isinstance(rho, bool)
                remedy = "give the cost of a trained token in generated ones: 0 or more"
                require(number and rho >= 0, "costs.rho", rho, remedy)
            require(len(set(ratios)) == len(ratios), "costs.rho", list(ratios), "give each ratio once")
        case {"from": "cluster", **rest} if rest.keys() <= {"context"}:
            context = rest.get("context", 1)
            require(isinstance(context, int | float) and context > 0, "costs.context", context, "give tokens, above 0")
            described = isinstance(base.get("cluster"), Mapping)
            remedy = "the arms' base has no `cluster`; describe the machines there, or give costs.rho"
            require(described, "costs.from", "cluster", remedy)
        case _:
            require(not costs, "costs", dict(costs), "give {rho: [0.25, 1.0]}, or {from: cluster}")


def _without_judging(costs: Mapping[str, Any]) -> dict[str, Any]:
    """The costs without the price of a second of judging, which is checked here."""
    if "judge_second" not in costs:
        return dict(costs)
    price, modelled = costs["judge_second"], "from" in costs
    number = isinstance(price, int | float) and not isinstance(price, bool) and price >= 0
    remedy = "give what a second of judging costs in generated tokens: 0 or more; or, with `from: cluster`, device"
    require(number or (modelled and price == IDLE_DEVICE), "costs.judge_second", price, remedy)
    return {name: value for name, value in costs.items() if name != "judge_second"}
