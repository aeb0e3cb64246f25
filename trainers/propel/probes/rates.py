"""A probe of the pass rate itself. PROPEL's probe only tells what lies in a band, not on which side the rest lies."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr

from halfway.trainers.propel.probes.activations import Features
from halfway.trainers.propel.probes.heads import Probe
from halfway.trainers.propel.probes.probe_options import HeadKind, ProbeTraining
from halfway.trainers.propel.probes.scores import Floats
from halfway.trainers.propel.probes.splits import Rows, RowSplit
from halfway.trainers.propel.probes.training import fit


@dataclass(frozen=True, slots=True)
class RateScores:
    """Figures of a rate probe on rows that took no part in its training.

    Attributes:
        rows: their number.
        spearman: rank correlation of guess and observed pass rate; NaN if either never changes.
        error: mean absolute difference between them.
        error_of_mean: the same for a constant guess, the mean rate of the training rows.
        sampling_error: the expected error if the guesses were the true rates, which is due to the small number of
            trials.
    """

    rows: int
    spearman: float
    error: float
    error_of_mean: float
    sampling_error: float


def fit_rates(
    features_ND: Features,
    passed_N: Rows,
    attempts: int,
    split: RowSplit,
    head: HeadKind,
    training: ProbeTraining,
    seed: int,
) -> Probe:
    """Fit a probe whose logit is the log-odds of a pass, by the likelihood of the observed counts.

    Every row counts as its trials: `attempts` rows of which `passed_N` are positive. A batch holds as many tasks as for
    any other probe.
    """
    trials_NK = np.arange(attempts) < passed_N[:, None]
    labels_M, tasks_M = trials_NK.ravel(), np.repeat(np.arange(len(passed_N)), attempts)
    own = RowSplit(*(_trials(rows, attempts) for rows in split))
    options = replace(training, batch=training.batch * attempts, stop_on="loss")
    return fit(features_ND[tasks_M], labels_M, own, head, options, weighted=False, seed=seed, equal=False)


def score_rates(logits_N: Floats, rates_N: Floats, attempts: int, split: RowSplit, draws: int = 200) -> RateScores:
    """Score guesses on the split's test rows."""
    guesses, rates = expit(logits_N[split.test]), rates_N[split.test]
    again = np.random.default_rng(0).binomial(attempts, guesses, (draws, len(guesses))) / attempts
    varied = np.ptp(guesses) > 0 and np.ptp(rates) > 0
    return RateScores(
        rows=len(rates),
        spearman=float(spearmanr(guesses, rates).statistic) if varied else float("nan"),
        error=float(np.abs(guesses - rates).mean()),
        error_of_mean=float(np.abs(rates_N[split.train].mean() - rates).mean()),
        sampling_error=float(np.abs(again - guesses).mean()),
    )


def _trials(rows: Rows, attempts: int) -> Rows:
    trials: Rows = (rows[:, None] * attempts + np.arange(attempts)).ravel()
    return trials
