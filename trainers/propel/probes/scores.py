"""Quality of a probe on test rows: classification, ranking and calibration."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import spearmanr

from halfway.curriculum.support.extras import load_extra
from halfway.trainers.propel.probes.splits import Labels, downsample

Floats = NDArray[np.float64]
ECE_BINS = 15
LOG_TEMPERATURES = (-4.0, 4.0)
DRAWS, TAILS = 10_000, ((1 - 0.95) / 2, (1 + 0.95) / 2)
"""Resamples of a bootstrap, and the ends of its interval."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of one probe on one set of rows; a logit above 0 predicts a positive.

    Attributes:
        rows, positives: numbers of rows and of positives.
        accuracy, balanced_accuracy, f1, auc: as defined by scikit-learn.
        ece: expected calibration error, 15 bins of equal width, norm 1, on equally many rows of both classes: a probe
            trained on balanced classes does not know how rare positives are.
        spearman: rank correlation of the logit with the solver's pass rate; NaN if either is constant.
    """

    rows: int
    positives: int
    accuracy: float
    balanced_accuracy: float
    f1: float
    auc: float
    ece: float
    spearman: float


def score(logits_N: Floats, labels_N: Labels, rates_N: Floats, seed: int = 0) -> Scores:
    """Score logits against labels and pass rates. Both classes must be present.

    Args:
        seed: chooses the rows of the larger class that the calibration error leaves out.
    """
    balanced_M = downsample(labels_N, seed)
    metrics = load_extra("sklearn.metrics", "probe scores", "propel")
    calls_N = logits_N > 0
    varied = np.ptp(logits_N) > 0 and np.ptp(rates_N) > 0
    return Scores(
        rows=len(labels_N),
        positives=int(labels_N.sum()),
        accuracy=float(metrics.accuracy_score(labels_N, calls_N)),
        balanced_accuracy=float(metrics.balanced_accuracy_score(labels_N, calls_N)),
        f1=float(metrics.f1_score(labels_N, calls_N, zero_division=0.0)),
        auc=float(metrics.roc_auc_score(labels_N, logits_N)),
        ece=calibration_error(logits_N[balanced_M], labels_N[balanced_M]),
        spearman=float(spearmanr(logits_N, rates_N).statistic) if varied else float("nan"),
    )


def calibration_error(logits_N: Floats, labels_N: Labels) -> float:
    """Expected calibration error of the probabilities of a positive (Guo et al. 2017, equation 3), in 0..1.

    The mean over the rows of |share of positives - mean probability| in each row's bin, of 15 bins of equal width.
    """
    probabilities_N = expit(logits_N)
    bins_N = np.minimum((probabilities_N * ECE_BINS).astype(int), ECE_BINS - 1)
    gaps_B = np.bincount(bins_N, labels_N - probabilities_N, minlength=ECE_BINS)
    return float(np.abs(gaps_B).sum() / len(logits_N))


def negative_log_likelihood(logits_N: Floats, labels_N: Labels, equal: bool = True) -> float:
    """Mean over the rows, in nats; `equal`: mean of the two classes' means. Both classes must be present."""
    losses_N = np.logaddexp(0, np.where(labels_N, -logits_N, logits_N))
    return float((losses_N[labels_N].mean() + losses_N[~labels_N].mean()) / 2 if equal else losses_N.mean())


def best_temperature(logits_N: Floats, labels_N: Labels, equal: bool = True) -> float:
    """Find the divisor of the logits, from e^-4 to e^4, that maximises the likelihood of the labels.

    Args:
        equal: whether both classes weigh the same, as in the calibration error. Otherwise, on unbalanced rows, the
            divisor would also correct for the rarity of positives.
    """
    found = minimize_scalar(
        lambda log_t: negative_log_likelihood(logits_N / np.exp(log_t), labels_N, equal),
        bounds=LOG_TEMPERATURES,
        method="bounded",
    )
    return float(np.exp(found.x))


def balanced_accuracy_interval(
    logits_N: Floats, labels_N: Labels, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """95 % percentile bootstrap of the balanced accuracy, rows resampled within each class."""
    rng = np.random.default_rng(seed)
    right_N = (logits_N > 0) == labels_N
    # The number of right rows in a resample of one class is binomial.
    shares = [
        rng.binomial(len(rows), rows.mean(), draws) / len(rows) for rows in (right_N[labels_N], right_N[~labels_N])
    ]
    low, high = np.quantile(np.mean(shares, axis=0), TAILS)
    return float(low), float(high)


def balanced_accuracy_gain(logits_N: Floats, others_N: Floats, labels_N: Labels) -> tuple[float, tuple[float, float]]:
    """Gain of `logits_N` over `others_N` in balanced accuracy, with its 95 % percentile bootstrap interval.

    Paired: both are scored on the same resampled rows, drawn within each class.
    """
    rng = np.random.default_rng(0)
    # 1 where only the first is right, -1 where only the second is.
    better_N = ((logits_N > 0) == labels_N).astype(int) - ((others_N > 0) == labels_N)
    gains = []
    for rows in (better_N[labels_N], better_N[~labels_N]):
        counts = rng.multinomial(len(rows), np.bincount(rows + 1, minlength=3) / len(rows), DRAWS)
        gains.append((counts[:, 2] - counts[:, 0]) / len(rows))
    low, high = np.quantile(np.mean(gains, axis=0), TAILS)
    gain = (better_N[labels_N].mean() + better_N[~labels_N].mean()) / 2
    return float(gain), (float(low), float(high))
