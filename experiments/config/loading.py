"""Reads a configuration file of any kind, writes one, and shows where two of them differ."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.components import plain
from halfway.experiments.config import yaml_files
from halfway.experiments.config.comparison import ComparisonConfig, comparison_config, limit_of
from halfway.experiments.config.design import flatten
from halfway.experiments.config.paths import anchor
from halfway.experiments.config.run import RunConfig, name_of, parse_run_config


def load_config(path: Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig | ComparisonConfig:
    """The run or comparison in a YAML file, checked completely. A file with `arms` is a comparison.

    Args:
        path: the file; or the content of a file in the current folder, with the name "run" unless it sets one.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    if isinstance(path, Mapping):
        raw, path = yaml_bases.complete(path, anchor), Path("run")
    else:
        raw = yaml_files.read(path)
    if yaml_files.is_study(raw):
        raise UserError(f"{path}: has a domain, so it is a study of task generators; use `halfway propel all {path}`")
    if "arms" in raw:
        return comparison_config(raw, path, overrides)
    return parse_run_config({"name": name_of(path), **yaml_bases.merge(raw, yaml_files.parse_overrides(overrides))})


def load_run_config(path: Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Like `load_config`, for a run only."""
    config = load_config(path, overrides)
    if isinstance(config, ComparisonConfig):
        raise UserError(f"{path}: has arms, so it is a comparison; use `halfway compare {shlex.quote(str(path))}`")
    return config


def load_comparison_config(path: Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> ComparisonConfig:
    """Like `load_config`, for a comparison only."""
    config = load_config(path, overrides)
    if isinstance(config, RunConfig):
        raise UserError(f"{path}: has no arms, so it is a single run; use `halfway run {shlex.quote(str(path))}`")
    return config


def to_plain(config: RunConfig | ComparisonConfig) -> dict[str, Any]:
    """The configuration as plain data that `load_config` can read back."""
    written: dict[str, Any] = {**plain(config), "budget": limit_of(config.budget)}
    if isinstance(config, ComparisonConfig):
        written["arms"] = {name: arm.as_yaml for name, arm in config.arms.items()}
    return written


def save(config: RunConfig | ComparisonConfig, path: Path) -> None:
    """Write the configuration as YAML, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, as_yaml(config))


def as_yaml(config: RunConfig | ComparisonConfig) -> str:
    """The text that `save` writes."""
    return OmegaConf.to_yaml(OmegaConf.create(to_plain(config)))


def differences(left: RunConfig | ComparisonConfig, right: RunConfig | ComparisonConfig) -> list[tuple[str, Any, Any]]:
    """(dotted field, value in `left`, value in `right`) wherever two configurations differ."""
    a, b = flatten(to_plain(left)), flatten(to_plain(right))
    return [(name, a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)]
