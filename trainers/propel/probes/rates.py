"""A probe of the pass rate. PROPEL's probe predicts only whether it lies in a band, not on which side it misses."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr

from halfway.trainers.propel.probes.activations import Features
from halfway.trainers.propel.probes.fitting import fit
from halfway.trainers.propel.probes.heads import Probe
from halfway.trainers.propel.probes.probe_options import HeadKind, ProbeTraining
from halfway.trainers.propel.probes.scores import Floats
from halfway.trainers.propel.probes.splits import Rows, RowSplit


@dataclass(frozen=True, slots=True)
class RateScores:
    """Figures of a rate probe on test rows.

    Attributes:
        rows: number of rows.
        spearman: rank correlation of predicted and observed pass rate; NaN if either is constant.
        error: mean absolute difference between them.
        error_of_mean: the same for a constant prediction, the mean rate of the training rows.
        sampling_error: expected error if the predictions were the true rates, from the small number of trials.
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

    Each row becomes its trials: `attempts` rows, `passed_N` of them positive. A batch has as many tasks as for any
    other probe.
    """
    trials_NK = np.arange(attempts) < passed_N[:, None]
    labels_M, tasks_M = trials_NK.ravel(), np.repeat(np.arange(len(passed_N)), attempts)
    own = RowSplit(*(_trials(rows, attempts) for rows in split))
    options = replace(training, batch=training.batch * attempts)
    return fit(features_ND[tasks_M], labels_M, own, head, options, weighted=False, seed=seed, equal=False)


def score_rates(logits_N: Floats, rates_N: Floats, attempts: int, split: RowSplit, draws: int = 200) -> RateScores:
    """Score predictions on the split's test rows."""
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
