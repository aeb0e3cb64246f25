"""The fields of a comparison of arms. Importing and checking needs neither torch nor MLflow."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from halfway.curriculum import UserError, refusal, require, unknown
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.errors import each
from halfway.curriculum.support.validation import construct
from halfway.experiments.config import yaml_files
from halfway.experiments.config.design import (
    ARMS,
    Arm,
    Costs,
    Grid,
    Setting,
    TuneOptions,
    check_targets,
    contrast_pairs,
    settings_of,
)
from halfway.experiments.config.run import (
    CHARACTERS,
    RunConfig,
    is_label,
    name_of,
    parse_run_config,
    require_name,
    require_seeds,
)
from halfway.trainers.loop.loop_options import Budget

TUNING = "tuning"
"""The folder of the sweeps in a comparison's directory."""

WHOLE = "whole"
"""The folder of the runs of one setting with the whole budget."""

SUPERSEDED = "superseded"
"""The folder of runs whose arm has since been tuned to other values."""

FOLDERS = (TUNING, SUPERSEDED, "figures")

# Fields that all arms share, so that the comparison is fair.
SHARED = ("budget", "seed", "name", "output", "tracking", "evaluation")
# The fields of a comparison; any other name in an override is a field of all its runs.
OWN = ("name", "seeds", "budget", "arms", "instances", "tune", "contrasts", "targets", "costs")
MOST_ARMS = 200
"""Maximum number of arms, whose pairs reports compare."""


