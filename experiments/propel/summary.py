"""Makes the tables of a study: every arm over its seeds, the probes, and their costs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.experiments.propel.config import BASE, PropelConfig
from halfway.experiments.propel.probe_tables import costs_table, probes_table
from halfway.experiments.propel.training_curves import first_and_last_steps, number_text, over_all_seeds, training_table
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds, ratio_over_seeds
from halfway.experiments.report.tables.text import interval, seeds_text
from halfway.trainers.propel.domains.diversity import BLOCK

Records = Mapping[int, Mapping[str, Any]]
"""The evaluations of an arm, by seed."""

# Studies that were evaluated before this column was added lack block_self_bleu_3.
COLUMNS = ("utility", "valid", "too_easy", "too_hard", "self_bleu_3", "block_self_bleu_3", "distinct_3", "top_topic")
PAIRED = ("utility", "valid", "top_topic")
TRIALS = ("offline_trials", "online_trials")
# Columns of a domain whose tasks get their answers from oracles.
ORACLES = ("well_formed", "utility_of_valid", "offline_oracle_attempts", "online_oracle_attempts")


def summarize_study(config: PropelConfig) -> dict[str, Any]:
    """Everything evaluated so far: the mean, stderr and values over seeds of each arm's quantities, and sweeps by seed.

    `multiple` and `differences` come from `times_base` and `paired_differences`, `training` from
    `first_and_last_steps`, and an arm's `features` from what the domain reports about its valid tasks. `curves` has
    the same quantities by step, for every kept checkpoint that has been judged.
    """
    evaluated = {arm: found for arm in (BASE, *config.arms) if (found := _evaluations(config, arm))}
    arms: dict[str, Any] = {}
    for arm, found in evaluated.items():
        records = list(found.values())
        names = (*known(records), *TRIALS, "step", *(ORACLES if config.oracles else ()))
        arms[arm] = {name: over_all_seeds([r[name] for r in records]) for name in names}
        arms[arm]["trials"] = over_all_seeds([r["offline_trials"] + r["online_trials"] for r in records])
        arms[arm]["seeds"] = len(records)
        arms[arm]["generations"] = records[0]["generations"]
        arms[arm]["solve_counts"] = [record["solve_counts"] for record in records]
        arms[arm]["features"] = _features(records)
        arms[arm]["multiple"] = times_base(found, evaluated.get(BASE, {}))
    differences = paired_differences(evaluated)
    sweeps = {str(seed): record for seed in config.seeds if (record := _read(config, seed, "sweep.json"))}
    corpora = {str(seed): record for seed in config.seeds if (record := _read(config, seed, "corpus.json"))}
    curves = {arm: points for arm in arms if (points := _curve(config, arm))}
    training = {arm: ends for arm in config.arms if (ends := first_and_last_steps(config, arm))}
    return {
        "name": config.name,
        "arms": arms,
        "differences": differences,
        "curves": curves,
        "training": training,
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
    trained = (a for a, found in evaluated.items() if a != BASE and any(r["step"] for r in found.values()))
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


def write_summary(config: PropelConfig) -> Path:
    """Write summary.json and summary.md. Returns the latter."""
    summary = summarize_study(config)
    write_json(config.folder / "summary.json", summary)
    file = config.folder / "summary.md"
    write_text(file, markdown(summary))
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
    found: dict[str, list[Any]] = {}
    for seed in config.seeds:
        for point in _read(config, seed, f"evaluations/{arm}.curve.json") or []:
            found.setdefault(str(point["step"]), []).append(point)
    return {
        step: {name: over_all_seeds([point[name] for point in points]) for name in known(points)}
        for step, points in found.items()
    }


def _features(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and median of each feature over seeds, by name; empty for studies from before features were recorded."""
    shared = [name for name in records[0].get("features", {}) if all(name in r.get("features", {}) for r in records)]
    return {
        name: {of: over_all_seeds([r["features"][name][of] for r in records]) for of in ("mean", "median")}
        for name in shared
    }


