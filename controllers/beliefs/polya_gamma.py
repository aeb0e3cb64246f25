"""Polya-Gamma variables, which turn a logistic likelihood into a Gaussian one (Polson, Scott and Windle, 2013)."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TERMS = 2

# Below this tilt the closed forms subtract nearly equal numbers; their Taylor series are exact to 1e-8 there.
SMALL_TILT = 0.25


def moments(tilt: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of PG(1, c). Those of PG(b, c), b any positive number, are b times as large.

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


def draw(shape: Floats, tilt: Floats, generator: np.random.Generator) -> Floats:
    """One draw for each pair of a shape b > 0, which need not be an integer, and a tilt c.

    PG(b, c) = sum over r >= 1 of g_r 2 / ((2r - 1)^2 pi^2 + c^2), g_r ~ Gamma(b, 1); the tail is one gamma variable.

    The first TERMS terms are drawn exactly; the sum of the others is replaced by a gamma variable with the same mean
    and variance. With two terms the third cumulant is right to 0.01 % at c = 0 and 0.3 % at |c| = 6, far below what any
    number of sweeps resolves.
    """
    mean, variance = moments(tilt)
    square = tilt * tilt
    total = np.zeros_like(tilt)
    for r in range(1, TERMS + 1):
        weight = 2 / (((2 * r - 1) * math.pi) ** 2 + square)
        total += generator.standard_gamma(shape) * weight
        mean -= weight
        variance -= weight * weight
    scale = variance / mean
    return np.asarray(total + generator.standard_gamma(shape * mean / scale) * scale)
