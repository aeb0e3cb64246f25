"""One model of all pass rates: the logit of a pass rate is linear in the features of the problem.

Three visits in a run are little evidence on a problem, out of date by the next visit. But each group is evidence on all
problems with the same skills. The model is a Bayesian logistic regression whose weights drift as a random walk (ours; a
state-space item response model): for problem i with features x_i at step t

    logit p_it = w_t . x_i + u_it,    w_0 ~ N(0, S_0),    w_t = w_(t-1) + N(0, drift S_0),
    u_it = memory u_i(t-1) + N(0, (1 - memory^2) residual^2),    u_i0 ~ N(0, residual^2)

and k of n rollouts pass, binomially. The residual u of a problem decays from step to step, as in an Ornstein-Uhlenbeck
process; without memory, every visit has a new residual.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.beliefs.logit_normal import sigmoid
from halfway.curriculum import ProblemSet, UserError, require

LARGEST = 512  # most columns of a design: a step inverts a matrix of this size
NEWTON_STEPS = 50
CHUNK = 8192  # numbers that fit into a core's cache: a quarter of the time for a million
LEAST = 1e-9  # lower bound on a group's information, a divisor
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_SHARES = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, slots=True, eq=False)
class Skills:
    """The belief about the weights, N(mean_D, covariance_DD), and about each problem's residual.

    Attributes:
        mean_D: means of the weights; the first is the constant's.
        residual_P, variance_P: mean and variance of every problem's residual; empty without memory.
    """

    mean_D: Floats
    covariance_DD: Floats
    residual_P: Floats
    variance_P: Floats


@dataclass(frozen=True)
class SkillModel:
    """Prior and drift of the model.

    Attributes:
        spread: prior standard deviation, over problems, of the part of the logits that the features explain, and of the
            constant.
        drift: variance that each weight gains per step, as a share of its prior variance, since the policy learns.
        residual: standard deviation of the part of a logit that the features do not explain.
        memory: share of a residual left after a step; 0 = residuals are forgotten between visits.
    """

    spread: float = 3.0
    drift: float = 0.01
    residual: float = 1.5
    memory: float = 0.98

    def __post_init__(self) -> None:
        spread = 0.01 <= self.spread <= 20
        require(spread, "model.spread", self.spread, "give a standard deviation from 0.01 to 20 logits")
        require(0 <= self.drift <= 1, "model.drift", self.drift, "give a share of the prior variance, from 0 to 1")
        residual = 0 <= self.residual <= 20
        require(residual, "model.residual", self.residual, "give a standard deviation from 0 to 20 logits")
        require(0 <= self.memory <= 1, "model.memory", self.memory, "give a share from 0 to 1")

    def prior(self, columns: int) -> Floats:
        """Variances of the weights, (columns,): the constant's, then equal parts for the standardised features."""
        variance = self.spread**2
        return np.array([variance] + [variance / max(1, columns - 1)] * (columns - 1))

    def init(self, columns: int, problems: int) -> Skills:
        """The belief before any outcome."""
        kept = problems if self.memory else 0
        return Skills(
            np.zeros(columns), np.diag(self.prior(columns)), np.zeros(kept), np.full(kept, self.residual**2, np.float64)
        )

    def wander(self, skills: Skills, steps: int) -> Skills:
        """The belief `steps` steps later, without observations."""
        more_D = steps * self.drift * self.prior(len(skills.mean_D))
        left = self.memory**steps
        return Skills(
            skills.mean_D,
            skills.covariance_DD + np.diag(more_D),
            left * skills.residual_P,
            self.residual**2 + left**2 * (skills.variance_P - self.residual**2),
        )

    def learn(
        self, skills: Skills, x_PD: Floats, places_G: Positions, passed_G: ArrayLike, tried_G: ArrayLike
    ) -> Skills:
        """Update the belief by groups with k of n rollouts passed: Laplace's approximation of the posterior.

        Newton's method finds the joint mode of the weights and the groups' residuals. Around a total logit z, a group
        is a working response z + (k - n p) / (n p q) with variance 1 / (n p q), q = 1 - p. The weights are fitted to it
        with the residual's variance added, and the residual takes its share of the unexplained rest. A residual that is
        kept has the variance given known weights.
        """
        k_G: Floats = np.asarray(passed_G, np.float64)
        n_G: Floats = np.asarray(tried_G, np.float64)
        if self.memory:  # all groups of a problem in a step share one residual
            places_G, group_G = np.unique(places_G, return_inverse=True)
            k_G, n_G = (np.bincount(group_G, each).astype(np.float64) for each in (k_G, n_G))
        x_GD = x_PD[places_G]
        before_G, variance_G = self._residuals(skills, places_G)
        precision_DD = np.linalg.inv(skills.covariance_DD)
        mean_D, pull_D, residual_G = skills.mean_D, precision_DD @ skills.mean_D, before_G
        for _ in range(NEWTON_STEPS):
            z_G = x_GD @ mean_D + residual_G
            p_G = sigmoid(z_G)
            noise_G = 1 / np.maximum(n_G * p_G * (1 - p_G), LEAST)
            weight_G = 1 / (noise_G + variance_G)
            response_G = z_G + (k_G - n_G * p_G) * noise_G - before_G
            after_DD = precision_DD + x_GD.T @ (weight_G[:, None] * x_GD)
            mode_D = np.linalg.solve(after_DD, pull_D + x_GD.T @ (weight_G * response_G))
            left_G = before_G + variance_G * weight_G * (response_G - x_GD @ mode_D)
            change_G = x_GD @ mode_D + left_G - z_G
            share = 1 / max(1.0, float(np.abs(change_G).max()))  # no logit moves by more than 1 in an iteration
            mean_D, residual_G = mean_D + share * (mode_D - mean_D), residual_G + share * (left_G - residual_G)
            if np.abs(change_G).max() < 1e-8:
                break
        covariance_DD = np.linalg.inv(after_DD)
        residual_P, variance_P = skills.residual_P, skills.variance_P
        if self.memory:
            residual_P, variance_P = residual_P.copy(), variance_P.copy()
            residual_P[places_G], variance_P[places_G] = residual_G, variance_G * noise_G * weight_G
        return Skills(mean_D, (covariance_DD + covariance_DD.T) / 2, residual_P, variance_P)

    def logits(
        self, skills: Skills, x_PD: Floats, places_F: Positions, steps: int | None = None
    ) -> tuple[Floats, Floats]:
        """Mean and variance of the logits of some problems, (F,) each; the residual's variance is part of it.

        Args:
            steps: number of steps later, without observations; None = as `skills` has them.
        """
        of_F = Skills(skills.mean_D, skills.covariance_DD, *self._residuals(skills, places_F))
        if steps is not None:
            of_F = self.wander(of_F, steps)
        x_FD = np.take(x_PD, places_F, axis=0)
        shared_F = np.einsum("fd,fd->f", x_FD @ of_F.covariance_DD, x_FD)
        return x_FD @ of_F.mean_D + of_F.residual_P, shared_F + of_F.variance_P

    def _residuals(self, skills: Skills, places_F: Positions) -> tuple[Floats, Floats]:
        if self.memory:
            return skills.residual_P[places_F], skills.variance_P[places_F]
        return np.zeros(len(places_F)), np.full(len(places_F), self.residual**2)