def known(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The quantities in `COLUMNS` that all records have."""
    records = list(records)
    return [name for name in COLUMNS if all(name in record for record in records)]


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


def _estimate(figures: Mapping[str, Any]) -> Estimate | None:
    """An estimate as read from summary.json."""
    if figures["value"] is None:
        return None
    return Estimate(figures["value"], figures["low"], figures["high"])


def markdown(summary: Mapping[str, Any]) -> str:
    """The tables of a summary, in Markdown."""
    parts = [f"# {summary['name']}\n"]
    if summary["arms"]:
        parts.append(_arms_table(summary["arms"]))
        if summary["differences"] and summary["differences"]["arms"]:
            parts.append(_differences_table(summary["differences"]))
        parts.append(_counts_table(summary["arms"]))
        if all(arm["features"] for arm in summary["arms"].values()):
            parts.append(_features_table(summary["arms"]))
        if summary["training"]:
            parts.append(training_table(summary["training"]))
        if all(name in arm for arm in summary["arms"].values() for name in ORACLES):
            parts.append(_oracles_table(summary["arms"]))
    if summary["sweeps"]:
        parts.append(probes_table(summary["sweeps"]))
        parts.append(costs_table(summary["sweeps"]))
    return "\n".join(parts)


def _arms_table(arms: Mapping[str, Any]) -> str:
    columns = known(arms.values())
    heads = [
        "arm",
        *(name.replace("_", " ") for name in columns),
        "times base",
        "trials before",
        "trials during",
        "step",
        "seeds",
    ]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for arm, figures in arms.items():
        cells = [number_text(figures[name]) for name in columns]
        cells.append(_times(figures["multiple"]) if figures["multiple"] else "")
        cells += [f"{figures[name]['mean']:,.0f}" for name in TRIALS]
        cells.append(", ".join(f"{value:g}" for value in figures["step"]["values"]))
        cells.append(seeds_text(figures["seeds"]))
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    first = next(iter(arms.values()))
    lines.append(
        f"\n{first['generations']} fresh texts per arm and seed, mean and standard error over seeds. "
        "All shares are of all texts. Times base: geometric mean over seeds of utility over the base's, with the 95 % "
        "Student-t interval of its logarithm. Trials: attempts by the solver before and during the generator's "
        "training. Self bleu 3: of all texts, which saturates near 1 for hundreds of short ones; block: of blocks of "
        f"{BLOCK}. 1 only: a single seed, whose figures have no error over seeds.\n"
    )
    return "\n".join(lines)


def _times(multiple: Mapping[str, Any]) -> str:
    """An arm's utility over the base's, and the number of seeds without such a ratio."""
    values = multiple["values"]
    text = interval(_estimate(multiple), 2)
    return f"{text} (base 0 on {values.count(None)} of {len(values)} seeds)" if None in values else text


def _differences_table(differences: Mapping[str, Any]) -> str:
    heads = [f"minus {differences['reference']}", *(name.replace("_", " ") for name in PAIRED), "seeds"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for arm, figures in differences["arms"].items():
        cells = [interval(_estimate(figures[name]), signed=True) for name in PAIRED]
        lines.append(f"| {arm} | {' | '.join([*cells, seeds_text(len(figures['seeds']))])} |")
    lines.append(
        f"\nEvery arm minus `{differences['reference']}`, paired by seed: mean over seeds, with the 95 % Student-t "
        "interval over seeds from two on. Nothing here is adjusted for the number of arms.\n"
    )
    return "\n".join(lines)


def _oracles_table(arms: Mapping[str, Any]) -> str:
    heads = ["arm", "follows the rules", "utility of valid", "oracle attempts before", "oracle attempts during"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for arm, figures in arms.items():
        cells = [number_text(figures[name]) for name in ORACLES[:2]]
        cells += [f"{figures[name]['mean']:,.0f}" for name in ORACLES[2:]]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    lines.append(
        "\nValid is what follows the rules and has an answer that all oracles agree on. Before: corpus, policy sample "
        "of the sweep, mined texts and choice of the checkpoint.\n"
    )
    return "\n".join(lines)


def _counts_table(arms: Mapping[str, Any]) -> str:
    """A table of the solve counts of all seeds together."""
    attempts = len(next(iter(arms.values()))["solve_counts"][0]) - 1
    heads = ["solved, of " + str(attempts), *map(str, range(attempts + 1)), "invalid"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for arm, figures in arms.items():
        counts = [sum(column) for column in zip(*figures["solve_counts"], strict=True)]
        invalid = figures["generations"] * figures["seeds"] - sum(counts)
        lines.append(f"| {arm} | {' | '.join(map(str, [*counts, invalid]))} |")
    return "\n".join(lines) + "\n"


def _features_table(arms: Mapping[str, Any]) -> str:
    names = list(next(iter(arms.values()))["features"])
    heads = ["arm", *(f"{name}, {of}" for name in names for of in ("mean", "median"))]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for arm, figures in arms.items():
        cells = [number_text(figures["features"][name][of]) for name in names for of in ("mean", "median")]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\nOf valid tasks.\n"
