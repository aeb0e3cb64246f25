"""What a page shows under the cursor: the points of labelled lines, and the cells of maps, as they were drawn."""

import json
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from halfway.curriculum.support.extras import clean

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def hover(figure: Figure) -> str:
    """The points and maps of a drawn figure as JSON; places are parts of its width and height, from the upper left."""
    points = [point for ax in figure.axes for point in _points(ax)]
    maps = [found for ax in figure.axes if (found := _map(ax))]
    return json.dumps({"points": points, "maps": maps}, separators=(",", ":")) if points or maps else ""


def _points(ax: Axes) -> list[tuple[float, float, str]]:
    """The marked points of lines that have a label."""
    figure, found = ax.figure, []
    for line in ax.lines:
        label = str(line.get_label())
        if label.startswith("_") or line.get_marker() == "None":
            continue
        data = np.asarray(line.get_xydata(), float)
        places = figure.transFigure.inverted().transform(ax.transData.transform(data))
        for (x, y), (left, bottom) in zip(data.tolist(), places.tolist(), strict=True):
            found.append((round(left, 4), round(1 - bottom, 4), clean(f"{label}: {y:.3f} at {x:,.0f}")))
    return found


def _map(ax: Axes) -> dict[str, Any] | None:
    """The cells of a picture of counts: of each row a text with a digit of base 36 for each cell, "." for none."""
    if not ax.images:
        return None
    [image] = ax.images
    counts = np.ma.filled(np.ma.masked_invalid(np.asarray(image.get_array(), float)), -1).astype(int)
    size = image.get_cmap().N - 1
    if size >= len(DIGITS):
        return None
    box, name_of = ax.get_position(), ax.yaxis.get_major_formatter()
    return {
        "left": round(box.x0, 4),
        "top": round(1 - box.y1, 4),
        "width": round(box.width, 4),
        "height": round(box.height, 4),
        "rows": [clean(name_of(row)) for row in range(len(counts))],
        "cells": ["".join("." if count < 0 else DIGITS[count] for count in row) for row in counts.tolist()],
        "size": size,
    }
