"""Which rows train a probe, stop its training, and judge it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.extras import load_extra

Rows = NDArray[np.int64]
Labels = NDArray[np.bool_]


class RowSplit(NamedTuple):
    """Row numbers. No row, and with folds no group, is in two of them."""

    train: Rows
    validation: Rows
    test: Rows


def check_labels(labels_N: Labels, least: int = 3) -> None:
    """Raise UserError unless both classes have at least `least` rows."""
    positive = int(np.sum(labels_N))
    counts = f"{positive} positive, {len(labels_N) - positive} negative"
    if min(positive, len(labels_N) - positive) < least:
        raise UserError(f"probe: {counts} tasks; label more until each class has at least {least}")


def downsample(labels_N: Labels, seed: int) -> Rows:
    """Rows of equally many positives and negatives, in order; the larger class is thinned at random."""
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(labels_N), np.flatnonzero(~labels_N)]
    size = min(map(len, classes))
    return np.sort(np.concatenate([rng.choice(rows, size, replace=False) for rows in classes]))


def random_split(labels_N: Labels, seed: int, validation: float = 0.1, test: float = 0.1) -> RowSplit:
    """A random split with the same share of positives in each part.

    Raises:
        UserError: if a part would lack a class.
    """
    require(
        validation > 0 and test > 0 and validation + test < 1, "split", (validation, test), "give two shares below 1"
    )
    check_labels(labels_N)
    rng = np.random.default_rng(seed)
    parts: tuple[list[Rows], ...] = ([], [], [])
    for rows in (np.flatnonzero(labels_N), np.flatnonzero(~labels_N)):
        rows = rng.permutation(rows)
        held, tested = (max(1, round(share * len(rows))) for share in (validation, test))
        for part, chosen in zip(parts, np.split(rows, [len(rows) - held - tested, len(rows) - tested]), strict=True):
            part.append(chosen)
    return RowSplit(*(np.sort(np.concatenate(part)) for part in parts))


def group_folds(labels_N: Labels, groups_N: NDArray[np.str_], folds: int, seed: int) -> list[RowSplit]:
    """One split per fold: whole groups judge it, the groups of the next fold stop its training, the others train.

    PROPEL stops on the judging fold itself, which flatters the figures; here the two are kept apart.

    Raises:
        UserError: if there are fewer groups than folds, or a fold lacks a class.
    """
    require(folds >= 3, "split.folds", folds, "give at least 3")
    check_labels(labels_N, folds)
    groups = len(np.unique(groups_N))
    require(groups >= folds, "split.folds", folds, f"there are {groups} groups; give no more folds than that")
    selection = load_extra("sklearn.model_selection", "cross-group folds", "propel")
    splitter = selection.StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    parts = [part for _, part in splitter.split(np.zeros(len(labels_N)), labels_N, groups_N)]
    for number, part in enumerate(parts):
        if len(np.unique(labels_N[part])) < 2:
            raise UserError(f"split.folds: fold {number} of {folds} has one class only; give fewer folds")
    splits = []
    for i in range(folds):
        held = (i + 1) % folds
        others = [part for j, part in enumerate(parts) if j not in (i, held)]
        splits.append(RowSplit(np.sort(np.concatenate(others)), parts[held], parts[i]))
    return splits
