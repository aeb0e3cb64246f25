"""From a log to dynamics: the path of the updates, the filter, and parameters that come back from simulated logs."""

from dataclasses import replace

import numpy as np
import pytest

from halfway.curriculum.simulation import fitting
from halfway.curriculum.simulation.evidence import Evidence, Paths, Visits, paths, updates_of, visits
from halfway.curriculum.simulation.skills import Course, Dynamics, Lessons, SkillLearner, bumps, lessons, logistic

TRUTH = Dynamics(rate=0.12, common=0.4, private=0.2, noise=10.0, interference=0.3, forget=0.005)


def simulated(dynamics: Dynamics, problems: int, steps: int, groups: int, seed: int) -> tuple[Evidence, SkillLearner]:
    """The log of uniform draws, and the learner at its end."""
    rng = np.random.default_rng(seed)
    ease = np.clip(rng.normal(-1, 2.5, problems), -11, 11)
    loadings = bumps((np.argsort(np.argsort(ease)) + 0.5) / problems, 8)
    learner = SkillLearner(Course.of(ease, loadings), dynamics, seed)
    rows = []
    for step in range(steps):
        where = rng.choice(problems, groups, replace=False)
        passed = rng.binomial(8, learner.rates(where[None])[0])
        rows += [(i, step, k, 8) for i, k in zip(where, passed, strict=True)]
        mixed = (passed > 0) & (passed < 8)
        if mixed.any():
            told = lessons(passed[mixed], np.full(mixed.sum(), 8))
            learner.update(where[mixed][None], Lessons(told.signal[None], told.energy[None], told.tokens[None]))
    return Evidence.of_counts(*np.array(rows, np.int64).reshape(-1, 4).T), learner


def test_the_path_of_a_log_is_what_the_learner_did():
    """Without interference nothing about it is random."""
    quiet = Dynamics(rate=0.12, common=0.4, private=0.2, noise=10.0, interference=0.0, forget=0.02)
    evidence, learner = simulated(quiet, problems=40, steps=30, groups=8, seed=0)
    rows = np.unique(evidence.problem_G)
    laid = visits(evidence, learner.course.loadings_RPK[0])
    moved = learner.logits()[0] - learner.course.ease_RP[0]
    assert paths(laid, quiet).gained_P == pytest.approx(moved[rows])
    assert learner.updates == len(laid.common_T)


def test_at_the_best_pace_harm_takes_half_of_the_gain():
    """And a learner with that harm ends where the path does."""
    quiet = Dynamics(rate=0.12, common=0.4, private=0.2, noise=10.0, interference=0.0, forget=0.02)
    evidence, learner = simulated(quiet, problems=40, steps=30, groups=8, seed=0)
    laid = visits(evidence, learner.course.loadings_RPK[0])
    without = paths(laid, quiet).gained_P.mean()
    for pace in (0.5, 1.0, 1.4):
        path = paths(replace(laid, pace=pace), quiet)
        assert path.gained_P.mean() == pytest.approx((1 - pace / 2) * without)
        factor = np.linspace(0.1, 3, 200)  # on the learning rate: gain goes with it, harm with its square
        net = factor * without - factor**2 * pace / 2 * without
        assert factor[net.argmax()] == pytest.approx(1 / pace, abs=0.02)
        _, harmed = simulated(replace(quiet, harm=path.harm), problems=40, steps=0, groups=8, seed=0)
        _follow(harmed, evidence)
        assert (harmed.logits() - harmed.course.ease_RP)[0, laid.rows_P] == pytest.approx(path.gained_P)


def _follow(learner: SkillLearner, evidence: Evidence) -> None:
    for step in range(evidence.steps):
        now = evidence.where((evidence.step_G == step) & evidence.trained_G)
        if len(now.step_G):
            told = lessons(now.passed_G, now.size_G)
            learner.update(now.problem_G[None], Lessons(told.signal[None], told.energy[None], told.tokens[None]))


def test_updates_of_a_step():
    assert [updates_of(groups, 8) for groups in (0, 1, 8, 11, 12, 16)] == [0, 1, 1, 1, 2, 2]
    assert updates_of(12, 0) == 1


def _visits(passed: list[int], size: list[int]) -> Visits:
    count = len(passed)
    rows = [np.array([values], np.float64) for values in (passed, size)]
    zeros = np.zeros((1, count), np.int64)
    none = np.zeros(0)
    return Visits(
        np.zeros(1, np.int64), np.ones((1, 1)), *rows, zeros, zeros * 0.0, zeros, none, none[:, None], none, none
    )


def test_messages_without_noise_are_binomial():
    laid = _visits([3, 5], [8, 8])
    path = Paths(np.array([[0.0, 1.5]]), np.zeros((1, 2)), np.zeros(1), 0.0)
    message, scale = fitting.start_messages(laid, path)
    p, q = logistic(fitting.GRID), logistic(fitting.GRID + 1.5)
    assert np.log(message[0]) + scale[0] == pytest.approx(np.log(p**3 * (1 - p) ** 5 * q**5 * (1 - q) ** 3))


def test_messages_with_noise_are_an_integral_over_the_walk():
    laid = _visits([2, 7], [8, 8])
    message, scale = fitting.start_messages(laid, Paths(np.zeros((1, 2)), np.array([[0.0, 2.0]]), np.zeros(1), 2.0))
    centre = len(fitting.GRID) // 2  # ease 0
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    p, q = 0.5, logistic(np.sqrt(2.0) * nodes)
    exact = p**8 * (weights * q**7 * (1 - q)).sum() / np.sqrt(2 * np.pi)
    assert np.exp(np.log(message[0, centre]) + scale[0]) == pytest.approx(exact, rel=0.02)


def test_diffusion_has_the_variance_of_the_walk_and_loses_nothing():
    spike = np.zeros((1, len(fitting.GRID)))
    spike[0, len(fitting.GRID) // 2] = 1
    spread = fitting._diffused(spike, np.array([0.7]))[0]
    assert spread.sum() == pytest.approx(1)
    assert (spread * fitting.GRID**2).sum() == pytest.approx(0.7, rel=1e-3)


def test_dynamics_come_back_from_a_simulated_log():
    """95 % intervals hold what problems gained and how much of it was common, and are no wider than the log allows."""
    evidence, learner = simulated(TRUTH, problems=120, steps=60, groups=16, seed=2)
    found = fitting.fit(evidence, learner.course.loadings_RPK[0])
    rows = np.unique(evidence.problem_G)
    gained = (learner.logits() - learner.course.ease_RP)[0, rows].mean()
    _, low, high = found.interval("gain")
    assert low < gained < high < 1.8 * low
    _, low, high = found.interval("common")
    assert low < TRUTH.common < high
    assert found.loglik > found.still_loglik + 30


def test_of_a_learner_that_stands_still_the_fit_says_so():
    evidence, learner = simulated(Dynamics(rate=0.0), problems=80, steps=40, groups=12, seed=0)
    found = fitting.fit(evidence, learner.course.loadings_RPK[0])
    assert found.loglik < found.still_loglik + 4
    _, ease = found.draw(np.random.default_rng(0))
    assert logistic(ease).mean() == pytest.approx(logistic(learner.course.ease_RP[0]).mean(), abs=0.04)
