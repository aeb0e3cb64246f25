"""The beliefs against closed forms: item response, Polya-gamma draws, forests, shared skills."""

import math
from dataclasses import replace

import numpy as np
import pytest
from controller_harness import problem_set
from messages import says
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from halfway.controllers.beliefs.forest import Forest, learn
from halfway.controllers.beliefs.forest_beliefs import Aim, DrawnBeta, beta_densities, density_bound
from halfway.controllers.beliefs.item_response import Trial, choose_share, discount_trials, predict_rates, response
from halfway.controllers.beliefs.logit_normal import SMALL_TILT, draw_polya_gamma, polya_gamma_moments
from halfway.controllers.beliefs.shared_skills import SkillModel, design, integrate
from halfway.curriculum import Problem, ProblemSet, Stream, UserError


def test_the_curve_has_its_three_landmarks() -> None:
    assert response(0.4, 8.0, 0.4, 0.0) == pytest.approx(0.5)
    assert response(0.4, 8.0, 0.4, 0.2) == pytest.approx(0.6)  # midway between the guess and 1
    assert response(0.4 + np.log(3) / 8, 8.0, 0.4, 0.0) == pytest.approx(0.75)
    assert response(-9.0, 8.0, 0.4, 0.2) == pytest.approx(0.2)


@pytest.mark.parametrize(("slope", "location", "guess"), [(8.0, 0.3, 0.0), (20.0, 0.7, 0.0), (12.0, 0.5, 0.1)])
def test_a_known_curve_is_found_from_many_rollouts(slope: float, location: float, guess: float) -> None:
    shares = np.linspace(0, 0.95, 20)
    rates = response(shares, slope, location, guess)
    trials = [Trial(float(share), 400 * float(rate), 400) for share, rate in zip(shares, rates, strict=True)]
    found = predict_rates(trials, shares)
    np.testing.assert_allclose(found, rates, atol=0.03)
    assert choose_share(trials, shares, 0.5) == int(np.abs(rates - 0.5).argmin())


def test_a_few_rollouts_move_the_aim_the_right_way() -> None:
    shares = [i / 16 for i in range(16)]
    failed, passed = [Trial(0.0, 0, 8)], [Trial(0.5, 8, 8)]
    assert choose_share((), shares, 0.5) == 0
    assert 4 <= choose_share(failed, shares, 0.5) <= 11
    assert choose_share([*failed, Trial(0.5, 0, 8)], shares, 0.5) > 8
    assert (
        choose_share([*failed, *passed], shares, 0.5)
        < choose_share(failed, shares, 0.5)
        < choose_share(failed, shares, 0.9)
    )
    assert all(np.diff(predict_rates([*failed, *passed], shares)) > 0)


def test_older_trials_weigh_less() -> None:
    old, new = Trial(0.2, 0, 8), Trial(0.2, 8, 8)
    assert discount_trials([old, new], 0.5) == [Trial(0.2, 0, 4), Trial(0.2, 8, 8)]
    assert predict_rates(discount_trials([old, new], 0.5), [0.2]) > predict_rates([old, new], [0.2])
    assert discount_trials([old, new], 0.0) == [old, new]


DRAWS = 40_000


def series_cumulant(tilt: float, order: int, last: int = 200_000) -> float:
    """Cumulant of PG(1, c) by summing (order - 1)! w_r^order."""
    r = np.arange(1, last + 1)
    weights = 2 / (((2 * r - 1) * math.pi) ** 2 + tilt * tilt)
    return math.factorial(order - 1) * float((weights**order).sum())


@pytest.mark.parametrize("tilt", [0.0, 0.01, 0.2499, 0.2501, 1.0, 4.0, 12.0])
def test_moments_are_those_of_the_series(tilt: float):
    mean, variance = polya_gamma_moments(np.asarray([tilt, -tilt]))
    assert mean == pytest.approx([series_cumulant(tilt, 1)] * 2, rel=1e-5)
    assert variance == pytest.approx([series_cumulant(tilt, 2)] * 2, rel=2e-8)


def test_moments_at_zero_and_across_the_change_of_formula():
    assert [m[0] for m in polya_gamma_moments(np.zeros(1))] == [1 / 4, 1 / 24]
    below, above = (np.asarray(polya_gamma_moments(np.asarray([SMALL_TILT + side]))) for side in (-1e-9, 1e-9))
    assert below == pytest.approx(above, rel=2e-8)


