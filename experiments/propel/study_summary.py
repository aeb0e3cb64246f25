"""Summarizes a study in numbers and tables: every arm over its seeds, the probes, and their costs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec

from halfway.curriculum.support.atomic import read_json, read_json_text, reading, write_json, write_text
from halfway.experiments.propel.config import BASE, PropelConfig
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds
from halfway.experiments.report.text_tables import TextTable, interval, number, seeds_text
from halfway.trainers.propel.domains.diversity import BLOCK

COLUMNS = ("utility", "valid", "too_easy", "too_hard", "self_bleu_3", "block_self_bleu_3", "distinct_3", "top_topic")
PAIRED = ("utility", "valid", "top_topic")
TRIALS = ("offline_trials", "online_trials")
# Columns of an open domain, whose answers come from oracles.
ORACLES = ("well_formed", "utility_of_valid", "offline_oracle_attempts", "online_oracle_attempts")
PROBE_SCORES = {"ece": "ECE", "auc": "AUC", "f1": "F1", "spearman": "rho"}

Cells = Sequence[object]


def study_tables(summary: Mapping[str, Any]) -> list[TextTable]:
    """Make the tables of all evaluations so far."""
    arms, differences, sweeps = summary["arms"], summary["differences"], summary["sweeps"]
    tables = []
    if arms:
        tables.append(arms_table(arms))
        if differences and differences["arms"]:
            tables.append(differences_table(differences))
        tables.append(solve_counts_table(arms))
        if all(arm["features"] for arm in arms.values()):  # an arm without a valid task has none
            tables.append(features_table(arms))
        if all(name in arm for arm in arms.values() for name in ORACLES):
            tables.append(oracles_table(arms))
    if sweeps:
        tables += [probes_table(sweeps), costs_table(sweeps)]
    return tables


def arms_table(arms: Mapping[str, Any]) -> TextTable:
    """One row per arm: its texts' quality, and its solver trials."""
    heads = (*map(heading, COLUMNS), "trials before", "trials during", "step", "seeds")
    rows = {
        arm: (
            *(interval(figures[name]) for name in COLUMNS),
            *(number(figures[name], 0) for name in TRIALS),
            ", ".join(f"{value:g}" for value in figures["step"].values),
            seeds_text(figures["seeds"]),
        )
        for arm, figures in arms.items()
    }
    caption = (
        f"{next(iter(arms.values()))['generations']} fresh texts per arm and seed: means, with 95 % Student-t "
        "intervals over two or more seeds. Shares are of all texts. Trials: attempts by the solver before and in the "
        "generator's training. Self bleu 3: of all texts, which saturates near 1 for hundreds of short ones; block: of "
        f"blocks of {BLOCK}."
    )
    return _table("Generators", ("arm", *heads), rows, caption)


def differences_table(differences: Mapping[str, Any]) -> TextTable:
    """Every arm minus the reference, paired by seed."""
    reference = differences["reference"]
    rows = {
        arm: (
            *(interval(figures[name], signed=True) for name in PAIRED),
            seeds_text(len(figures["seeds"])),
        )
        for arm, figures in differences["arms"].items()
    }
    caption = (
        f"Every arm minus `{reference}`, paired by seed, since the arms of a seed share a corpus: mean over seeds, "
        "with its 95 % Student-t interval, or with the seeds themselves if they are two or three. Nothing here is "
        "adjusted for the number of arms."
    )
    return _table("Differences", (f"minus {reference}", *map(heading, PAIRED), "seeds"), rows, caption)


def solve_counts_table(arms: Mapping[str, Any]) -> TextTable:
    """The solve counts of all seeds together."""
    attempts = len(next(iter(arms.values()))["solve_counts"][0]) - 1
    rows = {}
    for arm, figures in arms.items():
        counts = [sum(column) for column in zip(*figures["solve_counts"], strict=True)]
        rows[arm] = (*counts, figures["generations"] * figures["seeds"] - sum(counts))
    heads = (f"solved, of {attempts}", *map(str, range(attempts + 1)), "invalid")
    return _table("Solve counts", heads, rows, "Texts by how many of their attempts passed.")


def features_table(arms: Mapping[str, Any]) -> TextTable:
    """The domain's features of its valid tasks."""
    first, *others = (figures["features"] for figures in arms.values())
    shared = [name for name in first if all(name in other for other in others)]
    pairs = [(name, of) for name in shared for of in ("mean", "median")]
    rows = {arm: [interval(figures["features"][name][of]) for name, of in pairs] for arm, figures in arms.items()}
    return _table("Features", ("arm", *(f"{name}, {of}" for name, of in pairs)), rows, "Of valid tasks.")


def oracles_table(arms: Mapping[str, Any]) -> TextTable:
    """The work of oracles in an open domain."""
    heads = ("arm", "follows the rules", "utility of valid", "oracle attempts before", "oracle attempts during")
    rows = {
        arm: (*(interval(own[name]) for name in ORACLES[:2]), *(number(own[name], 0) for name in ORACLES[2:]))
        for arm, own in arms.items()
    }
    caption = (
        "Valid is what follows the rules and has an answer that all oracles agree on. Before: corpus, policy sample of "
        "the sweep and choice of the checkpoint."
    )
    return _table("Oracles", heads, rows, caption)


def probes_table(sweeps: Mapping[str, Any]) -> TextTable:
    """One row per seed: the chosen probe on test rows, against permuted labels and the best lookup."""
    heads = (
        *("seed", "layer", "pooling", "head", "balance", "balanced accuracy (test)", *PROBE_SCORES.values(), "RVP"),
        *("permuted labels", "best lookup", "probe above it"),
    )
    rows = {seed: _probe_cells(record) for seed, record in sweeps.items()}
    return _table("Probes", heads, rows, "")


