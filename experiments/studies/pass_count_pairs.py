"""Tests the simulated learner on public pass counts before and after training: does it polarise as models do?

The data are 54,784 pairs of pass counts out of 32 attempts, of held-out problems before and after 3,072 updates, for
three models, five domains, five methods and up to five seeds. They come from the evidence file of the package remax-rl
0.1.1 (Apache-2.0).

Each cell (model, domain, level, method) is fitted on all but its last two seeds and judged on those two, by the mean
log-likelihood of the count after, given the count before. The simulated learner is compared with three others: nothing
changes; one skill grows alike for all problems (`curriculum/simulation/simulator.py`); and, as a ceiling for any model
that ignores the count before, the histogram of the counts after in the fitted seeds.

    python -m halfway.experiments.studies.pass_count_pairs --out runs/pass_count_pairs
"""

import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from halfway.curriculum.simulation import pairs
from halfway.curriculum.simulation.pairs import PairTable
from halfway.curriculum.simulation.skills import Dynamics, Floats, Positions
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.report.tables.text import TextTable
from halfway.experiments.scripts import script, script_parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = REPOSITORY / "experiments" / "results" / "pass_count_pairs" / "remax_pass_counts.csv.gz"
SIZE = 32
HELD_OUT = 2
MODELS = ("nothing changes", "one skill", "simulated learner", "histogram")
BANDS = {"0 before": (0, 0), "1 to 8": (1, 8), "9 to 32": (9, 32)}


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """The pairs of one model, domain, level and method: rows of k before and k after, and the seed of each row."""

    name: tuple[str, str, str, str]
    pairs_N2: Positions
    seed_N: Sequence[str]

    def parts(self) -> tuple[Positions, Positions]:
        """The pairs to fit on, and the pairs of the held-out seeds; both are empty if there are too few seeds."""
        seeds = sorted(set(self.seed_N))
        last = np.isin(self.seed_N, seeds[-HELD_OUT:])
        return (self.pairs_N2[~last], self.pairs_N2[last]) if len(seeds) > HELD_OUT else (self.pairs_N2[:0],) * 2


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """How well each model predicts a cell's held-out pairs.

    Attributes:
        pairs: number of held-out pairs.
        logliks: mean log-likelihood per pair in nats, by model.
        after: expected number of pairs with each count after, by model and by band of counts before; "measured" holds
            the actual numbers.
        sizes: number of held-out pairs by band.
        dynamics: the fitted dynamics of the simulated learner.
    """

    name: tuple[str, str, str, str]
    pairs: int
    logliks: Mapping[str, float]
    after: Mapping[str, Mapping[str, Floats]]
    sizes: Mapping[str, int]
    dynamics: Dynamics


def load(path: Path = DATA) -> list[Cell]:
    """Read the pairs that have both counts out of `SIZE` attempts, by cell."""
    found: dict[tuple[str, str, str, str], list[tuple[int, int, str]]] = defaultdict(list)
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["k0"] and row["k1"] and float(row["n0"]) == float(row["n1"]) == SIZE:
                name = (row["model"], row["domain"], row["level"], row["method"])
                found[name].append((int(float(row["k0"])), int(float(row["k1"])), row["seed"]))
    return [Cell(name, np.array([row[:2] for row in rows]), [row[2] for row in rows]) for name, rows in found.items()]


def judge(cell: Cell, tries: int, seed: int = 0) -> Judged | None:
    """Fit the models on a cell's first seeds and judge them on its last; None if there are too few seeds.

    Args:
        tries: tries of the search for the simulated learner's dynamics.
    """
    fitted, held = cell.parts()
    if not len(held):
        return None
    before, after = fitted.T
    share_G = pairs.ease_distribution(before, SIZE)
    dynamics = pairs.fit_dynamics(share_G, SIZE, before, after, tries, seed)
    tables = {
        "nothing changes": pairs.still(share_G, SIZE),
        "one skill": pairs.shifted(share_G, SIZE, pairs.fit_shift(share_G, SIZE, before, after)),
        "simulated learner": pairs.trained(share_G, SIZE, dynamics, seed + 1),  # random draws independent of the fit's
        "histogram": histogram(after),
    }
    in_band = {band: (held[:, 0] >= low) & (held[:, 0] <= high) for band, (low, high) in BANDS.items()}
    told = {
        model: {band: table.after_KK[held[inside, 0]].sum(0) for band, inside in in_band.items()}
        for model, table in tables.items()
    }
    told["measured"] = {b: np.bincount(held[inside, 1], minlength=SIZE + 1) * 1.0 for b, inside in in_band.items()}
    logliks = {model: table.loglik(*held.T) for model, table in tables.items()}
    sizes = {band: int(inside.sum()) for band, inside in in_band.items()}
    return Judged(cell.name, len(held), logliks, told, sizes, dynamics)


def histogram(after_N: Positions) -> PairTable:
    """The model that predicts the same distribution of counts after, whatever the count before."""
    share_K = np.bincount(after_N, minlength=SIZE + 1) / len(after_N)
    mixed_K = (1 - pairs.BLUR) * share_K + pairs.BLUR / (SIZE + 1)
    return PairTable(np.broadcast_to(mixed_K, (SIZE + 1, SIZE + 1)))


