"""Draws the figures of a study."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from halfway.experiments.report.figures.colors import PALETTE
from halfway.experiments.report.figures.style import STYLE
from halfway.trainers.propel.probes.sweep import Cell

CURVES = {
    "utility": "useful",
    "too_hard": "too hard",
    "top_topic": "commonest topic",
    "distinct_3": "Distinct-3",
}


def heat_map(cells: Sequence[Cell], chosen: Cell, path: Path) -> None:
    """Balanced accuracy on validation rows by layer and pooling, one panel per head and balancing.

    The chosen cell is framed.
    """
    layers = sorted({cell.layer for cell in cells})
    poolings = list(dict.fromkeys(cell.pooling for cell in cells))
    panels = list(dict.fromkeys((cell.head, cell.balance) for cell in cells))
    accuracy = {cell.key: cell.validation.balanced_accuracy for cell in cells}
    low, high = min(accuracy.values()), max(accuracy.values())
    size = (1.6 + max(2.2, 0.62 * len(poolings) + 0.6) * len(panels), 1.9 + 0.36 * len(layers))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (head, balance) in zip(axes, panels, strict=True):
        values = np.asarray([[accuracy.get((x, y, head, balance), np.nan) for y in poolings] for x in layers])
        image = axis.imshow(values, vmin=low, vmax=high, cmap="viridis", aspect="auto", origin="lower")
        axis.set_title(f"{head}, {balance}", fontsize=9)
        axis.set_xticks(range(len(poolings)), poolings, rotation=40, ha="right", fontsize=8)
        axis.set_yticks(range(len(layers)), [str(layer) for layer in layers], fontsize=8)
        for (row, column), value in np.ndenumerate(values):
            shade = "black" if value > (low + high) / 2 else "white"
            axis.text(column, row, f"{value:.2f}".lstrip("0"), ha="center", va="center", fontsize=7, color=shade)
        if (head, balance) == (chosen.head, chosen.balance):
            corner = (poolings.index(chosen.pooling) - 0.5, layers.index(chosen.layer) - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="red", linewidth=2))
    axes[0].set_ylabel("layer")
    figure.colorbar(image, ax=list(axes), label="balanced accuracy, validation")
    figure.savefig(path, dpi=150)


def curves(curves_of: Mapping[str, Any], path: Path) -> None:
    """The quality of the texts of each arm's checkpoints by step, as means over seeds with 95 % intervals."""
    base = curves_of.get("base", {})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12.5, 3.3), layout="constrained")
        axes = figure.subplots(1, len(CURVES))
        for axis, (name, title) in zip(axes, CURVES.items(), strict=True):
            trained = {arm: points for arm, points in curves_of.items() if arm != "base"}
            for (arm, points), color in zip(trained.items(), PALETTE, strict=False):
                by_step = {int(step): values[name] for step, values in {**base, **points}.items()}
                steps = sorted(by_step)
                found = [by_step[step] for step in steps]
                means = [each.value for each in found]
                errors = [0.0 if each.high is None else each.high - each.value for each in found]
                axis.errorbar(steps, means, errors, marker="o", markersize=4, capsize=2, color=color, label=arm)
            axis.set(title=title, xlabel="learner step")
            axis.set_ylim(0, 1.03 * axis.get_ylim()[1])
            if name != "distinct_3":
                axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(PALETTE))
        figure.savefig(path, dpi=130)
