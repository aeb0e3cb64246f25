"""Pass counts before and after training: limits in closed form, and a simulated cell that is recognised."""

from math import comb

import numpy as np
import pytest

from halfway.curriculum.simulation import pairs
from halfway.curriculum.simulation.fitting import GRID
from halfway.curriculum.simulation.skills import Dynamics, logistic

SIZE = 8
SHARE = np.exp(-0.5 * (GRID + 1) ** 2)
SHARE /= SHARE.sum()


def test_binomials_are_binomial():
    found = pairs.binomials(np.array([-0.7]), SIZE)[0]
    p = float(logistic(-0.7))
    assert found == pytest.approx([comb(SIZE, k) * p**k * (1 - p) ** (SIZE - k) for k in range(SIZE + 1)])


def test_a_point_of_ease_is_found_again():
    counts = np.random.default_rng(0).binomial(32, 0.3, 4000)
    share = pairs.ease_distribution(counts, 32)
    assert (logistic(GRID) * share).sum() == pytest.approx(0.3, abs=0.01)
    assert share[np.abs(logistic(GRID) - 0.3) < 0.12].sum() > 0.9


def test_a_learner_that_stands_still_changes_nothing():
    found = pairs.trained(SHARE, SIZE, Dynamics(rate=0.0)).after_KK
    assert found == pytest.approx(pairs.still(SHARE, SIZE).after_KK, abs=0.03)
    assert found.sum(1) == pytest.approx(np.ones(SIZE + 1))


def test_one_skill_without_noise_is_the_uniform_shift():
    """40 updates of length .05 add 2 to every log-odds, as long as the gradient keeps its size: memory 0."""
    one = Dynamics(rate=0.05, common=1.0, private=0.0, noise=0.0, interference=0.0, memory=0.0)
    found = pairs.trained(SHARE, SIZE, one).after_KK
    assert found == pytest.approx(pairs.shifted(SHARE, SIZE, 2.0).after_KK, abs=0.05)


def test_the_shift_that_made_the_pairs_is_found():
    rng = np.random.default_rng(0)
    odds = rng.choice(GRID, 3000, p=SHARE)
    before, after = rng.binomial(32, logistic(odds)), rng.binomial(32, logistic(odds + 1.5))
    assert pairs.fit_shift(SHARE, 32, before, after) == pytest.approx(1.5, abs=0.3)


def test_pairs_of_a_polarising_learner_are_told_from_a_shift():
    """The search beats both simpler models on other pairs of the same learner."""
    truth = Dynamics(rate=0.25, common=0.2, private=0.5, noise=10.0, interference=60.0)
    table = pairs.trained(SHARE, 32, truth, seed=5).after_KK
    rng = np.random.default_rng(1)
    before = rng.binomial(32, logistic(rng.choice(GRID, 1200, p=SHARE)))
    after = np.array([rng.choice(33, p=table[k] / table[k].sum()) for k in before])
    fitted = pairs.fit_dynamics(SHARE, 32, before[:600], after[:600], tries=16)
    held = before[600:], after[600:]
    growth = pairs.fit_shift(SHARE, 32, before[:600], after[:600])
    ours = pairs.trained(SHARE, 32, fitted, seed=7).loglik(*held)
    assert ours > pairs.shifted(SHARE, 32, growth).loglik(*held) + 0.2
    assert ours > pairs.still(SHARE, 32).loglik(*held) + 0.2
