"""Colours, sizes and axes that all figures share."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Literal

import numpy as np
from cycler import cycler
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from halfway.curriculum.signals import NEAR_HALF
from halfway.experiments.report.records import Comparison

# Okabe and Ito's palette, whose colours can be told apart with every common form of colour blindness. Its yellow is
# left out, since it is too pale for lines; the last three colours are additions for comparisons of many arms.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31", "#882255", "#999933")
PAGE_WIDTH = 12.5
MOST_COLUMNS = 8  # in a legend
Share = Literal["none", "all", "row", "col"]
INK, MUTED, GRID = "#1f2933", "#66717e", "#e4e7eb"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#9aa5b1",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "axes.titlecolor": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a name with $ in it is a name
    "svg.fonttype": "none",
    "svg.hashsalt": "halfway",
}


class Drawing(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        with rc_context(STYLE):
            self.savefig(png, format="png")
        return png.getvalue()


def arm_colors(comparison: Comparison) -> dict[str, str]:
    """One colour per arm, the same in every figure."""
    return {arm: PALETTE[i % len(PALETTE)] for i, arm in enumerate(comparison.runs)}


def grid(
    rows: int,
    columns: int,
    height: float,
    sharey: bool | Share = False,
    sharex: bool | Share = False,
    height_ratios: Sequence[float] | None = None,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure as wide as the page, with `rows` x `columns` panels; `height` is the mean height of a row in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.06, wspace=0.02, hspace=0.03)
    figure = Drawing(figsize=(PAGE_WIDTH, height * rows), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey, sharex=sharex, height_ratios=height_ratios)
    return figure, [list(row) for row in axes]


def panels(
    count: int, columns: int, height: float, sharey: bool = False, sharex: bool = False
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with at least `count` panels in so many columns; those that are left over are hidden."""
    figure, axes = grid(-(-count // columns), columns, height, sharey, sharex)
    for ax in flat(axes)[count:]:
        ax.set_axis_off()
    return figure, axes


def bars(names: Sequence[str], xlabel: str) -> tuple[Figure, Axes]:
    """A panel for one horizontal bar per name, at 0, 1, ... from the top."""
    figure, axes = grid(1, 1, height=1.2 + 0.5 * len(names))
    ax = axes[0][0]
    ax.set_yticks(range(len(names)), names, color=INK)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)
    return figure, ax


def flat(axes: Sequence[Sequence[Axes]]) -> list[Axes]:
    return [ax for row in axes for ax in row]


def legend_above(
    figure: Figure,
    ax: Axes | None = None,
    title: str | None = None,
    handles: Sequence[Artist] | None = None,
) -> None:
    """Add a legend above all panels, in as many columns as fit the figure's width.

    Args:
        ax: panel whose labelled artists the legend lists, if `handles` is None.
        handles: the artists to list.
    """
    if handles is None:
        handles = ax.get_legend_handles_labels()[0] if ax else []
    if not handles:
        return
    for columns in range(min(MOST_COLUMNS, len(handles)), 0, -1):
        legend = figure.legend(
            handles=list(handles), loc="outside upper left", ncols=columns, title=title, alignment="left"
        )
        if columns == 1 or legend.get_window_extent().width <= 0.94 * figure.bbox.width:
            return
        legend.remove()


def thousands(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlim(left=0)


def step_axis(ax: Axes) -> None:
    """Label the horizontal axis with learner steps, at whole numbers only, even in short runs."""
    ax.set_xlabel("learner step")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def percent_axis(ax: Axes) -> None:
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def count_colors(size: int) -> list[str]:
    """Colours for k = 0..N: grey at both ends, orange below 3/8, green in 3/8..5/8, blue above."""
    inner = np.arange(1, size)
    below, above = inner[inner / size < NEAR_HALF[0]], inner[inner / size > NEAR_HALF[1]]
    return [
        "#52606d",
        *shades(("#b93c0a", "#f5b26b"), len(below)),
        *shades(("#8fd0a8", "#00805c", "#8fd0a8"), size - 1 - len(below) - len(above)),
        *shades(("#86c5ea", "#0b5d99"), len(above)),
        "#cbd2d9",
    ]


def shades(stops: Sequence[str], count: int) -> list[str]:
    ramp = LinearSegmentedColormap.from_list("shades", stops)
    return [to_hex(ramp(x)) for x in (np.linspace(0, 1, count) if count > 1 else [0.5])][:count]
