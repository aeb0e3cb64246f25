"""Summarizes a study: every arm over its seeds, the probes, and their costs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import read_json, reading, write_json, write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.propel.config import BASE, PropelConfig
from halfway.experiments.propel.tables import COLUMNS, ORACLES, PAIRED, TRIALS, study_tables
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds

AGAIN = "remove it and evaluate again"
Records = Mapping[int, Mapping[str, Any]]
"""The evaluations of an arm, by seed."""


def summarize_study(config: PropelConfig) -> dict[str, Any]:
    """Everything evaluated so far: each arm's quantities over seeds, `paired_differences`, and the sweeps by seed.

    An arm's `features` are what the domain reports about its valid tasks. `curves` has the same quantities by step, for
    every kept checkpoint that has been judged.
    """
    evaluated = {arm: _evaluations(config, arm) for arm in (BASE, *config.arms)}
    evaluated = {arm: evaluations for arm, evaluations in evaluated.items() if evaluations}
    arms: dict[str, Any] = {}
    for arm, evaluations in evaluated.items():
        records = list(evaluations.values())
        names = (*COLUMNS, *TRIALS, "step", *(ORACLES if config.oracles else ()))
        arms[arm] = {name: over_seeds([r[name] for r in records]) for name in names}
        arms[arm]["trials"] = over_seeds([r["offline_trials"] + r["online_trials"] for r in records])
        arms[arm]["seeds"] = len(records)
        arms[arm]["generations"] = records[0]["generations"]
        arms[arm]["solve_counts"] = [record["solve_counts"] for record in records]
        arms[arm]["features"] = _features(records)
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


def paired_differences(evaluated: Mapping[str, Records]) -> dict[str, Any] | None:
    """Every arm, including the base, minus the first trained arm, within each seed, whose streams the arms share.

    Returns:
        `reference`, the name of the first trained arm; and `arms`, which holds for each arm its shared seeds and, for
        each quantity, the mean difference over them; None for an arm that shares no seed. The result is None without a
        trained arm.
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
            arms[arm][name] = over_seeds(values) if values else None
    return {"reference": reference, "arms": arms}


def write_summary(config: PropelConfig) -> Path:
    """Write summary.json and summary.md. Returns the latter."""
    summary = summarize_study(config)
    write_json(config.folder / "summary.json", msgspec.to_builtins(summary))
    file = config.folder / "summary.md"
    write_text(file, "\n".join([f"# {config.name}\n", *(table.markdown() for table in study_tables(summary))]))
    return file


def draw_summary(config: PropelConfig) -> None:
    """Draw curves.png, if checkpoints were judged."""
    from halfway.experiments.propel.figures import curves

    found = summarize_study(config)["curves"]
    if set(found) - {BASE}:
        curves(found, config.folder / "curves.png")


def _curve(config: PropelConfig, arm: str) -> dict[str, dict[str, Estimate]]:
    """Means over the seeds that have a curve, by step and quantity."""
    by_step: dict[str, list[Any]] = {}
    for seed in config.seeds:
        file = _file(config, seed, f"evaluations/{arm}.curve.json")
        with reading(file, AGAIN):
            for point in json.loads(file.read_text()) if file.exists() else []:
                by_step.setdefault(str(point["step"]), []).append([float(point[name]) for name in COLUMNS])
    return {
        step: {name: over_seeds(values) for name, *values in zip(COLUMNS, *points, strict=True)}
        for step, points in by_step.items()
    }


def _features(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and median of each feature that every seed has, by name, over seeds."""
    shared = [name for name in records[0]["features"] if all(name in record["features"] for record in records)]
    return {
        name: {of: over_seeds([r["features"][name][of] for r in records]) for of in ("mean", "median")}
        for name in shared
    }


def _evaluations(config: PropelConfig, arm: str) -> dict[int, Any]:
    """The evaluations of an arm, by seed."""
    found = {seed: _read(config, seed, f"evaluations/{arm}.json") for seed in config.seeds}
    for seed, record in found.items():
        for name in (*COLUMNS, *TRIALS, "step", "generations", "solve_counts", "features"):
            if record and name not in record:
                raise UserError(f"{_file(config, seed, 'evaluations')}/{arm}.json: lacks {name}; {AGAIN}")
    return {seed: record for seed, record in found.items() if record}


def _read(config: PropelConfig, seed: int, name: str) -> dict[str, Any]:
    """The contents of a seed's file; empty if it does not exist."""
    return read_json(_file(config, seed, name), AGAIN)


def _file(config: PropelConfig, seed: int, name: str) -> Path:
    return config.folder / f"seed-{seed}" / name
