"""The belief that problems share: its mode, error and expectations against independent computations."""

import numpy as np
import pytest
from controller_harness import problem_set
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from halfway.controllers.beliefs.shared_skills import SkillModel, design, expected
from halfway.curriculum import Problem, ProblemSet, UserError


def sigmoid(z: ArrayLike) -> NDArray[np.float64]:
    found: NDArray[np.float64] = 1 / (1 + np.exp(-np.asarray(z)))
    return found


def test_without_a_residual_it_is_the_laplace_approximation() -> None:
    """Mode and inverse Hessian of the penalised log-likelihood, by a general optimizer."""
    rng = np.random.default_rng(0)
    model = SkillModel(spread=2.0, residual=0.0)
    x_GD = np.hstack([np.ones((30, 1)), rng.normal(size=(30, 3))])
    tried_G = rng.integers(1, 9, 30)
    passed_G = rng.binomial(tried_G, 0.3)
    found = model.learn(model.init(4), x_GD, passed_G.tolist(), tried_G.tolist())
    variances_D = np.array([4.0, 4 / 3, 4 / 3, 4 / 3])
    assert np.allclose(np.diag(model.init(4).covariance_DD), variances_D)

    def loss(w_D: np.ndarray) -> float:
        z_G = x_GD @ w_D
        return float(np.sum(tried_G * np.logaddexp(0, z_G) - passed_G * z_G) + np.sum(w_D**2 / variances_D) / 2)

    mode_D = minimize(loss, np.zeros(4), tol=1e-12).x
    p_G = sigmoid(x_GD @ mode_D)
    hessian_DD = np.diag(1 / variances_D) + x_GD.T @ ((tried_G * p_G * (1 - p_G))[:, None] * x_GD)
    assert np.allclose(found.mean_D, mode_D, atol=1e-4)
    assert np.allclose(found.covariance_DD, np.linalg.inv(hessian_DD), atol=1e-4)


def test_the_residual_is_noise_on_the_logit() -> None:
    """A large group at rate r observes logit r with the variance residual^2 + 1 / (n r (1 - r)), conjugate to N."""
    model, size, rate = SkillModel(spread=1.5, residual=0.8), 10**6, 0.2
    found = model.learn(model.init(1), np.ones((1, 1)), [int(size * rate)], [size])
    noise = 0.8**2 + 1 / (size * rate * (1 - rate))
    variance = 1 / (1 / 1.5**2 + 1 / noise)
    assert found.covariance_DD[0, 0] == pytest.approx(variance, rel=1e-3)
    assert found.mean_D[0] == pytest.approx(variance / noise * np.log(0.2 / 0.8), rel=1e-3)


def test_weights_and_residuals_are_at_their_joint_mode() -> None:
    rng = np.random.default_rng(2)
    model, residual = SkillModel(spread=2.0, residual=0.9), 0.9
    x_GD = np.hstack([np.ones((12, 1)), rng.normal(size=(12, 2))])
    passed_G = rng.integers(0, 9, 12)
    found = model.learn(model.init(3), x_GD, passed_G.tolist(), [8] * 12)

    def loss(both: np.ndarray) -> float:
        w_D, u_G = both[:3], both[3:]
        z_G = x_GD @ w_D + u_G
        likelihood = np.sum(8 * np.logaddexp(0, z_G) - passed_G * z_G)
        return float(likelihood + np.sum(w_D**2 / [4, 2, 2]) / 2 + np.sum(u_G**2) / residual**2 / 2)

    mode = minimize(loss, np.zeros(15), tol=1e-12).x
    assert np.allclose(found.mean_D, mode[:3], atol=1e-4)


@pytest.mark.parametrize("passed", [0, 8])
def test_groups_without_variance_are_finite_evidence(passed: int) -> None:
    model = SkillModel()
    found = model.init(3)
    for _ in range(50):
        found = model.learn(found, np.ones((16, 3)), [passed] * 16, [8] * 16)
    mean, variance = model.logits(found, np.ones((1, 3)))
    assert np.isfinite(found.mean_D).all() and (mean[0] > 4) == (passed == 8) and 0.49 < variance[0] < 2


