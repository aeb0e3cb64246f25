"""From a log to a ranking: fit, play every chain on learners that the log makes likely, compare within a learner."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from halfway.curriculum.simulation.fitting import Fit, fit
from halfway.curriculum.simulation.skills import Course, SkillLearner
from halfway.experiments.advice.candidates import BASELINE, Candidate, refusal
from halfway.experiments.advice.logs import LoggedRun
from halfway.experiments.advice.play import Played, Setting, play

RECOVERY = (1.0, 9.0)
"""Beta distribution of what a plain log does not tell: what a rollout that has erred keeps of its chance."""
LEAST_GROUPS, LEAST_MIXED, LEAST_AGAIN, LEAST_GAIN = 200, 40, 1.5, 6.0
CLEAR = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """A chain in the ranking.

    Attributes:
        score: pass rate of new problems of the same kinds when the budget is spent, mean over draws.
        low, high: 95 % interval over draws, of fit and simulation together.
        ahead: mean lead over the plain chain on the same learner; ahead_low, ahead_high: 95 % interval.
        better: share of draws in which it is ahead of the plain chain.
    """

    candidate: Candidate
    score: float
    low: float
    high: float
    ahead: float
    ahead_low: float
    ahead_high: float
    better: float
    steps: float
    degenerate: float
    trained_groups: float
    idle: bool


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What to do next time.

    Attributes:
        rows: best first; none if the log does not tell.
        refused: chain -> why it was not played.
        missing: what the log would have to hold; empty if it tells enough.
        plays: chain -> its outcome on each draw.
    """

    run: LoggedRun
    setting: Setting
    fitted: Fit | None
    rows: tuple[Row, ...]
    refused: dict[str, str]
    missing: tuple[str, ...]
    plays: dict[str, list[Played]]

    @property
    def baseline(self) -> Row | None:
        return next((row for row in self.rows if row.candidate.name == BASELINE), None)

    @property
    def clear(self) -> Row | None:
        """The chain to take: of those that are almost surely ahead of the plain one, the best. None = stay."""
        others = [row for row in self.rows if row.candidate.name != BASELINE]
        return next((row for row in others if row.better >= CLEAR and row.ahead_low > 0), None)


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
) -> Advice:
    """Rank chains for a run like the logged one.

    Args:
        setting: its budget is what each chain may spend.
        draws: learners that the chains are played on; each is drawn from the fit, with an ease of every problem.
    """
    missing = lacking(run)
    if missing:
        return Advice(run, setting, None, (), {}, missing, {})
    fitted = fit(run.evidence, groups_per_update=setting.groups_per_update)
    if fitted.loglik - fitted.still_loglik < LEAST_GAIN:
        gained = fitted.loglik - fitted.still_loglik
        told = f"pass rates that hardly change ({gained:.1f} nats against no learning): log a run that learns"
        return Advice(run, setting, fitted, (), {}, (told,), {})
    reasons = {candidate.name: refusal(candidate, run.problems) for candidate in chains}
    playable = [candidate for candidate in chains if not reasons[candidate.name]]
    plays: dict[str, list[Played]] = {candidate.name: [] for candidate in playable}
    for draw in range(draws):
        generator = np.random.default_rng([seed, draw])
        dynamics, ease_P = fitted.draw(generator)
        dynamics = replace(dynamics, recovery=float(generator.beta(*RECOVERY)))
        for candidate in playable:
            progress(draw, candidate.name)
            learner = SkillLearner(
                Course.of(ease_P, fitted.laid.loadings_PK), dynamics, np.random.SeedSequence([seed, draw])
            )
            fill = candidate.filling(run.groups)
            plays[candidate.name].append(play(candidate.chain(), run.problems, learner, fill, setting, seed + draw))
    rows = sorted((_row(candidate, plays) for candidate in playable), key=lambda row: -row.score)
    return Advice(run, setting, fitted, tuple(rows), {k: why for k, why in reasons.items() if why}, (), plays)


def _row(candidate: Candidate, plays: dict[str, list[Played]]) -> Row:
    own = plays[candidate.name]
    score_D = np.array([played.scores[-1] for played in own])
    plain_D = np.array([played.scores[-1] for played in plays.get(BASELINE, own)])
    ahead_D = score_D - plain_D
    return Row(
        candidate,
        float(score_D.mean()),
        *_range(score_D),
        float(ahead_D.mean()),
        *_range(ahead_D),
        better=_chance_above(ahead_D),
        steps=float(np.mean([played.steps for played in own])),
        degenerate=float(np.mean([played.degenerate for played in own])),
        trained_groups=float(np.mean([played.trained_groups for played in own])),
        idle=any(played.idle for played in own),
    )


def _range(values_D: np.ndarray) -> tuple[float, float]:
    """The interval that holds 95 % of draws, which are few: mean and standard deviation stand for them."""
    spread = 1.96 * float(values_D.std(ddof=1)) if len(values_D) > 1 else math.inf
    return float(values_D.mean()) - spread, float(values_D.mean()) + spread


def _chance_above(values_D: np.ndarray) -> float:
    """Chance that a draw is above 0, likewise."""
    if len(values_D) < 2 or values_D.std(ddof=1) == 0:
        return float((values_D > 0).mean())
    return NormalDist().cdf(float(values_D.mean() / values_D.std(ddof=1)))
