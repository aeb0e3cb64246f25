"""Ranks chains for a log: fits a learner, plays every chain on learners drawn from the fit, and compares them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from halfway.curriculum.simulation.fitting import Fit, fit
from halfway.curriculum.simulation.kinship import EASE, closest_kin
from halfway.curriculum.simulation.skills import Course, Floats, SkillLearner
from halfway.experiments.advice.candidates import BASELINE, Candidate, refusal
from halfway.experiments.advice.logs import LoggedRun
from halfway.experiments.advice.model_error import CONFIDENT, EXACT, LAB
from halfway.experiments.advice.play import Played, Setting, play

RECOVERY = (1.0, 9.0)
"""Beta distribution of what a plain log does not tell: the chance to pass after an error, relative to before it."""
LEAST_GROUPS, LEAST_MIXED, LEAST_AGAIN, LEAST_GAIN = 200, 40, 1.5, 6.0
CLEAR = 0.95
TUNING = 1
"""Number of learners on which each chain's learning rate is chosen, with half of the budget; they do not count."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a log hardly tells about its learner, so that it has to be assumed.

    Attributes:
        paces: values of the log's learning rate divided by the best learning rate; 0 = noise does no harm. The draws
            take them in turn.
        shared: share of the noise that problems have in common.
        features: whether problems learn together by the feature that predicts the log best, instead of by their order
            of ease.
        factors: factors on the log's learning rate; each chain gets the best of them.
    """

    paces: tuple[float, ...] = (0.0,)
    shared: float = 1.0
    features: bool = False
    factors: tuple[float, ...] = (1.0,)


USUAL = Assumptions()


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one chain in the ranking.

    Attributes:
        score: pass rate on new problems of the same kinds when the budget is spent, mean over draws.
        low, high: 95 % interval over draws, of fit and simulation together.
        lead, spread: simulated lead over the plain chain on the same learner: mean and standard deviation over draws.
        ahead: lead to be expected in training, taking the simulation's error into account.
        ahead_low, ahead_high: 95 % interval of that lead.
        better: chance that it is ahead of the plain chain.
        factor: its learning rate, divided by the log's.
    """

    candidate: Candidate
    score: float
    low: float
    high: float
    lead: float
    spread: float
    ahead: float
    ahead_low: float
    ahead_high: float
    better: float
    steps: float
    degenerate: float
    trained_groups: float
    idle: bool
    factor: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """The advice for the next run, with everything that it rests on.

    Attributes:
        rows: the chains, best first; none if the log does not tell enough.
        refused: why chains were not played, by chain.
        missing: what the log lacks; empty if it tells enough.
        plays: the outcomes on each draw, by chain.
        factors: the learning rate divided by the log's, by chain.
        kinship: what decides which problems learn together: a feature, or their order of ease.
    """

    run: LoggedRun
    setting: Setting
    fitted: Fit | None
    rows: tuple[Row, ...]
    refused: dict[str, str]
    missing: tuple[str, ...]
    plays: dict[str, list[Played]]
    factors: Mapping[str, float] = field(default_factory=dict)
    kinship: str = EASE

    @property
    def baseline(self) -> Row | None:
        return next((row for row in self.rows if row.candidate.name == BASELINE), None)

    @property
    def clear(self) -> Row | None:
        """The chain to take: the best of those that are almost surely ahead of the plain chain; None = stay."""
        others = [row for row in self.rows if row.candidate.name != BASELINE]
        return next((row for row in others if row.better >= CLEAR and row.ahead_low > 0), None)

    @property
    def nearest(self) -> Row | None:
        """The best of the chains that are ahead of the plain chain in simulation, if none is clearly ahead."""
        best = None if self.clear else next(iter(self.rows), None)
        return best if best is not None and best.lead > 0 else None


def lacking(run: LoggedRun) -> tuple[str, ...]:
    """What a log would have to hold before anything can be fitted to it."""
    evidence = run.evidence
    fresh = evidence.fresh_G
    size_G, passed_G = evidence.size_G[fresh], evidence.passed_G[fresh]
    mixed = int(((passed_G > 0) & (passed_G < size_G)).sum())
    again = int(fresh.sum()) / max(len(np.unique(evidence.problem_G[fresh])), 1)
    found = []
    if fresh.sum() < LEAST_GROUPS:
        found.append(f"{int(fresh.sum())} groups without prefix or hint: log at least {LEAST_GROUPS}")
    if len(size_G) and size_G.max() < 2:
        found.append("one rollout per group: log groups of several rollouts of a problem")
    if mixed < LEAST_MIXED:
        found.append(
            f"{mixed} groups with successes and failures: log groups before any filter, at least {LEAST_MIXED}"
        )
    if again < LEAST_AGAIN:
        found.append(f"{again:.1f} visits per problem: log problem ids that stay the same, over more than one epoch")
    if len(size_G) and not ((passed_G == 0) | (passed_G == size_G)).any():
        found.append("no group that all passed or none did: switch the filter off, or log what it drops")
    return tuple(found)


