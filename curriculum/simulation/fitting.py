"""The dynamics of the learner behind a log: a filter on a grid of log-odds, and a search for the likeliest dynamics.

Given the dynamics, a log's updates are known (see `halfway.curriculum.simulation.evidence.paths`) except for noise. So
a problem's log-odds are its ease, plus a known path, plus a random walk whose clock is known: a hidden Markov model in
one dimension, filtered exactly on a grid. The distribution of the ease over the grid is estimated without assuming a
shape (nonparametric maximum likelihood, Laird 1978), so a U-shaped start, or a crowd of hopeless problems, is no
special case.

Noise is shared between problems, but the filter treats each problem separately, which makes a composite likelihood. Its
covariance is Godambe's, H^-1 J H^-1 (Varin, Reid & Firth 2011, section 2.3). J has two parts: the scores' covariance
over problems, and the effect of shared noise on all of them at once, found by drawing such noise and measuring how the
scores shift.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from halfway.curriculum.simulation.evidence import Evidence, Paths, Visits, clock_of, paths, visits
from halfway.curriculum.simulation.skills import Dynamics, Floats, bumps

GRID = np.linspace(-12.0, 12.0, 49)
PRIOR: Mapping[str, tuple[float, float]] = {
    "log rate": (np.log(0.1), 1.5),
    "log common / skills": (0.0, 1.5),
    "log private / skills": (np.log(0.3), 1.5),
    "log noise": (np.log(10.0), 1.5),
    "log interference": (np.log(0.3), 1.5),
    "logit forget": (np.log(0.005), 1.5),
}
"""Prior mean and standard deviation of what is fitted: weak, so that whatever a log does not determine stays in bounds,
with an interval that shows it."""
SKILLS = 8
PSEUDO = 4.0
"""Weight, in problems, of a flat start distribution that is mixed into the estimated one."""
STEP = 0.05
ITERATIONS = 40
ENOUGH_GAIN = 0.01
SHARED_DRAWS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The dynamics that are likeliest given a log.

    Attributes:
        values_D, covariance_DD: estimate and covariance, on the scale of `PRIOR`.
        start_G: distribution of the ease over `GRID`.
        loglik: log-likelihood of the counts, in nats.
        still_loglik: the same for a learner whose pass rates never change.
        laid: the arranged evidence to which it was fitted.
    """

    values_D: Floats
    covariance_DD: Floats
    start_G: Floats
    loglik: float
    still_loglik: float
    laid: Visits

    @property
    def dynamics(self) -> Dynamics:
        return self._whole(dynamics_of(self.values_D))

    def _whole(self, dynamics: Dynamics) -> Dynamics:
        """The dynamics with what is assumed: their harm at the log's pace, and how noise is shared."""
        return replace(dynamics, harm=paths(self.laid, dynamics).harm, shared=self.laid.shared)

    @property
    def gain(self) -> float:
        """Log-odds that a problem has gained over the log, on average."""
        return float(paths(self.laid, self.dynamics).gained_P.mean())

    def interval(self, name: str) -> tuple[float, float, float]:
        """Estimate and 95 % interval of a field of the dynamics, or of "gain".

        Rate and noise are hard to tell apart, since a larger rate against more noise learns as fast; the gain is not.
        """
        number = 4000 if name != "gain" else 200
        drawn = np.random.default_rng(0).multivariate_normal(self.values_D, self.covariance_DD, number, method="eigh")
        fits = [replace(self, values_D=draw_D) for draw_D in drawn]
        values = [fit.gain if name == "gain" else getattr(fit.dynamics, name) for fit in fits]
        low, high = np.quantile(values, [0.025, 0.975])
        return float(self.gain if name == "gain" else getattr(self.dynamics, name)), float(low), float(high)

    def at_pace(self, pace: float) -> "Fit":
        """The fit if the log's learning rate was `pace` times the best learning rate; its uncertainty is unchanged."""
        return fit_visits(replace(self.laid, pace=pace), near=self)

    def draw(self, generator: np.random.Generator) -> tuple[Dynamics, Floats]:
        """A draw of dynamics given the log, and of the ease of each arranged problem given these dynamics."""
        values_D = generator.multivariate_normal(self.values_D, self.covariance_DD, method="eigh")
        dynamics = dynamics_of(values_D)
        weight_PG, _ = start_messages(self.laid, paths(self.laid, dynamics))
        weight_PG = weight_PG * self.start_G
        dynamics = self._whole(dynamics)
        share_PG = np.cumsum(weight_PG / weight_PG.sum(1, keepdims=True), 1)
        chosen_P = (share_PG < generator.random((len(share_PG), 1))).sum(1)
        width = GRID[1] - GRID[0]
        jitter_P = generator.uniform(-width / 2, width / 2, len(chosen_P))
        return dynamics, GRID[np.minimum(chosen_P, len(GRID) - 1)] + jitter_P


