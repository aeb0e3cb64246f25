"""Summarizes a study: every arm over its seeds, the probes, and their costs."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.experiments.propel.config import BASE, PropelConfig
from halfway.experiments.propel.tables import COLUMNS, ORACLES, PAIRED, TRIALS, study_tables
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds, ratio_over_seeds

Records = Mapping[int, Mapping[str, Any]]
"""The evaluations of an arm, by seed."""


def summarize_study(config: PropelConfig) -> dict[str, Any]:
    """Everything evaluated so far: the mean, stderr and values over seeds of each arm's quantities, and sweeps by seed.

    `multiple` and `differences` come from `times_base` and `paired_differences`, and an arm's `features` from what the
    domain reports about its valid tasks. `curves` has the same quantities by step, for every kept checkpoint that has
    been judged.
    """
    evaluated = {arm: _evaluations(config, arm) for arm in (BASE, *config.arms)}
    evaluated = {arm: evaluations for arm, evaluations in evaluated.items() if evaluations}
    arms: dict[str, Any] = {}
    for arm, evaluations in evaluated.items():
        records = list(evaluations.values())
        names = (*COLUMNS, *TRIALS, "step", *(ORACLES if config.oracles else ()))
        arms[arm] = {name: over_all_seeds([r[name] for r in records]) for name in names}
        arms[arm]["trials"] = over_all_seeds([r["offline_trials"] + r["online_trials"] for r in records])
        arms[arm]["seeds"] = len(records)
        arms[arm]["generations"] = records[0]["generations"]
        arms[arm]["solve_counts"] = [record["solve_counts"] for record in records]
        arms[arm]["features"] = _features(records)
        arms[arm]["multiple"] = times_base(evaluations, evaluated.get(BASE, {}))
    differences = paired_differences(evaluated)
    sweeps = {str(seed): record for seed in config.seeds if (record := _read(config, seed, "sweep.json"))}
    corpora = {str(seed): record for seed in config.seeds if (record := _read(config, seed, "corpus.json"))}
    curves = {arm: points for arm in arms if (points := _curve(config, arm))}
    return {
        "name": config.name,
        "arms": arms,
        "differences": differences,
        "curves": curves,
        "sweeps": sweeps,
        "corpora": corpora,
    }


def times_base(own: Records, base: Records) -> dict[str, Any] | None:
    """An arm's utility over the base's: geometric mean of one ratio per seed, with a 95 % Student-t interval of the
    logarithms.

    None if no seed has both. `values` has one ratio for each such seed, None where the base's utility is 0. The mean
    covers the other seeds, and is None if there are none. If one ratio is 0, the mean is 0 and has no interval.
    """
    pairs = [(own[seed]["utility"], base[seed]["utility"]) for seed in own if seed in base]
    known = [(top, bottom) for top, bottom in pairs if bottom]
    if not pairs:
        return None
    estimate = Estimate(0.0) if known else None
    if known and all(top for top, _ in known):
        estimate = ratio_over_seeds([top for top, _ in known], [bottom for _, bottom in known])
    return {**_plain(estimate), "values": [top / bottom if bottom else None for top, bottom in pairs]}


def paired_differences(evaluated: Mapping[str, Records]) -> dict[str, Any] | None:
    """Every arm, including the base, minus the first trained arm, within each seed, whose streams the arms share.

    Returns:
        `reference`, the name of the first trained arm; and `arms`, which holds for each arm and quantity the mean over
        the seeds that both have (`value`), its 95 % Student-t interval over at least two seeds (`low`, `high`), and the
        difference of each seed (`values`). For an arm that shares no seed, the first three are None. The result is None
        without a trained arm.
    """
    trained = (a for a, own in evaluated.items() if a != BASE and any(record["step"] for record in own.values()))
    reference = next(trained, None)
    if reference is None:
        return None
    against = evaluated[reference]
    arms: dict[str, Any] = {}
    for arm in (arm for arm in evaluated if arm != reference):
        seeds = [seed for seed in evaluated[arm] if seed in against]
        arms[arm] = {"seeds": seeds}
        for name in PAIRED:
            values = [evaluated[arm][seed][name] - against[seed][name] for seed in seeds]
            arms[arm][name] = {**_plain(over_seeds(values) if values else None), "values": values}
    return {"reference": reference, "arms": arms}


def over_all_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard error (None for one seed), and the values themselves."""
    stderr = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": fmean(values), "stderr": stderr, "values": list(values)}


def write_summary(config: PropelConfig) -> Path:
    """Write summary.json and summary.md. Returns the latter."""
    summary = summarize_study(config)
    write_json(config.folder / "summary.json", summary)
    file = config.folder / "summary.md"
    write_text(file, "\n".join([f"# {config.name}\n", *(table.markdown() for table in study_tables(summary))]))
    return file


def draw_summary(config: PropelConfig) -> None:
    """Draw solve_counts.png, and curves.png if checkpoints were judged."""
    from halfway.experiments.propel.figures import curves, solve_counts

    summary = summarize_study(config)
    attempts = config.solver.rollouts.num_rollouts
    if summary["arms"]:
        solve_counts(summary["arms"], config.solver.band.counts(attempts), config.folder / "solve_counts.png")
    if set(summary["curves"]) - {BASE}:
        curves(summary["curves"], config.folder / "curves.png")


def _curve(config: PropelConfig, arm: str) -> dict[str, Any]:
    """Mean, stderr and values over the seeds that have a curve, by step and quantity."""
    by_step: dict[str, list[Any]] = {}
    for seed in config.seeds:
        for point in _read(config, seed, f"evaluations/{arm}.curve.json") or []:
            by_step.setdefault(str(point["step"]), []).append(point)
    return {
        step: {name: over_all_seeds([point[name] for point in points]) for name in COLUMNS}
        for step, points in by_step.items()
    }


def _features(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and median over seeds of each feature that every seed has, by name."""
    shared = [name for name in records[0]["features"] if all(name in record["features"] for record in records)]
    return {
        name: {of: over_all_seeds([r["features"][name][of] for r in records]) for of in ("mean", "median")}
        for name in shared
    }


def _evaluations(config: PropelConfig, arm: str) -> dict[int, Any]:
    """The evaluations of an arm, by seed."""
    return {seed: record for seed in config.seeds if (record := _read(config, seed, f"evaluations/{arm}.json"))}


def _read(config: PropelConfig, seed: int, name: str) -> Any:
    """The contents of a seed's file; None if it does not exist."""
    file = config.folder / f"seed-{seed}" / name
    return json.loads(file.read_text()) if file.exists() else None


def _plain(estimate: Estimate | None) -> dict[str, float | None]:
    """An estimate as written to summary.json."""
    return {name: getattr(estimate, name, None) for name in ("value", "low", "high")}