@dataclass(frozen=True)
class ComparisonConfig:
    """Several arms, each run with the same seeds and the same budget.

    Attributes:
        name: the comparison's directory is `output`/`name`.
        base: run fields shared by all arms.
        seeds: every arm runs once with each seed.
        budget: budget of one run, the same for every arm.
        arms: arm -> fields that differ from `base`; `tune` adds fields to the grid of the arm.
        instances: fields of each instance of the task, such as another draw of problems with its own starting model;
            seed s runs in instance s modulo the number of instances. Means are then taken over seeds within an
            instance, then over instances. Empty = one instance.
        tune: the sweep before the comparison.
        contrasts: planned pairs, as `{baseline: ARM}` or a list of [arm, reference]; null = none.
        targets: values of held-out pass@1, fixed before the first run; the report gives the cost to reach each.
        costs: prices for the reported costs; `judge_second` adds costs that include judging.
    """

    name: str
    base: dict[str, Any]
    seeds: tuple[int, ...]
    budget: Budget
    arms: Annotated[dict[str, Arm], ARMS]
    instances: tuple[dict[str, Any], ...] = ()
    tune: TuneOptions = field(default_factory=TuneOptions)
    contrasts: Any = None
    targets: tuple[float, ...] = ()
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        require_name(self.name)
        require(0 < len(self.arms) <= MOST_ARMS, "arms", [*self.arms], f"name 1 to {MOST_ARMS} arms")
        require_seeds(self.seeds)
        for name, arm in self.arms.items():
            require(is_label(name), "arms", name, CHARACTERS)
            remedy = "a comparison has a folder of that name; rename the arm"
            require(name not in FOLDERS, "arms", name, remedy)
            _check_shared(arm.fields, f"arms.{name}", "arms")
        for number, instance in enumerate(self.instances):
            _check_shared(instance, f"instances.{number}", "instances")
        self._check_tuning()
        contrast_pairs(self.contrasts, self.arms)
        check_targets(self.targets)

    def _check_tuning(self) -> None:
        fields = {name.split(".")[0] for arm in self.arms for name in self.grid(arm)}
        for name in sorted(fields & {*SHARED, "tune"}):
            raise UserError(f"tune.grid.{name}: belongs to the whole comparison; tune a field in which arms may differ")
        seeds = list(self.tune.seeds)
        require(not fields or bool(seeds), "tune.seeds", seeds, "list at least one, such as [100, 101]")
        require(bool(fields) or not seeds, "tune.grid", {}, "give a field and its values; or leave `tune` out")
        for name, tuned in (("seeds", self.tune.seeds), ("final_seeds", self.tune.final_seeds)):
            common = sorted(set(tuned) & set(self.seeds))
            remedy = f"an arm must not be compared on what it was tuned on; the comparison has {common} too"
            require(not common, f"tune.{name}", list(tuned), remedy)

    @property
    def folder(self) -> Path:
        """The comparison's directory."""
        return Path(str(self.base.get("output", "runs"))) / self.name

    def grid(self, arm: str) -> Grid:
        """The grid of an arm: the common fields, overridden by its own."""
        return {**self.tune.grid, **self.arms[arm].grid}

    @property
    def tuning_budget(self) -> Budget:
        """The budget of one run of a sweep."""
        return part_of(self.budget, self.tune.share)

    def settings(self, arm: str) -> list[Setting]:
        """Every setting of an arm's grid; empty if the arm is not tuned."""
        return settings_of(self.grid(arm))

    def run(self, arm: str, seed: int, chosen: Setting | None = None) -> RunConfig:
        """The configuration of one arm with one seed and the setting chosen by its sweep, if any.

        Raises:
            UserError: with the name of the arm as a prefix.
        """
        return self._run(arm, arm, seed, self.budget, chosen)

    def tuning_run(self, arm: str, setting: Setting, seed: int) -> RunConfig:
        """The configuration of one run of an arm's sweep. Raises UserError as `run` does."""
        return self._run(arm, f"{TUNING}/{arm}/{setting.name}", seed, self.tuning_budget, setting)

    def final_runs(self, arm: str, setting: Setting) -> Iterator[RunConfig]:
        """The runs of one setting with the whole budget. Raises as `run` does."""
        folder = f"{TUNING}/{arm}/{setting.name}/{WHOLE}"
        return self._series(arm, folder, self.tune.seeds_of_finals, self.budget, setting)

    def _series(
        self, arm: str, folder: str, seeds: Sequence[int], budget: Budget, setting: Setting | None
    ) -> Iterator[RunConfig]:
        """An arm's runs below one folder; those of an instance are checked once."""
        first: dict[int, RunConfig] = {}
        for seed in seeds:
            instance = seed % max(1, len(self.instances))
            if instance not in first:
                first[instance] = self._run(arm, folder, seed, budget, setting)
            yield replace(first[instance], seed=seed, name=f"{self.name}/{folder}/seed-{seed}")

    def _run(self, arm: str, folder: str, seed: int, budget: Budget, setting: Setting | None) -> RunConfig:
        own = {"name": f"{self.name}/{folder}/seed-{seed}", "seed": seed, "budget": limit_of(budget)}
        instance = self.instances[seed % len(self.instances)] if self.instances else {}
        merged = self.base
        try:
            for layer in (instance, self.arms[arm].fields, setting.changes if setting else {}, own):
                merged = yaml_bases.merge(merged, layer)
            return parse_run_config(merged)
        except UserError as error:
            raise error.within(f"arms.{arm}: ") from None

    @property
    def size(self) -> str:
        """The number of runs in words."""
        total = len(self.arms) * len(self.seeds)
        tuned = sum(len(self.settings(arm)) for arm in self.arms) * len(self.tune.seeds)
        arms, seeds = (
            f"{n} {word}{'s' * (n != 1)}" for n, word in ((len(self.arms), "arm"), (len(self.seeds), "seed"))
        )
        sweep = f", after a sweep of {tuned} runs" if tuned else ""
        return f"{arms} x {seeds} = {total} run{'s' * (total != 1)}{sweep}"

    def runs(self, chosen: Mapping[str, Setting] | None = None) -> Iterator[tuple[str, RunConfig]]:
        """Arm and configuration of every run; arms change fastest, so that early results cover all arms.

        Args:
            chosen: arm -> setting chosen by its sweep.
        """
        settings = chosen or {}
        series = {arm: self._series(arm, arm, self.seeds, self.budget, settings.get(arm)) for arm in self.arms}
        for _ in self.seeds:
            for arm, runs in series.items():
                yield arm, next(runs)

    def tuning_runs(self) -> Iterator[RunConfig]:
        """Every run of the sweeps; seeds change slowest."""
        seeds, budget = self.tune.seeds, self.tuning_budget
        series = [
            self._series(arm, f"{TUNING}/{arm}/{setting.name}", seeds, budget, setting)
            for arm in self.arms
            for setting in self.settings(arm)
        ]
        for _ in seeds:
            yield from map(next, series)


def comparison_config(raw: dict[str, Any], path: Path, overrides: Sequence[str]) -> ComparisonConfig:
    """The comparison in a mapping read from `path`, with overrides applied and every arm checked completely."""
    changes = yaml_files.parse_overrides(overrides)
    own = {k: v for k, v in changes.items() if k in OWN}
    shared = {k: v for k, v in changes.items() if k not in own}
    _check_arms(raw["arms"], own.get("arms", {}))
    for given in (raw, changes):
        seed = given.get("seed")
        seeds = seed if isinstance(seed, list) else [seed]
        remedy = f"a comparison trains every arm with each of its `seeds`; give seeds: {seeds}"
        require("seed" not in given, "seed", seed, remedy)
    raw = yaml_bases.merge({"name": name_of(path), **raw}, own)
    if not isinstance(raw.get("base"), Mapping):
        raise UserError("base: missing; give a YAML file, or the fields that all arms share")
    if raw.get("tune", {}) is None:
        raw = _without_sweep(raw)
    beside = {k: raw.pop(k) for k in list(raw) if k in RunConfig.__dataclass_fields__ and k not in OWN}
    base = yaml_bases.merge(yaml_bases.merge(raw["base"], beside), shared)
    if "budget" in base:
        raw.setdefault("budget", base["budget"])
    raw["base"] = {k: v for k, v in base.items() if k not in ("budget", "name", "seed")}
    config = construct(ComparisonConfig, _resolve(raw))
    each([partial(check_arm, config, arm) for arm in config.arms])
    return config