def _probe_cells(record: Mapping[str, Any]) -> Cells:
    chosen = record["chosen"]
    test, (low, high) = chosen["test"], chosen["test_interval"]
    return (
        *(chosen[name] for name in ("layer", "pooling", "head", "balance")),
        f"{test['balanced_accuracy']:.3f} [{low:.3f}, {high:.3f}]",
        *(f"{test[name]:.3f}" for name in PROBE_SCORES),
        f"{chosen['rvp']:.3f}",
        f"{fmean(record['permuted']):.3f}" if record["permuted"] else "",
        *(_lookup_cells(record["surface"][0]) if record["surface"] else ("", "")),
    )


def _lookup_cells(lookup: Mapping[str, Any]) -> Cells:
    """The best lookup, and the probe's paired difference from it."""
    gain = Estimate(lookup["probe_gain"], *lookup["probe_gain_interval"])
    return f"{lookup['feature']} {lookup['test']['balanced_accuracy']:.3f}", interval(gain, signed=True)


def costs_table(sweeps: Mapping[str, Any]) -> TextTable:
    """One row per seed: the texts, labels and solver trials of the probe."""
    names = list(next(iter(sweeps.values()))["costs"])
    rows = {seed: [f"{record['costs'].get(name, 0):,}" for name in names] for seed, record in sweeps.items()}
    return _table("Cost of the probes", ("seed", *map(heading, names)), rows, "")


def heading(name: str) -> str:
    """Turn a quantity's name into a heading."""
    return name.replace("_", " ")


def _table(title: str, heads: Sequence[str], rows: Mapping[str, Cells], caption: str) -> TextTable:
    return TextTable(title, tuple(heads), tuple((name, *map(str, cells)) for name, cells in rows.items()), caption)


AGAIN = "remove it and evaluate again"
Pair = tuple[float, float]
Records = Mapping[int, Mapping[str, Any]]
"""The evaluations of an arm, by seed."""


class _Feature(msgspec.Struct):
    mean: float
    median: float


class _Scores(msgspec.Struct):
    balanced_accuracy: float
    ece: float
    auc: float
    f1: float
    spearman: float


class _Cell(msgspec.Struct):
    layer: int
    pooling: str
    head: str
    balance: str
    test: _Scores
    test_interval: Pair
    rvp: float


class _Lookup(msgspec.Struct):
    feature: str
    test: _Scores
    probe_gain: float
    probe_gain_interval: Pair


class _Sweep(msgspec.Struct):
    """The fields that the tables read from sweep.json."""

    chosen: _Cell
    permuted: list[float]
    surface: list[_Lookup]
    costs: dict[str, int]


def summarize_study(config: PropelConfig) -> dict[str, Any]:
    """Collect all evaluations so far: each arm's quantities over seeds, `paired_differences`, and the sweeps by seed.

    An arm's `features` are the domain's features of its valid tasks. `curves` has the same quantities by step, for
    every evaluated checkpoint.
    """
    evaluated = {arm: evaluations_of(config, arm) for arm in (BASE, *config.arms)}
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
    sweeps = {str(seed): record for seed in config.seeds if (record := sweep_of(config, seed))}
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
    """Every arm, including the base, minus the first trained arm, within each seed, since arms share its streams.

    Returns:
        `reference`, the name of the first trained arm; and `arms`: for each arm its shared seeds and the mean
        difference of each quantity over them; None for an arm without a shared seed. The result is None without a
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
    """Draw curves.png, if checkpoints were evaluated."""
    from halfway.experiments.propel.figures import curves

    found = summarize_study(config)["curves"]
    if set(found) - {BASE}:
        curves(found, config.folder / "curves.png")


def _curve(config: PropelConfig, arm: str) -> dict[str, dict[str, Estimate]]:
    """Means over the seeds with a curve, by step and quantity."""
    by_step: dict[str, list[Any]] = {}
    for seed in config.seeds:
        file = _file(config, seed, f"evaluations/{arm}.curve.json")
        with reading(file, AGAIN):
            for point in json.loads(read_json_text(file, AGAIN)) if file.exists() else []:
                by_step.setdefault(str(int(point["step"])), []).append([float(point[name]) for name in COLUMNS])
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


def evaluation_kind(config: PropelConfig) -> Any:
    """The type of an evaluation's record, with the fields that tables show."""
    attempts = config.solver.rollouts.num_rollouts
    counts = Annotated[list[int], msgspec.Meta(min_length=attempts + 1, max_length=attempts + 1)]
    numbers = (*COLUMNS, *TRIALS, "step", *(ORACLES if config.oracles else ()))
    others: list[tuple[str, Any]] = [("generations", int), ("solve_counts", counts), ("features", dict[str, _Feature])]
    return msgspec.defstruct("Evaluation", [*((name, float) for name in numbers), *others])


def evaluations_of(config: PropelConfig, arm: str) -> dict[int, Any]:
    """The evaluations of an arm, by seed."""
    kind = evaluation_kind(config)
    found = {seed: _read(config, seed, f"evaluations/{arm}.json", kind) for seed in config.seeds}
    return {seed: record for seed, record in found.items() if record}


def sweep_of(config: PropelConfig, seed: int) -> dict[str, Any]:
    """The sweep of a seed's probes; empty if there was none."""
    return _read(config, seed, "sweep.json", _Sweep)


def _read(config: PropelConfig, seed: int, name: str, kind: Any = dict[str, Any]) -> dict[str, Any]:
    """The contents of a seed's file; empty if it does not exist."""
    return read_json(_file(config, seed, name), AGAIN, kind)


def _file(config: PropelConfig, seed: int, name: str) -> Path:
    return config.folder / f"seed-{seed}" / name
