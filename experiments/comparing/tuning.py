"""Runs the sweep before a comparison, every setting of every arm's grid with separate seeds, and chooses a setting.

A setting's area is the mean height of the learning curve over the tuning seeds: the area under held-out pass@1 along
the budget's unit (such as rollouts), divided by the budget. The setting with the largest area is chosen; of equal
settings, the earlier one. With `tune.finals` the best settings run again with the whole budget and the seeds of the
finals, and the areas of these runs decide.

`tuning.json` in the comparison's directory records the sweep: `seeds`, `final_seeds` (empty without finals), and for
each of `arms`:

- `settings`: each with `name` (also its folder), `values`, `areas` by seed, `mean_area` (null while a seed is missing),
  and `final_areas` and `final_area`, the same with the whole budget;
- `chosen`: the name of the chosen setting, null if no setting has finished;
- `at_edge`: the fields with the smallest or largest tried number chosen, so that a better value may lie beyond it
  (unless another value did as well);
- `equals`: number of settings that did as well, including the chosen one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.support.atomic import read_json_lines, reading, write_json
from halfway.experiments.comparing.jobs import Job
from halfway.experiments.config.comparison import SUPERSEDED, TUNING, WHOLE, ComparisonConfig
from halfway.experiments.config.design import Grid, Setting, flatten
from halfway.experiments.config.loading import load_run_config, to_plain
from halfway.experiments.config.run import RunConfig
from halfway.experiments.report.analysis.sweeps import SWEEPS, Sweep, Trial
from halfway.experiments.running.runs import CONFIG, claim, prepare, read_state
from halfway.trainers.loop.loop_options import Budget

AXES = {"rollouts": "rollouts", "tokens": "tokens", "steps": "step", "seconds": "seconds"}
"""Units of a budget, with the field of an evaluation for each."""

FloatArray = NDArray[np.float64]


def tuning_jobs(config: ComparisonConfig, folder: Path) -> list[Job]:
    """Make the directories and jobs of every run of every sweep."""
    return _prepared([Job.of(config, run, folder) for run in config.tuning_runs()])


def final_jobs(config: ComparisonConfig, folder: Path) -> list[Job]:
    """Make the directories and jobs of the finals of ended sweeps."""
    trials = {arm: finalists(sweep.settings, config.tune.finals) for arm, sweep in sweeps_of(config, folder).items()}
    return _prepared(
        [
            Job.of(config, run, folder)
            for arm, found in trials.items()
            for trial in found
            for run in config.final_runs(arm, Setting(trial.values))
        ]
    )


def _prepared(jobs: list[Job]) -> list[Job]:
    for job in jobs:
        prepare(job.config, job.folder)
    return jobs


def sweeps_of(config: ComparisonConfig, folder: Path) -> dict[str, Sweep]:
    """Collect the results of the sweeps so far, for every tuned arm."""
    return {
        arm: chosen(
            [trial_of(config, folder, arm, setting) for setting in settings], config.grid(arm), config.tune.finals
        )
        for arm in config.arms
        if (settings := config.settings(arm))
    }


def write_sweeps(config: ComparisonConfig, folder: Path, sweeps: Mapping[str, Sweep]) -> None:
    """Write tuning.json."""
    tune = config.tune
    write_json(
        folder / SWEEPS,
        {
            "seeds": list(tune.seeds),
            "final_seeds": list(tune.seeds_of_finals if tune.finals else ()),
            "arms": {arm: asdict(sweep) for arm, sweep in sweeps.items()},
        },
    )


def trial_of(config: ComparisonConfig, folder: Path, arm: str, setting: Setting) -> Trial:
    """Collect the results of one setting of an arm."""
    place = folder / TUNING / arm / setting.name
    places = [place / f"seed-{seed}" for seed in config.tune.seeds]
    last = [place / WHOLE / f"seed-{seed}" for seed in config.tune.seeds_of_finals]
    areas, final_areas = _areas(places, config.tuning_budget), _areas(last, config.budget)
    return Trial(setting.name, setting.values, areas, _mean(areas, places), final_areas, _mean(final_areas, last))


def _areas(places: Sequence[Path], budget: Budget) -> dict[str, float]:
    """The areas of the finished runs, by seed."""
    return {
        place.name.removeprefix("seed-"): area_under_curve(place, budget)
        for place in places
        if read_state(place) == "finished"
    }


def _mean(areas: Mapping[str, float], places: Sequence[Path]) -> float | None:
    return fmean(areas.values()) if len(areas) == len(places) else None


def finalists(settings: Sequence[Trial], number: int) -> list[Trial]:
    """The settings with the largest areas among those finished with every seed, largest first."""
    ended = [trial for trial in settings if trial.mean_area is not None]
    return sorted(ended, key=lambda trial: -(trial.mean_area or 0.0))[:number]


def chosen(settings: Sequence[Trial], grid: Grid, finals: int = 0) -> Sweep:
    """Choose among the settings finished with every seed; if there are finals, their areas decide.

    A grown sweep may have found better settings than earlier finalists, whose final areas are then left out. So the
    result depends on the sweep alone, not on its history.
    """
    names = {trial.name for trial in finalists(settings, finals)}
    settings = [trial if trial.name in names else replace(trial, final_areas={}, final_area=None) for trial in settings]
    last = [trial for trial in finalists(settings, finals) if trial.final_area is not None]
    best = max(last, key=lambda trial: trial.final_area or 0.0) if last else next(iter(finalists(settings, 1)), None)
    if best is None or (finals and not last):
        return Sweep(settings)
    equals = [trial.values for trial in settings if _height(trial) == _height(best)]
    edges = [
        name
        for name, values in grid.items()
        if at_edge(best.values[name], values) and all(tied[name] == best.values[name] for tied in equals)
    ]
    return Sweep(settings, best.name, edges, len(equals))


def _height(trial: Trial) -> tuple[float | None, float | None]:
    """The area that decides for a setting, from the sweep or from its final runs; the other area is None."""
    return (trial.mean_area, None) if trial.final_area is None else (None, trial.final_area)


def at_edge(value: Any, tried: Sequence[Any]) -> bool:
    """True if a number is the smallest or largest of several tried numbers."""
    numbers = [v for v in tried if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(tried) > 1 and value in (min(numbers), max(numbers))


def area_under_curve(run: Path, budget: Budget) -> float:
    """Area under held-out pass@1 over the budget's unit, linear between evaluations, divided by the budget.

    The curve ends with the budget, even if the last step went beyond it. After an earlier end of the run, the curve
    keeps the height of the last evaluation. Under a budget of tool seconds, which evaluations do not record, the area
    is over rollouts up to the last evaluation.
    """
    path, unit = run / "evaluations.jsonl", AXES.get(budget.unit, "rollouts")
    remedy = f"remove {run} and compare again"
    with reading(path, remedy):
        records = [json.loads(line) for line in read_json_lines(path, remedy).splitlines()]
        spent_E = np.asarray([record[unit] for record in records], np.float64)
        pass_E = np.asarray([record["pass_at_1"] for record in records], np.float64)
    return mean_height(spent_E, pass_E, budget.total if budget.unit in AXES else float(spent_E[-1]))


def mean_height(x_E: FloatArray, y_E: FloatArray, end: float) -> float:
    """Mean height of the line through the points, from the first point to `end` within their range."""
    before_E = x_E < end
    x_P = np.append(x_E[before_E], end)
    y_P = np.append(y_E[before_E], np.interp(end, x_E, y_E))
    return float(np.trapezoid(y_P, x_P) / (end - x_E[0]))


def make_room(job: Job, grid: Grid, folder: Path) -> None:
    """Move a run aside if its arm's sweep no longer chooses its values, because grid or seeds have grown.

    It moves to `superseded/ARM/SETTING/seed-N`, and back if the sweep chooses that setting again.
    """
    path = job.folder / CONFIG
    wanted = values_of(job.config, grid)
    if grid and path.exists() and (earlier := values_of(load_run_config(path), grid)) != wanted:
        _move(job.folder, superseded_folder(folder, job, earlier))
    superseded = superseded_folder(folder, job, wanted)
    if not job.folder.exists() and superseded.exists():
        _move(superseded, job.folder)


def superseded_folder(folder: Path, job: Job, values: Mapping[str, Any]) -> Path:
    """The folder of a run that trained with these values before its arm got others."""
    return folder / SUPERSEDED / job.arm / (Setting(values).name or "untuned") / job.folder.name


def values_of(config: RunConfig, grid: Grid) -> dict[str, Any]:
    """A run's values in the fields of a grid."""
    fields = flatten(to_plain(config))
    return {name: fields.get(name) for name in grid}


def _move(source: Path, target: Path) -> None:
    with claim(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