def _resolve(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the references of the comparison itself; those in run fields are resolved in each run."""
    of_runs = {name: raw[name] for name in ("base", "arms", "instances") if name in raw}
    everything = {**raw["base"], **raw}
    resolved = yaml_files.interpolate({k: v for k, v in raw.items() if k not in of_runs}, everything) | of_runs
    output = {name: raw["base"][name] for name in ("output",) if name in raw["base"]}  # all runs share one folder
    return resolved | {"base": raw["base"] | yaml_files.interpolate(output, everything)}


def _without_sweep(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison without `tune`, in itself and in its arms."""
    arms = {
        name: {k: v for k, v in arm.items() if k != "tune"} if isinstance(arm, Mapping) else arm
        for name, arm in raw["arms"].items()
    }
    return {k: v for k, v in raw.items() if k != "tune"} | {"arms": arms}


def check_arm(config: ComparisonConfig, arm: str) -> None:
    """Raise UserError unless every run of an arm is acceptable, whichever setting its sweep chooses.

    Common values are checked on the first arm only; every other arm is checked with one setting, to make sure that it
    has the fields.
    """
    settings, first = config.settings(arm), arm == next(iter(config.arms))
    for instance in range(max(1, len(config.instances))):
        config.run(arm, instance)
    for setting in settings if first or config.arms[arm].grid else settings[:1]:
        points = config.tuning_run(arm, setting, config.tune.seeds[0]).evaluation.points
        require(points > 0, "evaluation.points", points, "give at least 1; a sweep compares areas under the curve")


def _check_shared(fields: Mapping[str, Any], where: str, what: str) -> None:
    """Raise UserError if an arm or instance sets a field that all must share."""
    for name in SHARED:
        where_else = "give the `seeds` of the whole comparison" if name == "seed" else "set it for the whole comparison"
        remedy = f"all {what} share one {name}; {where_else}"
        require(name not in fields, f"{where}.{name}", fields.get(name), remedy)


def _check_arms(arms: Any, changed: Mapping[str, Any]) -> None:
    if not isinstance(arms, Mapping):
        raise refusal("arms", arms, "give {arm: the fields in which it differs}")
    for arm in changed:
        if arm not in arms:
            raise unknown(f"arms.{arm}", arm, map(str, arms))


def with_arms(config: ComparisonConfig, names: Sequence[str]) -> ComparisonConfig:
    """The same comparison with only these arms and the contrasts between them; the others can be added later.

    `absent_contrasts` lists the contrasts that are left out.

    Raises:
        UserError: if the file has no such arm, or if the result is not a valid comparison.
    """
    for name in names:
        if name not in config.arms:
            raise UserError(f"--arms: {name!r} is not an arm of {config.name}; choose from {', '.join(config.arms)}")
    contrasts = config.contrasts
    if isinstance(contrasts, list):
        contrasts = [pair for pair in contrasts if {*map(str, pair)} <= {*names}]
    elif contrasts and str(contrasts["baseline"]) not in names:
        contrasts = None
    return replace(config, arms={name: own for name, own in config.arms.items() if name in names}, contrasts=contrasts)


def absent_contrasts(config: ComparisonConfig, names: Sequence[str]) -> list[tuple[str, str]]:
    """The planned pairs with only one arm in `names`; with `{baseline: ARM}`, those that lack the baseline."""
    pairs = contrast_pairs(config.contrasts, config.arms)
    absent = [pair for pair in pairs if len({*pair} & {*names}) == 1]
    return [pair for pair in absent if pair[0] in names] if isinstance(config.contrasts, Mapping) else absent


def part_of(budget: Budget, share: float) -> Budget:
    """A share of a budget; rollouts, tokens and steps are whole numbers."""
    total = share * budget.total
    limit: dict[str, Any] = {budget.unit: total if "seconds" in budget.unit else math.ceil(total)}
    return replace(budget, **limit)


def limit_of(budget: Budget) -> dict[str, Any]:
    """The single limit of a budget, as written in YAML."""
    return {k: v for k, v in vars(budget).items() if v is not None}
