"""The style of figures that Matplotlib draws: those of results and papers."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Literal

from cycler import cycler
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator

from halfway.experiments.report.figures.colors import GRID as GRID
from halfway.experiments.report.figures.colors import INK as INK
from halfway.experiments.report.figures.colors import MUTED as MUTED
from halfway.experiments.report.figures.colors import PALETTE as PALETTE

PAGE_WIDTH = 12.5
MOST_COLUMNS = 8  # in a legend
Share = Literal["none", "all", "row", "col"]
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


class Drawing(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        with rc_context(STYLE):
            self.savefig(png, format="png")
        return png.getvalue()


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
