"""The tables of a study, from its summary: arms, differences, solve counts, oracles, probes and what they cost."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.tables.text import TextTable, interval, number, seeds_text
from halfway.trainers.propel.domains.diversity import BLOCK

COLUMNS = ("utility", "valid", "too_easy", "too_hard", "self_bleu_3", "block_self_bleu_3", "distinct_3", "top_topic")
PAIRED = ("utility", "valid", "top_topic")
TRIALS = ("offline_trials", "online_trials")
# Columns of a domain whose tasks get their answers from oracles.
ORACLES = ("well_formed", "utility_of_valid", "offline_oracle_attempts", "online_oracle_attempts")
PROBE_SCORES = {"ece": "ECE", "auc": "AUC", "f1": "F1", "spearman": "rho"}

Cells = Sequence[object]


def study_tables(summary: Mapping[str, Any]) -> list[TextTable]:
    """The tables of whatever has been evaluated so far."""
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
    """One row per arm: its texts' quality, and the solver trials behind it."""
    heads = (*map(spaced, COLUMNS), "trials before", "trials during", "step", "seeds")
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
        f"Every arm minus `{reference}`, paired by seed: mean over seeds, with the 95 % Student-t interval over seeds "
        "from two on. Nothing here is adjusted for the number of arms."
    )
    return _table("Differences", (f"minus {reference}", *map(spaced, PAIRED), "seeds"), rows, caption)


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
    """What the domain reports about its valid tasks."""
    pairs = [(name, of) for name in next(iter(arms.values()))["features"] for of in ("mean", "median")]
    rows = {arm: [interval(figures["features"][name][of]) for name, of in pairs] for arm, figures in arms.items()}
    return _table("Features", ("arm", *(f"{name}, {of}" for name, of in pairs)), rows, "Of valid tasks.")


def oracles_table(arms: Mapping[str, Any]) -> TextTable:
    """What oracles did for a domain whose tasks come without an answer."""
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
    """One row per seed: the chosen probe on test rows, beside permuted labels and the best lookup."""
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
    """One row per seed: the texts, labels and solver trials behind the probe."""
    names = list(next(iter(sweeps.values()))["costs"])
    rows = {seed: [f"{record['costs'][name]:,}" for name in names] for seed, record in sweeps.items()}
    return _table("Cost of the probes", ("seed", *map(spaced, names)), rows, "")


def spaced(name: str) -> str:
    """A quantity's name as a heading."""
    return name.replace("_", " ")


def _table(title: str, heads: Sequence[str], rows: Mapping[str, Cells], caption: str) -> TextTable:
    return TextTable(title, tuple(heads), tuple((name, *map(str, cells)) for name, cells in rows.items()), caption)
