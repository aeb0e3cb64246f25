"""Pass counts of the same held-out problems before and after training, as the simulated learner predicts them.

What was trained on in between is not known, so the learner is simulated: problems whose ease is distributed as the
counts before suggest, a few dozen large updates in place of thousands of small ones, and several replicas. Pairs are
treated as independent, given the count before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halfway.curriculum.simulation.fitting import GRID
from halfway.curriculum.simulation.skills import (
    Course,
    Dynamics,
    Floats,
    Lessons,
    Positions,
    SkillLearner,
    bumps,
    lessons,
)

UPDATES, REPLICAS, PROBLEMS, SIZE, SKILLS = 40, 8, 128, 8, 8
NOISE = 10.0
BLUR = 0.01
"""Share of a uniform distribution over counts that is mixed into every prediction, so that no pair is impossible."""


@dataclass(frozen=True, slots=True, eq=False)
class PairTable:
    """Probability of k after, given k before: rows before, columns after, 0 to n."""

    after_KK: Floats

    def loglik(self, before_N: Positions, after_N: Positions) -> float:
        """Mean log-likelihood per pair, in nats."""
        return float(np.log(self.after_KK[before_N, after_N]).mean())


def ease_distribution(before_N: Positions, size: int, steps: int = 200) -> Floats:
    """Distribution of log-odds over `GRID` from counts of `size` attempts (nonparametric maximum likelihood by EM).

    Problems that no attempt solves may lie anywhere below; the flat start decides how far.
    """
    likely_KG = binomials(GRID, size).T
    counts_K = np.bincount(before_N, minlength=size + 1)
    share_G = np.full(len(GRID), 1 / len(GRID))
    for _ in range(steps):
        weight_KG = likely_KG * share_G
        share_G = (counts_K @ (weight_KG / weight_KG.sum(1, keepdims=True))) / counts_K.sum()
    return np.asarray(share_G)


def binomials(odds_N: Floats, size: int) -> Floats:
    """Probability of k = 0..size passes, at each of N log-odds."""
    counts = np.arange(size + 1)
    choose = np.cumsum(np.log(np.concatenate([[1.0], (size - counts[:-1]) / counts[1:]])))
    log_NK = choose + counts * odds_N[:, None] - size * np.logaddexp(0, odds_N)[:, None]
    return np.asarray(np.exp(log_NK))


def table(before_N: Floats, after_N: Floats, size: int) -> PairTable:
    """The table of a population with these log-odds before and after."""
    joint_KK = binomials(before_N, size).T @ binomials(after_N, size)
    given_KK = joint_KK / np.maximum(joint_KK.sum(1, keepdims=True), 1e-300)
    return PairTable((1 - BLUR) * given_KK + BLUR / (size + 1))


def still(share_G: Floats, size: int) -> PairTable:
    """Nothing changes: the count after is another draw of the same problem."""
    return shifted(share_G, size, 0.0)


def shifted(share_G: Floats, size: int, growth: float) -> PairTable:
    """One skill, uniform growth: every problem gains the same log-odds (the model of `simulator`)."""
    likely_GK = binomials(GRID, size)
    joint_KK = (likely_GK * share_G[:, None]).T @ binomials(GRID + growth, size)
    given_KK = joint_KK / np.maximum(joint_KK.sum(1, keepdims=True), 1e-300)
    return PairTable((1 - BLUR) * given_KK + BLUR / (size + 1))


def trained(share_G: Floats, size: int, dynamics: Dynamics, seed: int = 0) -> PairTable:
    """The table that a learner with these dynamics produces."""
    rng = np.random.default_rng(seed)
    quantile_RP = (np.arange(PROBLEMS) + rng.random((REPLICAS, PROBLEMS))) / PROBLEMS
    ease_RP = GRID[np.minimum(np.searchsorted(np.cumsum(share_G), quantile_RP), len(GRID) - 1)]
    ease_RP = ease_RP + (rng.random(ease_RP.shape) - 0.5) * (GRID[1] - GRID[0])
    place = bumps((np.arange(PROBLEMS) + 0.5) / PROBLEMS, SKILLS)
    learner = SkillLearner(Course(ease_RP, np.broadcast_to(place, (REPLICAS, *place.shape))), dynamics, seed)
    everywhere = np.broadcast_to(np.arange(PROBLEMS), ease_RP.shape)
    for _ in range(UPDATES):
        told = lessons(rng.binomial(SIZE, learner.rates()), np.full(ease_RP.shape, SIZE))
        learner.update(everywhere, Lessons(told.signal, told.energy, told.tokens))
    return table(ease_RP.ravel(), learner.logits(private=False).ravel(), size)


def fit_shift(share_G: Floats, size: int, before_N: Positions, after_N: Positions) -> float:
    """The uniform growth that makes the pairs likeliest."""
    growths = np.linspace(-4, 16, 81)
    return float(growths[np.argmax([shifted(share_G, size, g).loglik(before_N, after_N) for g in growths])])


def fit_dynamics(
    share_G: Floats, size: int, before_N: Positions, after_N: Positions, tries: int = 40, seed: int = 0
) -> Dynamics:
    """The dynamics that make the pairs likeliest, by random search: half of the tries anywhere, half near the best."""
    rng = np.random.default_rng(seed)
    found, best = Dynamics(rate=0.0), -np.inf
    point = np.zeros(4)
    for i in range(tries):
        anywhere = rng.normal([-0.5, 0.0, -0.5, 0.0], [1.2, 1.5, 1.0, 2.0])
        trial = anywhere if i < tries // 2 else point + rng.normal(0, 0.4, 4)
        dynamics = _dynamics(trial)
        value = trained(share_G, size, dynamics, seed).loglik(before_N, after_N)
        if value > best:
            found, best, point = dynamics, value, trial
    return found


def _dynamics(point: Sequence[float] | Floats) -> Dynamics:
    rate, common, private, interference = np.asarray(point, np.float64).tolist()
    whole = 1 + np.exp(common) + np.exp(private)
    return Dynamics(
        rate=float(np.exp(rate)),
        common=float(np.exp(common) / whole),
        private=float(np.exp(private) / whole),
        noise=NOISE,
        interference=float(np.exp(interference)),
    )
