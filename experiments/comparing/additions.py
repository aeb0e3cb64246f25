"""Additions to a comparison that has begun: seeds, arms, grid values, finals, and contrasts of new arms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import TuneOptions


def extended(earlier: ComparisonConfig, config: ComparisonConfig) -> ComparisonConfig:
    """`config` with everything that the comparison had before, since leaving something out does not remove it.

    Raises:
        UserError: if the result is not acceptable, for example because a new seed is a tuning seed.
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


def restricted(config: ComparisonConfig, earlier: ComparisonConfig) -> ComparisonConfig:
    """An extended comparison without the additions: equal to `earlier` if nothing else was changed.

    `costs`, which only affects how results are presented, may change at any time.
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
    """A grid with the values of both. Grids over different fields share no setting, so then `grid` is unchanged."""
    if grid.keys() != earlier.keys():
        return dict(grid)
    return {name: list(_joined(values, grid[name])) for name, values in earlier.items()}


def without_values(grid: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """A grid over the same fields without the values that were added."""
    return dict(earlier if grid.keys() == earlier.keys() else grid)


def _final_seeds(earlier: TuneOptions, tune: TuneOptions) -> tuple[int, ...]:
    """Seeds of the finals, including those that finals began with; empty if they are the seeds of the sweep."""
    if not earlier.final_seeds and not tune.final_seeds:
        return ()
    return _joined(earlier.seeds_of_finals if earlier.finals else (), tune.final_seeds)


def _all_contrasts(earlier: Any, contrasts: Any) -> Any:
    both_listed = isinstance(earlier, list) and isinstance(contrasts, list)
    return list(_joined(earlier, contrasts)) if both_listed else contrasts


def _joined(earlier: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    """The values of both, in this order, each value once."""
    return (*earlier, *(value for value in more if value not in earlier))