def dynamics_of(values_D: Floats) -> Dynamics:
    """The dynamics at a point on the scale of `PRIOR`."""
    rate, common, private, noise, interference, forget = np.clip(values_D, -12, 8).tolist()
    whole = 1 + np.exp(common) + np.exp(private)
    return Dynamics(
        rate=float(np.exp(rate)),
        common=float(np.exp(common) / whole),
        private=float(np.exp(private) / whole),
        noise=float(np.exp(noise)),
        interference=float(np.exp(interference)),
        forget=float(1 / (1 + np.exp(-forget))),
    )


def start_messages(laid: Visits, path: Paths) -> tuple[Floats, Floats]:
    """Probability of each problem's counts by its ease on the grid, up to a factor; and the factor's logarithm."""
    problems, columns = laid.size_PV.shape
    message_PG, scale_P = np.ones((problems, len(GRID))), np.zeros(problems)
    for v in reversed(range(columns)):
        seen = np.flatnonzero(laid.size_PV[:, v])
        odds_SG = GRID + path.moved_PV[seen, v, None]
        passed_S, size_S = laid.passed_PV[seen, v, None], laid.size_PV[seen, v, None]
        log_SG = passed_S * odds_SG - size_S * np.logaddexp(0, odds_SG)
        most_S = log_SG.max(1)
        message_PG[seen] *= np.exp(log_SG - most_S[:, None])
        scale_P[seen] += most_S
        before_P = path.clock_PV[:, v - 1] if v else np.zeros(problems)
        there_P = laid.size_PV[:, v] > 0
        message_PG = _diffused(message_PG, np.where(there_P | (v > 0), path.clock_PV[:, v] - before_P, 0.0))
        total_P = message_PG.sum(1)
        message_PG /= total_P[:, None]
        scale_P += np.log(total_P)
    return message_PG, scale_P


def _spectrum() -> tuple[Floats, Floats]:
    """Cosines on the grid, and how fast a walk of variance 1 damps each: a walk reflected at the ends."""
    size, width = len(GRID), GRID[1] - GRID[0]
    order = np.arange(size)
    cosines_GJ = np.cos(np.pi * (np.arange(size)[:, None] + 0.5) * order / size) * np.sqrt(2 / size)
    cosines_GJ[:, 0] /= np.sqrt(2)
    return cosines_GJ, (1 - np.cos(np.pi * order / size)) / width**2


COSINES, DAMPING = _spectrum()


def _diffused(message_PG: Floats, variance_P: Floats) -> Floats:
    """The expectation of a message over a random walk's next position."""
    if not variance_P.any():
        return message_PG
    damped_PJ = (message_PG @ COSINES) * np.exp(-np.maximum(variance_P, 0)[:, None] * DAMPING)
    return np.maximum(damped_PJ @ COSINES.T, 1e-300)


def fit(
    evidence: Evidence,
    loadings_PK: Floats | None = None,
    groups_per_update: int = 0,
    most: int | None = 3000,
    pace: float = 0.0,
    shared: float = 1.0,
) -> Fit:
    """The likeliest dynamics.

    Args:
        loadings_PK: skills of the problems; None = neighbours in ease share them, see `by_ease`.
        groups_per_update, most, pace: see `halfway.curriculum.simulation.evidence.visits`.
        shared: see `Visits`.
    """
    if loadings_PK is None:
        loadings_PK = by_ease(evidence, groups_per_update)
    return fit_visits(replace(visits(evidence, loadings_PK, groups_per_update, most, pace), shared=shared))