@pytest.mark.parametrize(("shape", "tilt"), [(0.05, 0.0), (0.7, 1.0), (1.0, 0.0), (7.3, -2.5), (80.0, 4.0)])
def test_mean_and_variance_of_draws(shape: float, tilt: float):
    x = draw_polya_gamma(np.full(DRAWS, shape), np.full(DRAWS, tilt), np.random.default_rng(1))
    mean, variance = (shape * m[0] for m in polya_gamma_moments(np.asarray([tilt])))
    assert x.mean() == pytest.approx(mean, abs=4.5 * math.sqrt(variance / DRAWS))
    fourth = shape * series_cumulant(tilt, 4, 2000) + 3 * variance**2
    assert x.var() == pytest.approx(variance, abs=4.5 * math.sqrt((fourth - variance**2) / DRAWS))


@pytest.mark.parametrize(("shape", "tilt", "t"), [(0.6, 0.0, 3.0), (8.0, 1.5, 0.4), (2.5, -3.0, 2.0)])
def test_laplace_transform(shape: float, tilt: float, t: float):
    # E exp(-w t) = (cosh(c/2) / cosh(sqrt(c^2/4 + t/2)))^b checks the whole distribution, not two moments.
    x = np.exp(-t * draw_polya_gamma(np.full(DRAWS, shape), np.full(DRAWS, tilt), np.random.default_rng(2)))
    exact = (math.cosh(tilt / 2) / math.cosh(math.sqrt(tilt * tilt / 4 + t / 2))) ** shape
    assert x.mean() == pytest.approx(exact, abs=4.5 * x.std() / math.sqrt(DRAWS))


@pytest.mark.parametrize(("tilt", "limit"), [(0.0, 1e-4), (3.0, 1e-3), (6.0, 3e-3)])
def test_third_cumulant_of_the_closed_tail(tilt: float, limit: float):
    mean, variance = (m[0] for m in polya_gamma_moments(np.asarray([tilt])))
    weights = np.asarray([2 / (((2 * r - 1) * math.pi) ** 2 + tilt * tilt) for r in (1, 2)])
    tail_mean, tail_variance = mean - weights.sum(), variance - (weights**2).sum()
    third = 2 * (weights**3).sum() + 2 * tail_variance**2 / tail_mean
    assert third == pytest.approx(series_cumulant(tilt, 3), rel=limit)


def known(size: int) -> tuple[DrawnBeta, Forest]:
    """A fifth of the problems each: never tried, passing often, seldom, half of the time in few or in many rollouts."""
    belief = DrawnBeta((1.0, 2.0))
    passed, tried = (0, 13, 1, 4, 40), (0, 16, 8, 8, 80)
    kinds = [i % 5 for i in range(size)]
    forest = learn(belief.init(size), list(range(size)), [passed[k] for k in kinds], [tried[k] for k in kinds], 1.0)
    return belief, forest


