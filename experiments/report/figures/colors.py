"""Colours that all figures share."""

from collections.abc import Sequence

import numpy as np

from halfway.curriculum.signals import NEAR_HALF
from halfway.experiments.report.records import Comparison

# Okabe and Ito's palette, distinguishable with every common form of colour blindness. Its yellow is left out, since it
# is too pale for lines; the last three colours are additions for comparisons of many arms.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31", "#882255", "#999933")
INK, MUTED, GRID = "#1f2933", "#66717e", "#e4e7eb"


def arm_colors(comparison: Comparison) -> dict[str, str]:
    """One colour per arm, the same in every figure."""
    return {arm: PALETTE[i % len(PALETTE)] for i, arm in enumerate(comparison.runs)}


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
    """`count` colours evenly spaced along a ramp through the stops; its middle for a single one."""
    places = np.linspace(0, 1, count) if count > 1 else np.full(count, 0.5)
    ends_RC = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops])
    mixed_RC = [np.interp(places, np.linspace(0, 1, len(stops)), ends_R) for ends_R in ends_RC.T]
    return ["#" + "".join(f"{round(part):02x}" for part in color) for color in np.transpose(mixed_RC)]
