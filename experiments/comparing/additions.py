"""What may be added to a comparison that has begun: seeds, arms, values of a grid, finals; contrasts of new arms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.design import TuneOptions

Combine = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


def extended(earlier: ComparisonConfig, config: ComparisonConfig) -> ComparisonConfig:
    """`config` with everything that the comparison had before: nothing is taken away by leaving it out.

    Raises:
        UserError: if what results is not acceptable, such as a new seed that is a tuning seed.
    """
    shared = {arm: with_grid(own, union, earlier.arms[arm]) for arm, own in config.arms.items() if arm in earlier.arms}
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
    """An extended comparison without what was added: equal to `earlier` if nothing of that was changed.

    `costs`, by which results are only looked at, may change at any time.
    """
    pairs = config.contrasts
    if isinstance(pairs, list) and isinstance(earlier.contrasts, list):
        pairs = [pair for pair in pairs if pair in earlier.contrasts or set(pair) <= earlier.arms.keys()]
    return replace(
        config,
        seeds=earlier.seeds,
        arms={arm: with_grid(config.arms[arm], without_values, own) for arm, own in earlier.arms.items()},
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


def with_grid(own: Mapping[str, Any], combine: Combine, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an arm, its grid combined with the one it had before."""
    if "tune" not in own and "tune" not in earlier:
        return dict(own)
    now, before = (fields.get("tune", {}).get("grid", {}) for fields in (own, earlier))
    return {**own, "tune": {"grid": combine(now, before)}}


def union(grid: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """A grid with the values of both. Grids over different fields have no setting in common: then it stays as it is."""
    if grid.keys() != earlier.keys():
        return dict(grid)
    return {name: list(_joined(values, grid[name])) for name, values in earlier.items()}


def without_values(grid: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """A grid over the same fields without the values that were added."""
    return dict(earlier if grid.keys() == earlier.keys() else grid)


def _final_seeds(earlier: TuneOptions, tune: TuneOptions) -> tuple[int, ...]:
    """Seeds of the finals, with those that finals have begun with; empty where they are the seeds of the sweep."""
    if not earlier.final_seeds and not tune.final_seeds:
        return ()
    return _joined(earlier.seeds_of_finals if earlier.finals else (), tune.final_seeds)


def _all_contrasts(earlier: Any, contrasts: Any) -> Any:
    both_listed = isinstance(earlier, list) and isinstance(contrasts, list)
    return list(_joined(earlier, contrasts)) if both_listed else contrasts


def _joined(earlier: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    """Both, in this order, each value once."""
    return (*earlier, *(value for value in more if value not in earlier))