def by_ease(evidence: Evidence, groups_per_update: int = 0, skills: int = SKILLS) -> Floats:
    """Loadings by each problem's rank in the order of ease, which is estimated with a learner with one skill."""
    plain = visits(evidence, np.ones((evidence.problems, 1)), groups_per_update)
    values_D = np.array([mean for mean, _ in PRIOR.values()])
    start_G = np.full(len(GRID), 1 / len(GRID))
    for _ in range(10):
        start_G = _more_likely(plain, values_D, start_G)
    weight_PG, _ = start_messages(plain, paths(plain, dynamics_of(values_D)))
    weight_PG = weight_PG * start_G
    ease_P = np.full(evidence.problems, -np.inf)
    ease_P[plain.rows_P] = (weight_PG @ GRID) / weight_PG.sum(1)
    return bumps((np.argsort(np.argsort(ease_P, kind="stable"), kind="stable") + 0.5) / len(ease_P), skills)


def fit_visits(laid: Visits, near: Fit | None = None) -> Fit:
    """The likeliest dynamics, with their covariance.

    Args:
        near: a fit to begin at, whose covariance is kept.
    """
    values_D, start_G = likeliest(laid, near=near)
    covariance_DD = _covariance(laid, values_D, start_G) if near is None else near.covariance_DD
    loglik = float(logliks(laid, values_D, start_G).sum())
    return Fit(values_D, covariance_DD, start_G, loglik, _still(laid), laid)


def likeliest(laid: Visits, iterations: int = ITERATIONS, near: Fit | None = None) -> tuple[Floats, Floats]:
    """Fisher scoring with the scores' empirical information, and a few EM steps on the start after each."""
    mean_D, weight_D = _prior()
    values_D, start_G = mean_D.copy(), np.full(len(GRID), 1 / len(GRID))
    if near is not None:
        values_D, start_G = near.values_D, near.start_G
    for _ in range(5):
        start_G = _more_likely(laid, values_D, start_G)
    found, damping = _penalized(laid, values_D, start_G, mean_D, weight_D), 0.1
    for _ in range(iterations):
        score_PD = _scores(laid, values_D, start_G)
        gradient_D = score_PD.sum(0) - weight_D * (values_D - mean_D)
        information_DD = score_PD.T @ score_PD + np.diag(weight_D)
        before = found
        for _ in range(6):
            move_D = np.linalg.solve(information_DD + damping * np.diag(np.diag(information_DD)), gradient_D)
            candidate_D = values_D + np.clip(move_D, -1, 1)
            value = _penalized(laid, candidate_D, start_G, mean_D, weight_D)
            if value > found:
                values_D, found, damping = candidate_D, value, damping / 5
                break
            damping = min(damping * 4, 1e4)
        for _ in range(8):
            start_G = _more_likely(laid, values_D, start_G)
        found = _penalized(laid, values_D, start_G, mean_D, weight_D)
        if found - before < ENOUGH_GAIN:
            break
    return values_D, start_G


def _prior() -> tuple[Floats, Floats]:
    """Prior means and inverse variances."""
    means, deviations = zip(*PRIOR.values(), strict=True)
    return np.array(means), np.array(deviations) ** -2.0


def logliks(laid: Visits, values_D: Floats, start_G: Floats, shift_PV: Floats | None = None) -> Floats:
    """Log-likelihood of each problem's counts, in nats, with its path shifted by `shift_PV`."""
    path = paths(laid, dynamics_of(values_D))
    if shift_PV is not None:
        path = replace(path, moved_PV=path.moved_PV + shift_PV)
    message_PG, scale_P = start_messages(laid, path)
    return np.asarray(np.log(message_PG @ start_G) + scale_P)


