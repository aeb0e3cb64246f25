"""Makes the tables of a study's probes: their quality and their cost."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any


def probes_table(sweeps: Mapping[str, Any]) -> str:
    """One line per seed: the chosen probe on test rows, next to permuted labels and the best lookup."""
    heads = [
        "seed",
        "layer",
        "pooling",
        "head",
        "balance",
        "balanced accuracy (test)",
        "ECE",
        "AUC",
        "F1",
        "rho",
        "RVP",
    ]
    heads += ["permuted labels", "best lookup", "probe above it"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for seed, record in sweeps.items():
        chosen, lookup = record["chosen"], record["surface"][0] if record["surface"] else None
        low, high = chosen["test_interval"]
        test = chosen["test"]
        permuted = f"{fmean(record['permuted']):.3f}" if record["permuted"] else ""
        cells = [seed, chosen["layer"], chosen["pooling"], chosen["head"], chosen["balance"]]
        cells.append(f"{test['balanced_accuracy']:.3f} [{low:.3f}, {high:.3f}]")
        cells += [f"{test['ece']:.3f}", f"{test['auc']:.3f}", f"{test['f1']:.3f}", f"{test['spearman']:.3f}"]
        cells += [f"{chosen['rvp']:.3f}", permuted]
        cells += _beside(lookup)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _beside(lookup: Mapping[str, Any] | None) -> list[str]:
    """The best lookup, and the probe's paired difference from it."""
    if lookup is None:
        return ["", ""]
    low, high = lookup["probe_gain_interval"]
    return [
        f"{lookup['feature']} {lookup['test']['balanced_accuracy']:.3f}",
        f"{lookup['probe_gain']:+.3f} [{low:+.3f}, {high:+.3f}]",
    ]


def costs_table(sweeps: Mapping[str, Any]) -> str:
    """One line per seed: the texts, labels and solver trials behind the probe."""
    names = list(next(iter(sweeps.values()))["costs"])
    lines = [f"| seed | {' | '.join(name.replace('_', ' ') for name in names)} |", f"|{'---|' * (len(names) + 1)}"]
    for seed, record in sweeps.items():
        lines.append(f"| {seed} | {' | '.join(format(record['costs'][name], ',') for name in names)} |")
    return "\n".join(lines) + "\n"
