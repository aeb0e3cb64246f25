"""Which problems learn together: loadings by order of ease or by the problems' features, as foretells a log best.

Every choice has the same parameters, so what decides is how likely a fit to the first steps of a log makes the counts
of its last steps. The order of ease is estimated from the same counts: on those that it has seen it looks better than
it is.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.simulation.evidence import Evidence, Visits, visits
from halfway.curriculum.simulation.fitting import by_ease, likeliest, logliks
from halfway.curriculum.simulation.skills import Floats, Positions, bumps, unit

EASE = "order of ease"
MOST_KINDS, SKILLS = 32, 8
FIRST = 0.6
"""Share of the steps that the held-out ones are foretold from."""
SOME, FEW = 200, 15
"""Problems, and iterations, of a fit that only compares."""


def feature_loadings(problems: ProblemSet) -> dict[str, Floats]:
    """Loadings by each feature that all problems have: words and few numbers one skill each, other numbers neighbours,
    vectors as they are; features that tell no problems apart, or all of them, are left out."""
    names = set.intersection(*(set(problem.features) for problem in problems)) if len(problems) else set()
    found = {}
    for name in sorted(names):
        values = [problem.features[name] for problem in problems]
        kinds = set(values)
        if len(kinds) < 2:
            continue
        if all(isinstance(value, tuple) for value in kinds):
            found[name] = unit(np.array(values, np.float64))
        elif len(kinds) <= min(MOST_KINDS, len(problems) // 2):
            place = {kind: i for i, kind in enumerate(sorted(kinds, key=str))}
            found[name] = np.eye(len(kinds))[[place[value] for value in values]]
        elif all(isinstance(value, int | float) for value in kinds):
            rank_P = np.argsort(np.argsort(np.array(values, np.float64), kind="stable"), kind="stable")
            found[name] = bumps((rank_P + 0.5) / len(rank_P), SKILLS)
    return found


def held_out(evidence: Evidence, loadings_PK: Floats, groups_per_update: int = 0, pace: float = 0.0) -> float:
    """Mean log-likelihood of the groups of the last steps given those of the first, fitted to the first; in nats."""
    first = _before(evidence, int(FIRST * evidence.steps))
    laid = visits(first, loadings_PK, groups_per_update, SOME, pace)
    values_D, start_G = likeliest(laid, FEW)
    whole = _only(visits(evidence, loadings_PK, groups_per_update, None, pace), laid.rows_P)
    gained = float(logliks(whole, values_D, start_G).sum() - logliks(laid, values_D, start_G).sum())
    return gained / max(int((whole.size_PV > 0).sum() - (laid.size_PV > 0).sum()), 1)


def closest_kin(
    evidence: Evidence, problems: ProblemSet, groups_per_update: int = 0, pace: float = 0.0
) -> tuple[str, Floats]:
    """What to call the best loadings, and the loadings; the order of ease where no feature foretells the log better."""
    options = feature_loadings(problems)
    if options and evidence.steps >= 2:
        first = _before(evidence, int(FIRST * evidence.steps))
        early_PK = _padded(by_ease(first, groups_per_update), len(problems))
        scores = {name: held_out(evidence, each, groups_per_update, pace) for name, each in options.items()}
        best = max(scores, key=lambda name: scores[name])
        if scores[best] > held_out(evidence, early_PK, groups_per_update, pace):
            return best, options[best]
    return EASE, _padded(by_ease(evidence, groups_per_update), len(problems))


def _before(evidence: Evidence, step: int) -> Evidence:
    return evidence.where(evidence.step_G < step)


def _only(laid: Visits, rows_P: Positions) -> Visits:
    """Of these problems, which are all in it; the updates are those of all."""
    kept_P = np.isin(laid.rows_P, rows_P)
    return replace(
        laid,
        rows_P=rows_P,
        loadings_PK=laid.loadings_PK[kept_P],
        passed_PV=laid.passed_PV[kept_P],
        size_PV=laid.size_PV[kept_P],
        before_PV=laid.before_PV[kept_P],
        pull_PV=laid.pull_PV[kept_P],
        at_PV=laid.at_PV[kept_P],
    )


def _padded(loadings_PK: Floats, problems: int) -> Floats:
    """With rows for problems after the last one that has groups."""
    missing: Sequence[int] = (problems - len(loadings_PK), loadings_PK.shape[1])
    return unit(np.concatenate([loadings_PK, np.zeros(missing)]))
