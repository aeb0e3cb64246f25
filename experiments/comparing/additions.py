"""Additions to a started comparison: seeds, arms, grid values, finals, and contrasts of new arms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import TuneOptions


def extend(earlier: ComparisonConfig, config: ComparisonConfig) -> ComparisonConfig:
    """Add the earlier parts of the comparison to `config`: leaving a part out does not remove it.

    Raises:
        UserError: if the result is invalid, for example because a new seed is a tuning seed.
    """
    shared = {
        name: replace(arm, grid=union(arm.grid, earlier.arms[name].grid))
        for name, arm in config.arms.items()
        if name in earlier.arms
    }
    return replace(
        config,
        seeds=_joined(earlier.seeds, config.seeds),
        arms={**earlier.arms, **config.arms, **shared},
        tune=replace(
            config.tune,
            grid=union(config.tune.grid, earlier.tune.grid),
            seeds=_joined(earlier.tune.seeds, config.tune.seeds),
            finals=max(earlier.tune.finals, config.tune.finals),
            final_seeds=_final_seeds(earlier.tune, config.tune),
        ),
        contrasts=_all_contrasts(earlier.contrasts, config.contrasts),
    )


def restrict(config: ComparisonConfig, earlier: ComparisonConfig) -> ComparisonConfig:
    """Remove the additions from an extended comparison: equal to `earlier` if nothing else changed.

    `costs` may change at any time: it only affects the presentation of results.
    """
    pairs = config.contrasts
    if isinstance(pairs, list) and isinstance(earlier.contrasts, list):
        pairs = [pair for pair in pairs if pair in earlier.contrasts or set(pair) <= earlier.arms.keys()]
    if isinstance(pairs, dict) and pairs.get("baseline") not in earlier.arms:
        pairs = earlier.contrasts
    return replace(
        config,
        seeds=earlier.seeds,
        arms={
            name: replace(config.arms[name], grid=without_values(config.arms[name].grid, arm.grid))
            for name, arm in earlier.arms.items()
        },
        tune=replace(
            config.tune,
            grid=without_values(config.tune.grid, earlier.tune.grid),
            seeds=earlier.tune.seeds,
            finals=earlier.tune.finals,
            final_seeds=earlier.tune.final_seeds,
        ),
        contrasts=pairs,
        costs=earlier.costs,
    )


def union(grid: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Join the values of two grids. Grids over different fields share no setting, so then `grid` does not change."""
    if grid.keys() != earlier.keys():
        return dict(grid)
    return {name: list(_joined(values, grid[name])) for name, values in earlier.items()}


def without_values(grid: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the added values from a grid over the same fields."""
    return dict(earlier if grid.keys() == earlier.keys() else grid)


def _final_seeds(earlier: TuneOptions, tune: TuneOptions) -> tuple[int, ...]:
    """Seeds of the finals, including earlier ones; empty if they are the seeds of the sweep."""
    if not earlier.final_seeds and not tune.final_seeds:
        return ()
    return _joined(earlier.seeds_of_finals if earlier.finals else (), tune.final_seeds)


def _all_contrasts(earlier: Any, contrasts: Any) -> Any:
    both_listed = isinstance(earlier, list) and isinstance(contrasts, list)
    return list(_joined(earlier, contrasts)) if both_listed else contrasts


def _joined(earlier: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    """Join two lists of values, in order, each value once."""
    return (*earlier, *(value for value in more if value not in earlier))
