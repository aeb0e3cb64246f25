"""A learner that behaves as models do: skills shared between problems, polarisation, forgetting, gradient noise.

The log-odds of problem i are z_i = ease_i + phi_i . theta. Its features have three parts, of unit length together:

    phi_i = (sqrt(c), sqrt(1 - c - d) l_i, sqrt(d) e_i)

one direction that all problems share, the problem's loadings l_i on K skills, and a direction of its own. So a gradient
on problem j moves problem i by K_ij = c + (1 - c - d) l_i . l_j + d [i = j], the kernel of the learning dynamics (Ren &
Sutherland 2024, "Learning dynamics of LLM finetuning", section 3; Jacot et al. 2018), here constant over training.

The gradient is the policy gradient of a coin with log-odds z: an outcome o has the score o - p. With leave-one-out
advantages the N scores of a group with k successes add up to k (N - k) / (N - 1), whatever p is. So a group without
both outcomes teaches nothing, and the dynamics polarise: problems near one half move fastest, those at 0 or 1 stay
there.

Each update is as long as an optimizer that divides by the size of recent gradients makes it (Adam's second moment, here
of the whole gradient), noise included: v = running mean of |gradient|^2 + noise, step = rate x gradient / sqrt(v).
Noise moves theta too, equally in all directions, which is how problems are forgotten that were not trained on. `shared`
says how much of it problems share by their kernel; the rest moves each problem by itself. Noise also does harm, since a
random change makes working weights work less well: to second order, every problem loses log-odds in proportion to the
squared length of what noise has added. The gain grows with the learning rate and the harm with its square, so there is
a best rate, at which harm takes half of the gain. Rollouts that train again bring the same noise again: after r times
there is r times as much, and the r-th time adds 2 r - 1 to its square.

All arrays have a leading axis R of independent replicas, which are simulated together; K skills, P problems, M groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfway.curriculum.groups import Group
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.support.errors import require

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Dynamics:
    """How a policy learns.

    Attributes:
        rate: length of an update without noise, along phi of what it trains on; in logits.
        common: c, the share of the kernel that all problems have in common.
        private: d, the share that is each problem's own. The rest belongs to the skills.
        noise: variance of a rollout's gradient around its mean, in units of its squared advantage.
        interference: share of the noise that each direction of theta gets.
        shared: share of that noise, from 0 to 1, which problems have in common according to the kernel.
        harm: log-odds that every problem loses per squared length that noise adds to theta.
        forget: share of what a problem learnt for itself that each optimizer step takes away.
        recovery: chance that a rollout which has already erred passes, relative to what it would be otherwise.
        memory: decay of the running mean v per optimizer step (Adam's beta_2).
    """

    rate: float = 0.1
    common: float = 0.3
    private: float = 0.2
    noise: float = 10.0
    interference: float = 0.3
    shared: float = 1.0
    harm: float = 0.0
    forget: float = 0.0
    recovery: float = 0.1
    memory: float = 0.95

    def __post_init__(self) -> None:
        for name in ("rate", "noise", "interference", "harm"):
            require(vars_of(self)[name] >= 0, f"dynamics.{name}", vars_of(self)[name], "give 0 or more")
        for name in ("common", "private", "shared", "forget", "recovery"):
            require(0 <= vars_of(self)[name] <= 1, f"dynamics.{name}", vars_of(self)[name], "give 0 to 1")
        require(self.common + self.private <= 1 + 1e-9, "dynamics.private", self.private, "give at most 1 - common")
        require(0 <= self.memory < 1, "dynamics.memory", self.memory, "give 0 to below 1")

    @property
    def skills(self) -> float:
        """The share of the kernel that comes from the loadings."""
        return max(0.0, 1 - self.common - self.private)


def vars_of(dynamics: Dynamics) -> dict[str, float]:
    """Field -> value."""
    return {name: getattr(dynamics, name) for name in dynamics.__slots__}


@dataclass(frozen=True, slots=True)
class Lessons:
    """What groups teach the learner, before normalisation over the batch.

    Attributes:
        signal: sum over rollouts of advantage x score, the gradient along the problem's phi.
        energy: sum over rollouts of the squared advantage, to which gradient noise is proportional.
        tokens: tokens in the loss, counted in whole rollouts.
        times: how often the same rollouts have trained, including this time; None = once.
    """

    signal: Floats
    energy: Floats
    tokens: Floats
    times: Floats | None = None

    @property
    def lasting(self) -> Floats:
        """The energy, weighted by how much it lengthens what noise adds to theta: equal noise adds up."""
        return self.energy if self.times is None else self.energy * (2 * self.times - 1)


def lessons(passed: ArrayLike, size: ArrayLike, given: ArrayLike = 0.0) -> Lessons:
    """The lessons of groups of which k of N passed, with equal weights and leave-one-out advantages.

    Where rollouts were given a share s of the way, what is left passes with q = p^(1 - s), if errors are as likely in
    every part. Then d logit(q) / d logit(p) = (1 - s) (1 - p) / (1 - q), which is above 1 for problems that hardly
    ever pass; q is estimated by (k + 1/2) / (N + 1).

    Args:
        given: s, the share of a rollout that was not left to it.
    """
    k, n, s = (np.asarray(x, np.float64) for x in (passed, size, given))
    others = np.maximum(n - 1, 1)
    q = (k + 0.5) / (n + 1)
    leverage = (1 - s) * (1 - q ** (1 / (1 - s))) / (1 - q)
    return Lessons(k * (n - k) / others * leverage, k * (n - k) * n / others**2 * (1 - s), n * (1 - s))


def lesson_of(group: Group, given: float, rate: float) -> tuple[float, float, float]:
    """The signal, energy and tokens of one group, with the weights and advantages from the controllers.

    A stored group trains with importance ratios p / (k / N) for its successes and (1 - p) / (1 - k / N) for its
    failures, at today's p: its scores then add up to N p (1 - p) N / (N - 1), which fades as the problem is learnt.
    Ratios above 1 are clipped in practice, so it never teaches more than it did at first.

    Args:
        rate: today's p.
    """
    plain = lessons(group.num_passed, group.size, given)
    if group.request.origin is Origin.STORED and not group.degenerate:
        share = group.num_passed / group.size
        fade = min(1.0, rate * (1 - rate) / (share * (1 - share)))
        return float(plain.signal) * fade, float(plain.energy) * fade, float(plain.tokens)
    if group.weights is None or group.size == 0:
        return float(plain.signal), float(plain.energy), float(plain.tokens)
    outcome_N = np.array([rollout.success for rollout in group.rollouts], np.float64)
    weight_N = group.weights_N
    if group.weights.advantages_N is not None:
        advantage_N = np.asarray(group.weights.advantages_N, np.float64)
    else:
        advantage_N = (outcome_N - outcome_N.mean()) * group.size / max(group.size - 1, 1)
    score_N = outcome_N - (outcome_N.sum() + 0.5) / (group.size + 1)
    leverage = float(lessons(1, 2, given).signal / lessons(1, 2).signal)
    energy = float((weight_N**2 * advantage_N**2).sum()) * (1 - given)
    return float((weight_N * advantage_N * score_N).sum()) * leverage, energy, float(weight_N.sum()) * (1 - given)


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """The problems of a learner.

    Attributes:
        ease_RP: log-odds of a pass at the start.
        loadings_RPK: loadings on the skills, of unit length along K.
    """

    ease_RP: Floats
    loadings_RPK: Floats

    @classmethod
    def of(cls, ease_P: ArrayLike, loadings_PK: ArrayLike | None = None) -> "Course":
        """One replica. Without loadings all problems have one skill in common."""
        ease_P = np.asarray(ease_P, np.float64)
        found = np.ones((len(ease_P), 1)) if loadings_PK is None else np.asarray(loadings_PK, np.float64)
        return cls(ease_P[None], found[None])


class SkillLearner:
    """A policy that has begun to learn; what it can do changes with `update`.

    Attributes:
        updates: optimizer steps so far.
        power_R: v, see the module's docstring.
        clock_R: variance that noise has added to each direction of theta so far.
        harm_R: log-odds that noise has cost every problem.
    """

    def __init__(self, course: Course, dynamics: Dynamics, seed: int | np.random.SeedSequence = 0):
        replicas, problems, skills = course.loadings_RPK.shape
        self.course, self.dynamics = course, dynamics
        self.generator = np.random.default_rng(seed)
        self.updates = 0
        self.power_R, self.clock_R, self.harm_R = np.zeros(replicas), np.zeros(replicas), np.zeros(replicas)
        self.common_R, self.skills_RK = np.zeros(replicas), np.zeros((replicas, skills))
        self._learnt_RP, self._learnt_at_RP = np.zeros((replicas, problems)), np.zeros((replicas, problems))
        self._walk_RP, self._walk_at_RP = np.zeros((replicas, problems)), np.zeros((replicas, problems))

    def logits(self, positions_RM: Positions | None = None, private: bool = True) -> Floats:
        """z of some problems, or of all.

        Args:
            private: whether to include what each problem learnt for itself; otherwise, z belongs to another problem of
                the same kind.
        """
        where = self._everywhere if positions_RM is None else positions_RM
        rows = np.arange(len(where))[:, None]
        dynamics, learnt_RM = self.dynamics, self._learnt(where)
        shared_RM = np.einsum("rmk,rk->rm", self.course.loadings_RPK[rows, where], self.skills_RK)
        own_RM = learnt_RM if private else np.zeros_like(learnt_RM)
        moved_RM = np.sqrt(dynamics.common) * self.common_R[:, None] + np.sqrt(dynamics.skills) * shared_RM
        ease_RM = self.course.ease_RP[rows, where] - self.harm_R[:, None]
        return np.asarray(ease_RM + moved_RM + np.sqrt(dynamics.private) * own_RM + self._walked(where))

    def rates(self, positions_RM: Positions | None = None, private: bool = True) -> Floats:
        """Pass rates, likewise."""
        return logistic(self.logits(positions_RM, private))

    def update(self, positions_RM: Positions, taught: Lessons) -> None:
        """One optimizer step on M groups of each replica; their loss is a mean over tokens."""
        dynamics, rows = self.dynamics, np.arange(len(positions_RM))[:, None]
        total_R = np.maximum(taught.tokens.sum(-1), 1e-12)
        pull_RM = taught.signal / total_R[:, None]
        noise_R = dynamics.noise * taught.energy.sum(-1) / total_R**2
        common_R = np.sqrt(dynamics.common) * pull_RM.sum(-1)
        loadings_RMK = self.course.loadings_RPK[rows, positions_RM]
        skills_RK = np.sqrt(dynamics.skills) * np.einsum("rm,rmk->rk", pull_RM, loadings_RMK)
        own_R = dynamics.private * (pull_RM**2).sum(-1)
        self.updates += 1
        fresh_R = common_R**2 + (skills_RK**2).sum(-1) + own_R + noise_R
        self.power_R = dynamics.memory * self.power_R + (1 - dynamics.memory) * fresh_R
        mean_R = self.power_R / (1 - dynamics.memory**self.updates)
        scale_R = np.where(mean_R > 0, dynamics.rate / np.sqrt(np.maximum(mean_R, 1e-300)), 0.0)
        lasting_R = scale_R**2 * dynamics.noise * taught.lasting.sum(-1) / total_R**2
        spread_R = dynamics.interference * lasting_R
        self.harm_R = self.harm_R + dynamics.harm * lasting_R
        together_R = dynamics.shared * spread_R
        self.common_R += scale_R * common_R + self._noise(together_R)
        self.skills_RK += scale_R[:, None] * skills_RK + self._noise(together_R[:, None], self.skills_RK.shape)
        self.clock_R = self.clock_R + spread_R
        learnt_RM = self._learnt(positions_RM)
        self._learnt_RP[rows, positions_RM], self._learnt_at_RP[rows, positions_RM] = learnt_RM, self.updates
        np.add.at(self._learnt_RP, (rows, positions_RM), np.sqrt(dynamics.private) * scale_R[:, None] * pull_RM)

    @property
    def _everywhere(self) -> Positions:
        replicas, problems = self.course.ease_RP.shape
        return np.broadcast_to(np.arange(problems), (replicas, problems))

    def _noise(self, variance: Floats, shape: tuple[int, ...] | None = None) -> Floats:
        if self.dynamics.noise * self.dynamics.interference == 0:
            return np.zeros(shape or variance.shape)
        return np.sqrt(variance) * self.generator.standard_normal(shape or variance.shape)

    def _learnt(self, where: Positions) -> Floats:
        """What problems have learnt for themselves and not forgotten."""
        rows = np.arange(len(where))[:, None]
        passed_RM = self.updates - self._learnt_at_RP[rows, where]
        kept_RM: Floats = self._learnt_RP[rows, where] * (1 - self.dynamics.forget) ** passed_RM
        return kept_RM

    def _walked(self, where: Positions) -> Floats:
        """What noise has done to each problem by itself, drawn when it is asked for, and once for equal positions."""
        alone = 1 - self.dynamics.shared * (1 - self.dynamics.private)  # of the variance of its log-odds
        rows = np.arange(len(where))[:, None]
        if alone * self.dynamics.noise * self.dynamics.interference > 0:
            due_RM = np.sqrt(alone * np.maximum(self.clock_R[:, None] - self._walk_at_RP[rows, where], 0))
            step_RM = due_RM * self.generator.standard_normal(due_RM.shape)
            self._walk_RP[rows, where] += step_RM  # the last of equal positions counts
            self._walk_at_RP[rows, where] = np.broadcast_to(self.clock_R[:, None], due_RM.shape)
        return np.asarray(self._walk_RP[rows, where])


def bumps(place_P: ArrayLike, skills: int, width: float = 1.0) -> Floats:
    """Loadings of problems that lie on a line of skills, each helped by its neighbours.

    Args:
        place_P: 0 to 1, easiest last.
        width: standard deviation of a skill's reach, in distances between skills.
    """
    place_P = np.asarray(place_P, np.float64)
    centres_K = (np.arange(skills) + 0.5) / skills
    return unit(np.exp(-0.5 * ((place_P[..., None] - centres_K) * skills / width) ** 2))


def unit(loadings_PK: Floats) -> Floats:
    """The rows at unit length; rows of zeros become equal in every skill."""
    length_P = np.linalg.norm(loadings_PK, axis=-1, keepdims=True)
    even = 1 / np.sqrt(loadings_PK.shape[-1])
    return np.where(length_P > 0, loadings_PK / np.where(length_P > 0, length_P, 1), even)


def logistic(z: ArrayLike) -> Floats:
    """1 / (1 + exp(-z)) without overflow."""
    return np.asarray((1 + np.tanh(np.asarray(z, np.float64) / 2)) / 2)
