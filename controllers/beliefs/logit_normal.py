"""Pass rates with normal log-odds: their means, and the posterior of whole trees given Polya-Gamma variables, which
turn a logistic likelihood into a Gaussian one (Polson, Scott and Windle, 2013)."""

import math
from typing import NamedTuple

import numpy as np

from halfway.controllers.beliefs.forest import Flags, Floats, Forest, Positions, Scales

# Gauss-Hermite nodes for E sigmoid(N(m, v)); fifteen are accurate to 4e-5 at v = 4 and to 7e-4 at v = 9.
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FIXED_POINT_TOLERANCE = 1e-7


class Trees(NamedTuple):
    """Some trees, laid out for the samplers: roots first, then children, sorted by tree.

    Attributes:
        place_C: index of each child's root.
        passed_M, tried_M: discounted counts.
        offset_R: see `Forest`; 0 = none.
    """

    place_C: Positions
    passed_M: Floats
    tried_M: Floats
    offset_R: Floats | float = 0.0

    @property
    def num_roots(self) -> int:
        return len(self.tried_M) - len(self.place_C)

    @property
    def kappa_M(self) -> Floats:
        """s - n/2 for each node, if s of its n rollouts passed."""
        return self.passed_M - 0.5 * self.tried_M


class Gaussians(NamedTuple):
    """Every node's normal distribution given the Polya-Gamma variables.

    Attributes:
        mean_M, variance_M: conditional on as few variables as possible, which lowers the variance of averages over
            sweeps (Rao-Blackwell).
    """

    mean_M: Floats
    variance_M: Floats


def sigmoid(logit: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow."""
    rate: Floats = np.asarray(0.5 * logit)
    np.tanh(rate, out=rate)
    rate *= 0.5
    rate += 0.5
    return rate


def mean_sigmoid(mean: Floats, variance: Floats) -> Floats:
    """E sigmoid(x) for x ~ N(mean, variance)."""
    deviation, total = np.sqrt(variance), np.zeros_like(mean)
    for point, weight in zip(POINTS, WEIGHTS, strict=True):
        total += weight * sigmoid(mean + point * deviation)
    return total


def collapse(trees: Trees, omega_M: Floats, scales: Scales) -> tuple[Gaussians, Floats]:
    """Compute the distributions of the log-odds given omega, and each child's precision given its root too.

    With the children integrated out, a root has precision omega_0 + 1/tau^2 + sum omega_i / (1 + sigma^2 omega_i) and
    linear term kappa_0 + mu/tau^2 + sum (kappa_i - omega_i shift) / (1 + sigma^2 omega_i).
    """
    num_roots, kappa_M = trees.num_roots, trees.kappa_M
    between, within = scales.tau**-2, scales.sigma**-2
    omega_C, kappa_C = omega_M[num_roots:], kappa_M[num_roots:]
    shrink_C = 1 / (1 + omega_C / within)
    precision_R = omega_M[:num_roots] + between
    linear_R = kappa_M[:num_roots] + (scales.mu + trees.offset_R) * between
    if len(trees.place_C):
        precision_R += np.bincount(trees.place_C, omega_C * shrink_C, num_roots)
        linear_R += np.bincount(trees.place_C, (kappa_C - scales.shift * omega_C) * shrink_C, num_roots)
    mean_R, variance_R = linear_R / precision_R, 1 / precision_R
    precision_C = omega_C + within
    pull_C = within / precision_C
    mean_C = kappa_C / precision_C + pull_C * (mean_R[trees.place_C] + scales.shift)
    variance_C = 1 / precision_C + pull_C * pull_C * variance_R[trees.place_C]
    return Gaussians(np.concatenate([mean_R, mean_C]), np.concatenate([variance_R, variance_C])), precision_C


def fixed_point(trees: Trees, logit_M: Floats, scales: Scales, iterations: int) -> Gaussians:
    """Iterate to the variational posterior: replace omega by its mean at c = sqrt(E psi^2) until the means converge.

    It is deterministic. With c = |psi| it would be expectation maximisation, which finds the mode. For a skewed
    posterior, the variational answer is nearer to the mean, which the sampler estimates.
    """
    square_M = logit_M * logit_M
    given = Gaussians(logit_M, np.zeros_like(logit_M))
    for _ in range(iterations):
        omega_M = trees.tried_M * polya_gamma_moments(np.sqrt(square_M))[0]
        before, (given, _) = given.mean_M, collapse(trees, omega_M, scales)
        square_M = given.mean_M**2 + given.variance_M
        if np.abs(given.mean_M - before).max(initial=0.0) < FIXED_POINT_TOLERANCE:
            break
    return given


def with_evidence(forest: Forest, trees: Positions | slice = slice(None)) -> Flags:
    """Mark those of some trees in which any node has been tried."""
    seen_R = np.zeros(forest.num_trees, np.bool_)
    seen_R[forest.tree_C[forest.tried_M[forest.num_trees :] > 0]] = True
    return np.asarray(seen_R[trees] | (forest.tried_M[: forest.num_trees][trees] > 0))


TERMS = 2

# Below this tilt the closed forms subtract nearly equal numbers; the Taylor series are exact to 1e-8 there.
SMALL_TILT = 0.25


def polya_gamma_moments(tilt: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the Polya-Gamma distribution PG(1, c); those of PG(b, c) are b times as large.

    Mean tanh(c/2) / (2c), 1/4 at 0; variance (sinh c - c) / (4 c^3 cosh^2(c/2)), 1/24 at 0.
    """
    square = tilt * tilt
    c = np.maximum(np.abs(tilt), SMALL_TILT)
    slope = np.tanh(0.5 * c)
    mean, variance = slope / (2 * c), (2 * slope - c * (1 - slope * slope)) / (4 * c * c * c)
    small = np.flatnonzero(square < SMALL_TILT * SMALL_TILT)
    if len(small):
        x = square[small]
        mean[small] = 1 / 4 + x * (-1 / 48 + x * (1 / 480 - x * 17 / 80640))
        variance[small] = 1 / 24 + x * (-1 / 120 + x * (17 / 13440 - x * 31 / 181440))
    return mean, variance


def draw_polya_gamma(shape: Floats, tilt: Floats, generator: np.random.Generator) -> Floats:
    """Draw once for each pair of a shape b > 0, which need not be an integer, and a tilt c.

    PG(b, c) = sum over r >= 1 of g_r 2 / ((2r - 1)^2 pi^2 + c^2), g_r ~ Gamma(b, 1).

    The first TERMS terms are drawn exactly; one gamma variable with the same mean and variance replaces the sum of the
    others. With two terms the third cumulant is right to 0.01 % at c = 0 and to 0.3 % at |c| = 6, far finer than any
    number of sweeps resolves.
    """
    mean, variance = polya_gamma_moments(tilt)
    square = tilt * tilt
    total = np.zeros_like(tilt)
    for r in range(1, TERMS + 1):
        weight = 2 / (((2 * r - 1) * math.pi) ** 2 + square)
        total += generator.standard_gamma(shape) * weight
        mean -= weight
        variance -= weight * weight
    scale = variance / mean
    return np.asarray(total + generator.standard_gamma(shape * mean / scale) * scale)
