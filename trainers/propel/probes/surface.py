"""The baseline of a probe: lookup tables on a task's surface features."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfway.trainers.propel.probes.scores import (
    Floats,
    Scores,
    balanced_accuracy_gain,
    balanced_accuracy_interval,
    score,
)
from halfway.trainers.propel.probes.splits import Labels, RowSplit

BINS = 12


@dataclass(frozen=True)
class Lookup:
    """A table from one surface feature to the share of positives, scored like a probe.

    Attributes:
        feature: name of the feature.
        probe_gain, probe_gain_interval: gain of a probe over this table in balanced accuracy on the same test rows, and
            its 95 % interval.
    """

    feature: str
    validation: Scores
    test: Scores
    test_interval: tuple[float, float]
    probe_gain: float
    probe_gain_interval: tuple[float, float]


def lookups(
    surface: Mapping[str, NDArray[np.str_] | Floats], labels_N: Labels, split: RowSplit, probe_M: Floats
) -> list[Lookup]:
    """Make one table per feature from the training rows; the best on validation rows comes first.

    A number with more than `BINS` values is cut into `BINS` quantiles. A value without training rows gets the average
    share of positives. A row's logit is that of its share, with equal weights for both classes.

    Args:
        probe_M: logits of the probe to compare with, for the test rows.
    """
    found = [_lookup(name, values_N, labels_N, split, probe_M) for name, values_N in surface.items()]
    return sorted(found, key=lambda lookup: -lookup.validation.balanced_accuracy)


def _lookup(
    name: str, values_N: "NDArray[np.str_] | Floats", labels_N: Labels, split: RowSplit, probe_M: Floats
) -> Lookup:
    keys_N = _binned(values_N, split)
    prior = labels_N[split.train].mean()
    logit_of: dict[str, float] = {}
    for key in np.unique(keys_N[split.train]):
        own = labels_N[split.train][keys_N[split.train] == key]
        # One imagined average row keeps the share of a rare value away from 0 and 1.
        share = (own.sum() + prior) / (len(own) + 1)
        logit_of[str(key)] = float(np.log(share / (1 - share)) - np.log(prior / (1 - prior)))
    logits_N = np.asarray([logit_of.get(str(key), 0.0) for key in keys_N])

    def judged(rows: NDArray[np.int64]) -> Scores:
        return score(logits_N[rows], labels_N[rows], labels_N[rows].astype(float))

    interval = balanced_accuracy_interval(logits_N[split.test], labels_N[split.test])
    gain, gain_interval = balanced_accuracy_gain(probe_M, logits_N[split.test], labels_N[split.test])
    return Lookup(name, judged(split.validation), judged(split.test), interval, gain, gain_interval)


def _binned(values_N: "NDArray[np.str_] | Floats", split: RowSplit) -> NDArray[np.str_]:
    if values_N.dtype.kind in "US" or len(np.unique(values_N)) <= BINS:
        return values_N.astype(np.str_)
    edges = np.unique(np.quantile(values_N[split.train].astype(float), np.linspace(0, 1, BINS + 1)[1:-1]))
    binned_N: NDArray[np.str_] = np.digitize(values_N.astype(float), edges).astype(np.str_)
    return binned_N
