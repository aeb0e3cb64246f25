"""Which problems learn together: loadings by order of ease or by features, whichever predict a log best.

Every choice has the same parameters, so the choice is made by how likely a fit to a log's first steps makes the counts
of its last steps. The order of ease is estimated from counts; on the counts that it has seen, it would look better than
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
"""Share of the steps from which the held-out steps are predicted."""
SOME, FEW = 200, 15
"""Numbers of problems and of iterations in a fit that is used only for comparison."""


def feature_loadings(problems: ProblemSet) -> dict[str, Floats]:
    """Loadings by each feature that all problems have: one skill per word, or per number if there are few; other
    numbers make neighbours; vectors stay as they are. Features that distinguish no problems, or all, are left out."""
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
    """Mean log-likelihood, in nats, of the last steps' groups given the first steps' groups, fitted to the first."""
    first = _before(evidence, int(FIRST * evidence.steps))
    laid = visits(first, loadings_PK, groups_per_update, SOME, pace)
    values_D, start_G = likeliest(laid, FEW)
    whole = _only(visits(evidence, loadings_PK, groups_per_update, None, pace), laid.rows_P)
    gained = float(logliks(whole, values_D, start_G).sum() - logliks(laid, values_D, start_G).sum())
    return gained / max(int((whole.size_PV > 0).sum() - (laid.size_PV > 0).sum()), 1)


def closest_kin(
    evidence: Evidence, problems: ProblemSet, groups_per_update: int = 0, pace: float = 0.0
) -> tuple[str, Floats]:
    """Name of the best loadings, and the loadings; the order of ease where no feature predicts the log better."""
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
    """The visits of these problems only, all of which it contains; the updates still include all problems."""
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
    """The loadings with rows for problems after the last problem that has groups."""
    missing: Sequence[int] = (problems - len(loadings_PK), loadings_PK.shape[1])
    return unit(np.concatenate([loadings_PK, np.zeros(missing)]))