def advise(
    run: LoggedRun,
    chains: Sequence[Candidate],
    setting: Setting,
    draws: int = 12,
    seed: int = 0,
    progress: Callable[[int, str], None] = lambda draw, name: None,
    assumed: Assumptions = USUAL,
) -> Advice:
    """Rank chains for a run like the logged one.

    Args:
        setting: the shared settings; each chain may spend their budget.
        draws: number of learners on which the chains are played, each drawn from the fit with an ease for every
            problem.
    """
    missing = lacking(run)
    if missing:
        return Advice(run, setting, None, (), {}, missing, {})
    kinship, loadings_PK = _kin(run, setting.groups_per_update, assumed)
    fitted = fit(run.evidence, loadings_PK, setting.groups_per_update, pace=assumed.paces[0], shared=assumed.shared)
    if fitted.loglik - fitted.still_loglik < LEAST_GAIN:
        gained = fitted.loglik - fitted.still_loglik
        told = f"pass rates that hardly change ({gained:.1f} nats against no learning): log a run that learns"
        return Advice(run, setting, fitted, (), {}, (told,), {})
    reasons = {candidate.name: refusal(candidate, run.problems) for candidate in chains}
    playable = [candidate for candidate in chains if not reasons[candidate.name]]
    fits = [fitted, *(fitted.at_pace(pace) for pace in assumed.paces[1:])]
    world = World(run, fits, setting, seed, assumed.factors)
    factors = {candidate.name: world.tuned(candidate, progress) for candidate in playable}
    plays: dict[str, list[Played]] = {candidate.name: [] for candidate in playable}
    for draw in range(draws):
        for candidate in playable:
            progress(draw, candidate.name)
            plays[candidate.name].append(world.played(candidate, draw, factors[candidate.name]))
    rows = sorted((_row(candidate, plays, factors) for candidate in playable), key=lambda row: -row.score)
    refused = {name: why for name, why in reasons.items() if why}
    return Advice(run, setting, fitted, tuple(rows), refused, (), plays, factors, kinship)


def _kin(run: LoggedRun, groups_per_update: int, assumed: Assumptions) -> tuple[str, Floats | None]:
    if not assumed.features:
        return EASE, None
    return closest_kin(run.evidence, run.problems, groups_per_update, assumed.paces[0])


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The learners drawn from fits to a log, on each of which every chain is played.

    Attributes:
        fits: the fits, which the draws take in turn.
        factors: as in `Assumptions`.
    """

    run: LoggedRun
    fits: Sequence[Fit]
    setting: Setting
    seed: int
    factors: tuple[float, ...]

    def tuned(self, candidate: Candidate, progress: Callable[[int, str], None]) -> float:
        """The chain's factor on the learning rate with the largest area under the curve over half of the budget."""
        if len(self.factors) == 1:
            return self.factors[0]
        half = replace(self, setting=replace(self.setting, budget=self.setting.budget / 2))
        areas = dict.fromkeys(self.factors, 0.0)
        for draw in range(-TUNING, 0):
            for factor in self.factors:
                progress(draw, candidate.name)
                areas[factor] += half.played(candidate, draw, factor).area
        return max(self.factors, key=lambda factor: areas[factor])

    def played(self, candidate: Candidate, draw: int, factor: float) -> Played:
        """A chain's outcome on one draw of the learner; for equal draws, every chain meets the same learner."""
        generator = np.random.default_rng([self.seed, draw % 2**32])
        fitted = self.fits[draw % len(self.fits)]
        dynamics, ease_P = fitted.draw(generator)
        recovery = float(generator.beta(*RECOVERY))
        dynamics = replace(dynamics, recovery=recovery, rate=dynamics.rate * factor)
        course = Course.of(ease_P, fitted.laid.loadings_PK)
        learner = SkillLearner(course, dynamics, np.random.SeedSequence([self.seed, draw % 2**32]))
        fill = candidate.filling(self.run.groups)
        return play(candidate.chain(), self.run.problems, learner, fill, self.setting, self.seed + draw % 2**16)


def _row(candidate: Candidate, plays: Mapping[str, list[Played]], factors: Mapping[str, float]) -> Row:
    own = plays[candidate.name]
    score_D = np.array([played.scores[-1] for played in own])
    plain_D = np.array([played.scores[-1] for played in plays.get(BASELINE, own)])
    lead_D = score_D - plain_D
    lead, spread = float(lead_D.mean()), float(lead_D.std(ddof=1)) if len(lead_D) > 1 else math.inf
    same = not lead_D.any()  # the plain chain, or one that does the same
    error, ahead_of = (EXACT, (0.0, 0.0)) if same else (LAB, (lead, spread))
    ahead, deviation = error.expected(*ahead_of)
    return Row(
        candidate,
        float(score_D.mean()),
        *_range(score_D),
        lead,
        spread,
        ahead,
        *error.interval(*ahead_of),
        better=NormalDist().cdf(ahead / deviation) if deviation else 0.0,
        steps=float(np.mean([played.steps for played in own])),
        degenerate=float(np.mean([played.degenerate for played in own])),
        trained_groups=float(np.mean([played.trained_groups for played in own])),
        idle=any(played.idle for played in own),
        factor=factors[candidate.name],
    )


def _range(values_D: np.ndarray) -> tuple[float, float]:
    """The interval that holds 95 % of the draws, estimated from mean and standard deviation, since draws are few."""
    spread = CONFIDENT * float(values_D.std(ddof=1)) if len(values_D) > 1 else math.inf
    return float(values_D.mean()) - spread, float(values_D.mean()) + spread
