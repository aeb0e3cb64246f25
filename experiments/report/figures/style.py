"""The style of figures that Matplotlib draws: those of results and papers."""

from typing import Any

from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator

from halfway.experiments.report.figures.colors import GRID, INK, MUTED, PALETTE

PAGE_WIDTH = 12.5
MOST_COLUMNS = 8  # in a legend
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
    "text.parse_math": False,  # names may contain $
    "svg.fonttype": "none",
    "svg.hashsalt": "halfway",
}


def grid(rows: int, columns: int, height: float, sharey: bool = False) -> tuple[Figure, list[list[Axes]]]:
    """A figure as wide as the page, with `rows` x `columns` panels; `height` is the mean height of a row in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.06, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=(PAGE_WIDTH, height * rows), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    return figure, [list(row) for row in axes]


def legend_above(figure: Figure, ax: Axes) -> None:
    """Add a legend of a panel's labelled artists above all panels, in as many columns as fit the figure's width."""
    handles = ax.get_legend_handles_labels()[0]
    for columns in range(min(MOST_COLUMNS, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, loc="outside upper left", ncols=columns, alignment="left")
        if columns == 1 or legend.get_window_extent().width <= 0.94 * figure.bbox.width:
            return
        legend.remove()


def thousands(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlim(left=0)