def _penalized(laid: Visits, values_D: Floats, start_G: Floats, mean_D: Floats, weight_D: Floats) -> float:
    return float(logliks(laid, values_D, start_G).sum() - 0.5 * (weight_D * (values_D - mean_D) ** 2).sum())


def _scores(laid: Visits, values_D: Floats, start_G: Floats, shift_PV: Floats | None = None) -> Floats:
    """Derivatives of each problem's log-likelihood, by finite differences."""
    here_P = logliks(laid, values_D, start_G, shift_PV)
    above = [logliks(laid, values_D + shift_D, start_G, shift_PV) for shift_D in STEP * np.eye(len(values_D))]
    return (np.array(above) - here_P).T / STEP


def _shared_noise(laid: Visits, values_D: Floats, generator: np.random.Generator) -> Floats:
    """A draw of what noise along the common direction and the skills does to the log-odds at each visit."""
    dynamics = dynamics_of(values_D)
    spread_T = np.sqrt(np.maximum(laid.shared * np.diff(clock_of(laid, dynamics)), 0))
    skills = laid.loadings_PK.shape[1]
    walk_TK = np.cumsum(spread_T[:, None] * generator.standard_normal((len(spread_T), 1 + skills)), 0)
    walk_VK = np.concatenate([np.zeros((1, 1 + skills)), walk_TK])[laid.before_PV]
    shared_PV = np.einsum("pk,pvk->pv", laid.loadings_PK, walk_VK[..., 1:])
    return np.asarray(np.sqrt(dynamics.common) * walk_VK[..., 0] + np.sqrt(dynamics.skills) * shared_PV)


def _covariance(laid: Visits, values_D: Floats, start_G: Floats) -> Floats:
    """Godambe's covariance with the weak prior; the scores' information where the curvature is not positive."""
    size, (_, weight_D) = len(values_D), _prior()
    score_PD = _scores(laid, values_D, start_G)
    generator = np.random.default_rng(0)
    spread_DD = score_PD.T @ score_PD + np.diag(weight_D)
    if laid.shared > 0:
        shifts = [_shared_noise(laid, values_D, generator) for _ in range(SHARED_DRAWS)]
        together_SD = np.array([_scores(laid, values_D, start_G, shift_PV).sum(0) for shift_PV in shifts])
        spread_DD = spread_DD + np.cov(together_SD.T)
    here_D = score_PD.sum(0)
    columns = [_scores(laid, values_D + shift_D, start_G).sum(0) - here_D for shift_D in STEP * np.eye(size)]
    bent_DD = -np.array(columns) / STEP
    bent_DD = (bent_DD + bent_DD.T) / 2 + np.diag(weight_D)
    values, vectors = np.linalg.eigh(bent_DD)
    inverse_DD = (vectors / np.maximum(values, weight_D.min())) @ vectors.T
    return np.asarray(inverse_DD @ spread_DD @ inverse_DD)


def _more_likely(laid: Visits, values_D: Floats, start_G: Floats) -> Floats:
    """One step of EM on the distribution of the ease."""
    message_PG, _ = start_messages(laid, paths(laid, dynamics_of(values_D)))
    weight_PG = message_PG * start_G
    sums_G = (weight_PG / weight_PG.sum(1, keepdims=True)).sum(0) + PSEUDO / len(GRID)
    return np.asarray(sums_G / sums_G.sum())


def _still(laid: Visits) -> float:
    """Log-likelihood of problems whose pass rates never change, with the start estimated in the same way."""
    still = Paths(np.zeros_like(laid.size_PV), np.zeros_like(laid.size_PV), np.zeros(len(laid.rows_P)), 0.0)
    message_PG, scale_P = start_messages(laid, still)
    start_G = np.full(len(GRID), 1 / len(GRID))
    for _ in range(40):
        weight_PG = message_PG * start_G
        sums_G = (weight_PG / weight_PG.sum(1, keepdims=True)).sum(0) + PSEUDO / len(GRID)
        start_G = sums_G / sums_G.sum()
    return float((np.log(message_PG @ start_G) + scale_P).sum())