def fit_table(found: Sequence[Judged]) -> TextTable:
    """Mean log-likelihoods, and in how many cells the simulated learner is best; one row per method, one for all."""
    groups = {method: [each for each in found if each.name[3] == method] for method in methods(found)}
    rows = []
    for name, cells in {**groups, "all": list(found)}.items():
        weights = np.array([cell.pairs for cell in cells])
        means = [np.average([cell.logliks[model] for cell in cells], weights=weights) for model in MODELS]
        wins = sum(cell.logliks["simulated learner"] >= max(cell.logliks[m] for m in MODELS) for cell in cells)
        texts = [f"{mean:.3f}" for mean in means]
        rows.append((name, str(len(cells)), f"{weights.sum():,}", *texts, f"{wins} of {len(cells)}"))
    caption = (
        "Log-likelihood of a held-out pair's count after training, given the count before; nats, mean over pairs, more "
        f"is better. Each cell fitted on its other seeds. A share of {pairs.BLUR:g} of every prediction is uniform. "
        "Histogram: of the counts after in the fitted seeds, whatever the count before. Best: cells in which the "
        "simulated learner has the highest. Data: remax-rl 0.1.1 (Apache-2.0)."
    )
    columns = ("method", "cells", "pairs", *MODELS, "simulated best")
    return TextTable("Pass counts after training, held-out seeds", columns, tuple(rows), caption)


def fate_table(found: Sequence[Judged]) -> TextTable:
    """Shares of problems that come alive, fall to 0 or rise to 32: as measured, and as predicted by each model."""
    rows = []
    for method in methods(found):
        cells = [each for each in found if each.name[3] == method]
        for model in ("measured", *MODELS):
            dead_K = sum_of(cells, model, ["0 before"])
            alive_K = sum_of(cells, model, ["1 to 8", "9 to 32"])
            fates = (1 - dead_K[0] / dead_K.sum(), alive_K[0] / alive_K.sum(), alive_K[-1] / alive_K.sum())
            rows.append((f"{method}: {model}", *(f"{100 * fate:.0f} %" for fate in fates)))
    columns = ("method", "dead that come alive", "alive that fall to 0", "alive that rise to 32")
    caption = "Held-out pairs of all cells together. Dead: 0 of 32 before; alive: at least 1."
    return TextTable("What becomes of problems", columns, tuple(rows), caption)


def methods(found: Sequence[Judged]) -> list[str]:
    return list(dict.fromkeys(each.name[3] for each in found))


def sum_of(cells: Sequence[Judged], model: str, bands: Sequence[str]) -> Floats:
    """Expected number of pairs with each count after, over some cells and bands, (SIZE + 1,)."""
    return np.asarray(np.sum([cell.after[model][band] for cell in cells for band in bands], axis=0))


def figure(found: Sequence[Judged], method: str) -> "Figure":
    """The distribution of counts after, as measured and as predicted, in one panel per band of counts before."""
    import matplotlib.pyplot as plt

    from halfway.experiments.report.figures.style import MUTED, PALETTE, STYLE

    cells = [each for each in found if each.name[3] == method]
    with plt.rc_context(STYLE):
        drawn, axes = plt.subplots(1, len(BANDS), figsize=(10.5, 3.2), sharey=True)
        for band, ax in zip(BANDS, axes, strict=True):
            counts = np.arange(SIZE + 1)
            ax.bar(counts, shares(cells, "measured", band), color=MUTED, label="measured")
            for i, model in enumerate(MODELS[:3]):
                ax.plot(counts, shares(cells, model, band), color=PALETTE[i], label=model)
            ax.set_title(f"{band} of {SIZE}" if "before" not in band else band)
            ax.set_xlabel(f"passed of {SIZE} after training")
            ax.set_yscale("log")
            ax.set_ylim(1e-3, 1)
        axes[0].set_ylabel("share of problems")
        handles, names = axes[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside upper center", ncol=len(names))
        drawn.set_layout_engine("constrained")
    return drawn


def shares(cells: Sequence[Judged], model: str, band: str) -> Floats:
    counts_K = sum_of(cells, model, [band])
    return np.asarray(counts_K / max(counts_K.sum(), 1e-12))


@script
def main() -> int:
    """Fit and judge all cells, print the tables, and write tables, figure and numbers."""
    parser = script_parser(__doc__)
    parser.add_argument("--methods", nargs="+", help="only these; default: all")
    parser.add_argument("--tries", type=int, default=40, help="of the search for each cell's dynamics")
    parser.add_argument("--out", type=Path, default=Path("runs/pass_count_pairs"))
    arguments = parser.parse_args()
    cells = [cell for cell in load() if not arguments.methods or cell.name[3] in arguments.methods]
    found = [judged for cell in cells if (judged := judge(cell, arguments.tries)) is not None]
    if not found:
        raise UserError("no cell has enough seeds; name methods that are in the data")
    tables = (fit_table(found), fate_table(found))
    for table in tables:
        Console(width=140).print(table.rich())
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "pass_count_pairs.md", "\n".join(table.markdown() for table in tables))
    numbers = [
        {"cell": each.name, "pairs": each.pairs, "logliks": dict(each.logliks), "dynamics": asdict(each.dynamics)}
        for each in found
    ]
    write_text(arguments.out / "pass_count_pairs.json", json.dumps(numbers, indent=1) + "\n")
    method = "grpo" if "grpo" in methods(found) else methods(found)[0]
    figure(found, method).savefig(arguments.out / "pass_count_pairs.png", dpi=150)
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
