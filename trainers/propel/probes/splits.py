"""Splits labelled rows into training, validation and test rows of a probe."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import UserError
from halfway.trainers.propel.probes.probe_options import SplitOptions

DEFAULT_SPLIT = SplitOptions()
LEAST = 3
"""Rows of a class."""

Rows = NDArray[np.int64]
Labels = NDArray[np.bool_]


class RowSplit(NamedTuple):
    """Row numbers of three disjoint parts."""

    train: Rows
    validation: Rows
    test: Rows


def check_labels(labels_N: Labels) -> None:
    """Raise UserError unless both classes have at least `LEAST` rows."""
    positive = int(np.sum(labels_N))
    counts = f"{positive} positive, {len(labels_N) - positive} negative"
    if min(positive, len(labels_N) - positive) < LEAST:
        raise UserError(f"probe: {counts} tasks; label more until each class has at least {LEAST}")


def downsample(labels_N: Labels, seed: int) -> Rows:
    """Choose equally many positive and negative rows, in order; the larger class is thinned at random."""
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(labels_N), np.flatnonzero(~labels_N)]
    size = min(map(len, classes))
    return np.sort(np.concatenate([rng.choice(rows, size, replace=False) for rows in classes]))


def thinned(split: RowSplit, labels_N: Labels, seed: int) -> RowSplit:
    """Thin the training rows of a split to equally many positives and negatives."""
    return split._replace(train=split.train[downsample(labels_N[split.train], seed)])


def random_split(labels_N: Labels, seed: int, options: SplitOptions = DEFAULT_SPLIT) -> RowSplit:
    """Split rows at random, with the same share of positives in each part.

    Raises:
        UserError: if a part lacks a class.
    """
    check_labels(labels_N)
    rng = np.random.default_rng(seed)
    parts: tuple[list[Rows], ...] = ([], [], [])
    for rows in (np.flatnonzero(labels_N), np.flatnonzero(~labels_N)):
        rows = rng.permutation(rows)
        held, tested = (max(1, round(share * len(rows))) for share in (options.validation, options.test))
        for part, chosen in zip(parts, np.split(rows, [len(rows) - held - tested, len(rows) - tested]), strict=True):
            part.append(chosen)
    return RowSplit(*(np.sort(np.concatenate(part)) for part in parts))
