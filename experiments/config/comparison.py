"""What a YAML file may say of a comparison of arms. Importing and checking needs no torch and no MLflow."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.registry import unknown
from halfway.experiments.config import yaml_files
from halfway.experiments.config.run import NAME, RunConfig, parse_run_config
from halfway.experiments.config.validation import typed
from halfway.trainers.loop.options import Budget

# What belongs to a comparison as a whole, so that its arms are compared on equal terms.
SHARED = ("budget", "seed", "name", "output", "tracking", "evaluation")


@dataclass(frozen=True)
class ComparisonConfig:
    """Arms x seeds on one budget.

    Attributes:
        name: the comparison's directory is `output`/`name`.
        base: what the arms share: the fields of a run.
        seeds: every arm runs once with each.
        budget: what every arm may spend.
        arms: arm -> the fields in which it differs from `base`.
    """

    name: str
    base: dict[str, Any]
    seeds: tuple[int, ...]
    budget: Budget
    arms: dict[str, Any]

    def __post_init__(self) -> None:
        require(NAME.fullmatch(self.name) is not None, "name", self.name, "use letters, digits, '.', '_' and '-'")
        require(len(self.arms) > 0, "arms", self.arms, "give at least one arm")
        unique = len(set(self.seeds)) == len(self.seeds) > 0
        require(unique and min(self.seeds) >= 0, "seeds", list(self.seeds), "give different numbers from 0 on")
        for arm, changes in self.arms.items():
            require(re.fullmatch(r"[\w.-]+", arm) is not None, "arms", arm, "use letters, digits, '.', '_' and '-'")
            require(isinstance(changes, dict), f"arms.{arm}", changes, "give the fields in which the arm differs")
            for name in SHARED:
                require(
                    name not in changes,
                    f"arms.{arm}.{name}",
                    changes.get(name),
                    f"all arms share one {name}; set it for the whole comparison",
                )

    @property
    def folder(self) -> Path:
        """The comparison's directory."""
        return Path(str(self.base.get("output", "runs"))) / self.name

    def run(self, arm: str, seed: int) -> RunConfig:
        """The configuration of one arm with one seed. Raises UserError with the arm's name in front."""
        own = {"name": f"{self.name}/{arm}/seed-{seed}", "seed": seed, "budget": given(self.budget)}
        try:
            return parse_run_config(yaml_files.merge(yaml_files.merge(self.base, self.arms[arm]), own))
        except UserError as error:
            raise UserError(f"arms.{arm}: {error}") from None

    def runs(self) -> Iterator[tuple[str, int, RunConfig]]:
        """Arm, seed and configuration of every run; arms change fastest, so that early results compare them all."""
        for seed in self.seeds:
            for arm in self.arms:
                yield arm, seed, self.run(arm, seed)


def comparison_config(raw: dict[str, Any], path: Path, overrides: Sequence[str]) -> ComparisonConfig:
    """The comparison that a mapping read from `path` describes, changed by overrides, every arm checked completely."""
    changes = yaml_files.parse_overrides(overrides)
    own = {k: v for k, v in changes.items() if k in ("name", "seeds", "budget", "arms")}
    shared = {k: v for k, v in changes.items() if k not in own}
    _check_arms(raw["arms"], own.get("arms", {}))
    raw = yaml_files.merge({"name": path.stem, **raw}, own)
    if not isinstance(raw.get("base"), Mapping):
        raise UserError("base: missing; give a YAML file, or the fields that all arms share")
    base = yaml_files.merge(raw["base"], shared)
    if "budget" in base:
        raw.setdefault("budget", base["budget"])
    raw["base"] = {k: v for k, v in base.items() if k not in ("budget", "name", "seed")}
    raw["arms"] = {arm: {} if changes is None else changes for arm, changes in raw["arms"].items()}
    config = typed(ComparisonConfig, raw)
    for arm in config.arms:
        config.run(arm, config.seeds[0])
    return config


def _check_arms(arms: Any, changed: Mapping[str, Any]) -> None:
    if not isinstance(arms, Mapping):
        raise UserError(f"arms: {arms!r} is not acceptable; give {{arm: the fields in which it differs}}")
    for arm in changed:
        if arm not in arms:
            raise unknown(f"arms.{arm}", arm, map(str, arms))


def with_seeds(config: ComparisonConfig, seeds: Sequence[int]) -> ComparisonConfig:
    """The same comparison with other seeds."""
    return replace(config, seeds=tuple(seeds))


def given(budget: Budget) -> dict[str, Any]:
    """The one limit of a budget, as YAML says it."""
    return {k: v for k, v in vars(budget).items() if v is not None}