def integrate(of_rate: Callable[[Floats], Floats], mean_F: Floats, variance_F: Floats) -> Floats:
    """E f(p) for a logit-normal p, by Gauss-Hermite quadrature with 20 nodes, (F,).

    Args:
        of_rate: f, elementwise.
    """
    mean_of_F = np.zeros_like(mean_F)
    deviation_F = np.sqrt(variance_F)
    with np.errstate(over="ignore"):  # the exponential of a large number is infinite, and the rate 0
        for start in range(0, len(mean_F), CHUNK):
            part = slice(start, start + CHUNK)
            for node, share in zip(_NODES, _SHARES, strict=True):
                rate_F = 1 / (1 + np.exp(-mean_F[part] - node * deviation_F[part]))
                mean_of_F[part] += share * of_rate(rate_F)
    return mean_of_F


@lru_cache(maxsize=4)
def design(problems: ProblemSet, features: tuple[str, ...], field: str) -> Floats:
    """Build columns from the problems' features, (P, D): a constant, standardised numbers and vectors, words as 0 or 1.

    Args:
        field: the configuration field that names the features, for error messages.

    Raises:
        UserError: if a problem lacks a feature, numbers are not finite, or there are more than 512 columns.
    """
    columns = [np.ones((len(problems), 1)), *(_columns(problems, name, field) for name in features)]
    x_PD = np.concatenate(columns, axis=1)
    if x_PD.shape[1] > LARGEST:
        raise UserError(
            f"{field}: {', '.join(features)} make {x_PD.shape[1]} columns, and at most {LARGEST} are allowed; "
            "reduce the vectors, for example to their principal components"
        )
    x_PD.setflags(write=False)
    return x_PD


def _columns(problems: ProblemSet, name: str, field: str) -> Floats:
    column = problems.column(name)
    if column.dtype.kind not in "fiu":
        words = np.unique(column)
        switches: Floats = (column[:, None] == words).astype(np.float64)
        return switches
    values_PD = column.astype(np.float64).reshape(len(column), -1)
    if not np.isfinite(values_PD).all():
        raise UserError(f"{field}: {name!r} is not finite for every problem; correct the column")
    deviation_D = values_PD.std(axis=0)
    standardised: Floats = (values_PD - values_PD.mean(axis=0)) / np.where(deviation_D > 0, deviation_D, 1.0)
    return standardised
