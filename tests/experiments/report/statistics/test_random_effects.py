"""Effects over regimes: equal ones by hand, a textbook's trials, and how often nothing is called something."""

import numpy as np
import pytest

from halfway.experiments.report.statistics.crossed import CrossedMean
from halfway.experiments.report.statistics.random_effects import over_regimes


def test_regimes_that_agree_have_the_error_of_a_weighted_mean() -> None:
    found = over_regimes([CrossedMean(0.1, 0.03, 20), CrossedMean(0.1, 0.04, 20)])
    weights = np.array([1 / 0.03**2, 1 / 0.04**2])
    assert (found.mean, found.stderr, found.dof) == pytest.approx((0.1, weights.sum() ** -0.5, 1))


def test_regimes_that_differ_widen_the_error() -> None:
    # With equal errors the mean is plain, and so is its error over regimes: that of a t test over their effects.
    effects = [0.0, 0.1, 0.4]
    found = over_regimes([CrossedMean(effect, 0.01, 20) for effect in effects])
    assert found.mean == pytest.approx(np.mean(effects), abs=1e-6)
    assert found.stderr == pytest.approx(np.std(effects, ddof=1) / 3**0.5, rel=1e-3)


def test_a_single_regime_is_itself() -> None:
    alone = CrossedMean(0.1, 0.03, 20)
    assert over_regimes([alone]) is alone


def test_equal_arms_are_seldom_called_different_though_regimes_differ() -> None:
    generator = np.random.default_rng(5)
    clear = []
    for _ in range(400):
        true = generator.normal(0, 0.03, 5)
        p = over_regimes([CrossedMean(float(generator.normal(mean, 0.02)), 0.02, 24) for mean in true]).p
        clear.append(p is not None and p < 0.05)
    assert np.mean(clear) < 0.08