def test_unseen_weights_wander_back_to_the_prior() -> None:
    model = SkillModel(spread=2.0, drift=0.05)
    later = model.wander(model.init(3), 10)
    assert np.allclose(np.diag(later.covariance_DD), 1.5 * np.array([4.0, 2.0, 2.0]))
    assert np.array_equal(later.mean_D, np.zeros(3))


def test_it_finds_the_weights_that_made_the_outcomes_and_follows_them() -> None:
    """Groups of 8 from known weights, which change half way: rates of problems never met are right all the same."""
    rng = np.random.default_rng(1)
    model = SkillModel(residual=0.3)
    skills, x_PD = model.init(6), np.hstack([np.ones((400, 1)), rng.normal(size=(400, 5))])
    for true_D in (rng.normal(size=6), rng.normal(size=6)):
        rate_P = sigmoid(x_PD @ true_D)
        for _ in range(150):
            tried = rng.choice(200, 8)  # the other 200 are never met
            skills = model.wander(skills, 1)
            skills = model.learn(skills, x_PD[tried], rng.binomial(8, rate_P[tried]).tolist(), [8] * 8)
        believed_P = expected(lambda rate: rate, *model.logits(skills, x_PD))
        assert np.abs(believed_P - rate_P)[200:].mean() < 0.05


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 0.5), (-3.0, 2.0), (2.0, 9.0)])
def test_expectations_against_quadrature(mean: float, variance: float) -> None:
    def signal(p: np.ndarray) -> np.ndarray:
        return np.asarray(1 - p**8 - (1 - p) ** 8)

    def density(z: float) -> float:
        return float(signal(sigmoid(z)) * norm.pdf(z, mean, variance**0.5))

    exact = quad(density, mean - 30, mean + 30, points=[mean], limit=200)[0]
    assert expected(signal, np.array([mean]), np.array([variance]))[0] == pytest.approx(exact, abs=0.01)


def test_numbers_are_standardised_and_words_become_indicator_columns() -> None:
    problems = ProblemSet(
        [
            Problem(f"p{i}", f"{i}", "", features={"n": float(i), "word": "ab"[i % 2], "v": (1.0, float(i))})
            for i in range(4)
        ]
    )
    x_PD = design(problems, ("n", "word", "v"), "frontier.features")
    assert x_PD.shape == (4, 6) and np.allclose(x_PD[:, 1].std(), 1) and np.allclose(x_PD[:, 1:].mean(axis=0)[0], 0)
    assert x_PD[:, 2:4].tolist() == [[1, 0], [0, 1]] * 2
    assert np.array_equal(x_PD[:, 4], np.zeros(4)) and np.allclose(x_PD[:, 5], x_PD[:, 1])  # constant, and the number


def test_features_that_cannot_be_columns_are_refused() -> None:
    long = ProblemSet([Problem(f"p{i}", f"{i}", "", features={"v": (float(i),) * 600}) for i in range(3)])
    with pytest.raises(UserError, match=r"^frontier.features: v make 601 columns, and at most 512"):
        design(long, ("v",), "frontier.features")
    broken = ProblemSet([Problem(f"p{i}", f"{i}", "", features={"n": float("nan")}) for i in range(3)])
    with pytest.raises(UserError, match="'n' is not finite for every problem"):
        design(broken, ("n",), "frontier.features")
    with pytest.raises(UserError, match="has no feature 'elsewhere'"):
        design(problem_set(3), ("elsewhere",), "frontier.features")
    for bad in ({"spread": 0.0}, {"drift": -1.0}, {"residual": -0.1}):
        with pytest.raises(UserError, match=rf"^model\.{next(iter(bad))}: "):
            SkillModel(**bad)
