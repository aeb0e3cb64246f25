"""Figures of a study."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trainers.probes.sweep import Cell


def heat_map(cells: Sequence[Cell], chosen: Cell, path: Path) -> None:
    """Balanced accuracy on validation rows by layer and pooling, a panel a head and balancing; the choice is framed."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

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