def of_all(belief: DrawnBeta, forest: Forest, near: Aim, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rates = np.random.default_rng(seed).beta(*belief.posterior(forest, slice(None)))
    return np.arange(len(rates)), rates


def compared(draw, size: int, near: Aim, seeds: range) -> tuple[np.ndarray, np.ndarray]:
    """The mean number of each kind among the nearest, and the distance of the last one."""
    kinds, last = np.zeros(5), []
    for seed in seeds:
        nodes, rates = draw(seed)
        order = np.argsort(np.abs(rates - near.target))[: near.wanted]
        kinds += np.bincount(nodes[order] % 5, minlength=5) / len(seeds)
        last.append(abs(rates[order[-1]] - near.target))
    return kinds, np.asarray(last)


@pytest.mark.parametrize(("size", "narrow"), [(4000, False), (60, True)], ids=["band", "band too narrow"])
def test_the_nearest_draws_have_the_law_of_all_draws(size: int, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    belief, forest = known(size)
    near, seeds, made = Aim(0.45, 5), range(600), []
    if narrow:  # as if by bad luck hardly any draw fell into the band
        bound = density_bound(near.target, 0.03, 3.0, 83.0)
        monkeypatch.setattr(DrawnBeta, "_band", lambda *_: (0.03, bound))

    def few(seed: int) -> tuple[np.ndarray, np.ndarray]:
        nodes, rates = belief.nearest(forest, np.arange(size), near, Stream(seed))
        made.append(len(nodes))
        assert len(set(nodes.tolist())) == len(nodes)
        return nodes, rates

    kinds, last = compared(few, size, near, seeds)
    expected, all_last = compared(lambda seed: of_all(belief, forest, near, seed), size, near, seeds)
    assert narrow or max(made) < size / 10
    assert np.abs(kinds - expected).max() < 4 * math.sqrt(2 * 1.2 / len(seeds))  # 1.2: most variance of such a count
    grid = np.sort(np.concatenate([last, all_last]))
    steps = [np.searchsorted(np.sort(each), grid, side="right") / len(seeds) for each in (last, all_last)]
    assert np.abs(steps[0] - steps[1]).max() < 1.63 * math.sqrt(2 / len(seeds))  # Kolmogorov and Smirnov at 1 %


def test_no_density_exceeds_its_bound() -> None:
    for target, radius in ((0.5, 1e-3), (0.3, 0.1), (0.9, 0.02)):
        rates = np.linspace(target - radius, target + radius, 41)
        for a in (0.3, 1.0, 2.5, 8.0, 40.0):
            for b in (0.2, 1.0, 5.0, 33.0):
                a_41, b_41 = np.full(41, a), np.full(41, b)
                density = beta_densities(rates, a_41, b_41).max()
                assert density <= density_bound(target, radius, a + b, a + b) <= density_bound(target, radius, 0.5, 80)
    tight = beta_densities(np.asarray([0.5]), np.asarray([41.0]), np.asarray([41.0]))[0]
    assert density_bound(0.5, 1e-6, 82, 82) == pytest.approx(tight, rel=0.02)


def test_all_draws_are_made_where_few_would_not_do() -> None:
    belief, forest = known(20)
    assert len(belief.nearest(forest, np.arange(20), Aim(0.5, 4), Stream(0))[0]) == 20
    hopeless = replace(forest, passed_M=np.zeros(20), tried_M=np.full(20, 1e5))  # no density at the target at all
    assert len(belief.nearest(hopeless, np.arange(20), Aim(0.5, 4), Stream(0))[0]) == 20


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
    found = model.learn(model.init(4, 30), x_GD, np.arange(30), passed_G.tolist(), tried_G.tolist())
    variances_D = np.array([4.0, 4 / 3, 4 / 3, 4 / 3])
    assert np.allclose(np.diag(model.init(4, 30).covariance_DD), variances_D)

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
    found = model.learn(model.init(1, 1), np.ones((1, 1)), np.array([0]), [int(size * rate)], [size])
    noise = 0.8**2 + 1 / (size * rate * (1 - rate))
    variance = 1 / (1 / 1.5**2 + 1 / noise)
    assert found.covariance_DD[0, 0] == pytest.approx(variance, rel=1e-3)
    assert found.mean_D[0] == pytest.approx(variance / noise * np.log(0.2 / 0.8), rel=1e-3)


def test_weights_and_residuals_are_at_their_joint_mode() -> None:
    rng = np.random.default_rng(2)
    model, residual = SkillModel(spread=2.0, residual=0.9), 0.9
    x_GD = np.hstack([np.ones((12, 1)), rng.normal(size=(12, 2))])
    passed_G = rng.integers(0, 9, 12)
    found = model.learn(model.init(3, 12), x_GD, np.arange(12), passed_G.tolist(), [8] * 12)

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
    found = model.init(3, 16)
    for _ in range(50):
        found = model.learn(found, np.ones((16, 3)), np.arange(16), [passed] * 16, [8] * 16)
    mean, variance = model.logits(found, np.ones((16, 3)), np.array([0]))
    assert np.isfinite(found.mean_D).all() and (mean[0] > 4) == (passed == 8) and 0.49 < variance[0] < 2


def test_a_residual_that_is_kept_fades_as_an_ornstein_uhlenbeck_process() -> None:
    """Known weights: a large group observes its residual exactly; t steps later m^t of it is left, and the variance is
    s^2 (1 - m^2t)."""
    model = SkillModel(spread=0.01, drift=0.0, residual=2.0, memory=0.9)
    x_PD, size, rate = np.ones((3, 1)), 10**8, 0.3
    found = model.learn(model.init(1, 3), x_PD, np.array([1]), [int(size * rate)], [size])
    mean_P, variance_P = model.logits(model.wander(found, 5), x_PD, np.arange(3))
    assert mean_P == pytest.approx([0, 0.9**5 * np.log(0.3 / 0.7), 0], abs=1e-3)
    assert variance_P == pytest.approx([4, 4 * (1 - 0.9**10), 4], abs=1e-3)


def test_weights_and_kept_residuals_are_at_their_joint_mode() -> None:
    """After two steps, the second from the belief of the first; groups of one problem count as one."""
    rng = np.random.default_rng(2)
    model = SkillModel(spread=2.0, residual=0.9, memory=0.8)
    x_PD = np.hstack([np.ones((12, 1)), rng.normal(size=(12, 2))])
    first = model.wander(model.learn(model.init(3, 12), x_PD, np.arange(6), rng.integers(0, 9, 6).tolist(), [8] * 6), 1)
    places_G, passed_G = np.array([4, 5, 6, 4]), [3, 1, 7, 0]
    found = model.learn(first, x_PD, places_G, passed_G, [8] * 4)
    precision_DD = np.linalg.inv(first.covariance_DD)

    def loss(both: np.ndarray) -> float:
        w_D, u_P = both[:3], both[3:]
        z_G = (x_PD @ w_D + u_P)[places_G]
        likelihood = np.sum(8 * np.logaddexp(0, z_G) - passed_G * z_G)
        off_D = w_D - first.mean_D
        kept = np.sum((u_P - first.residual_P) ** 2 / first.variance_P)
        return float(likelihood + off_D @ precision_DD @ off_D / 2 + kept / 2)

    mode = minimize(loss, np.zeros(15), tol=1e-12).x
    assert np.allclose(found.mean_D, mode[:3], atol=1e-4)
    assert np.allclose(found.residual_P, mode[3:], atol=1e-4)


def test_unseen_weights_wander_back_to_the_prior() -> None:
    model = SkillModel(spread=2.0, drift=0.05)
    later = model.wander(model.init(3, 5), 10)
    assert np.allclose(np.diag(later.covariance_DD), 1.5 * np.array([4.0, 2.0, 2.0]))
    assert np.array_equal(later.mean_D, np.zeros(3))


def test_it_finds_the_weights_that_made_the_outcomes_and_follows_them() -> None:
    """Groups of 8 from known weights, which change half way: rates of problems never met are right all the same."""
    rng = np.random.default_rng(1)
    model = SkillModel(residual=0.3)
    skills, x_PD = model.init(6, 400), np.hstack([np.ones((400, 1)), rng.normal(size=(400, 5))])
    for true_D in (rng.normal(size=6), rng.normal(size=6)):
        rate_P = sigmoid(x_PD @ true_D)
        for _ in range(150):
            tried = rng.choice(200, 8)  # the other 200 are never met
            skills = model.wander(skills, 1)
            skills = model.learn(skills, x_PD, tried, rng.binomial(8, rate_P[tried]).tolist(), [8] * 8)
        believed_P = integrate(lambda rate: rate, *model.logits(skills, x_PD, np.arange(400)))
        assert np.abs(believed_P - rate_P)[200:].mean() < 0.05


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 0.5), (-3.0, 2.0), (2.0, 9.0)])
def test_expectations_against_quadrature(mean: float, variance: float) -> None:
    def signal(p: np.ndarray) -> np.ndarray:
        return np.asarray(1 - p**8 - (1 - p) ** 8)

    def density(z: float) -> float:
        return float(signal(sigmoid(z)) * norm.pdf(z, mean, variance**0.5))

    exact = quad(density, mean - 30, mean + 30, points=[mean], limit=200)[0]
    assert integrate(signal, np.array([mean]), np.array([variance]))[0] == pytest.approx(exact, abs=0.01)


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
    with pytest.raises(UserError, match=says("frontier.features", "v", 601, 512)):
        design(long, ("v",), "frontier.features")
    broken = ProblemSet([Problem(f"p{i}", f"{i}", "", features={"n": float("nan")}) for i in range(3)])
    with pytest.raises(UserError, match=says("'n'", "finite")):
        design(broken, ("n",), "frontier.features")
    with pytest.raises(UserError, match=says("feature", "'elsewhere'")):
        design(problem_set(3), ("elsewhere",), "frontier.features")
    for bad in ({"spread": 0.0}, {"drift": -1.0}, {"residual": -0.1}):
        with pytest.raises(UserError, match=rf"^model\.{next(iter(bad))}: "):
            SkillModel(**bad)
