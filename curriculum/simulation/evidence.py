"""A log's groups, arranged for the fit, and what they did to a learner with given dynamics."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.simulation.skills import Dynamics, Floats, Positions, lessons

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The G groups of a run, in order.

    Attributes:
        problem_G: position of each group's problem.
        step_G: training step, in ascending order.
        passed_G, size_G: k and N.
        given_G: share of a rollout that a prefix or a hint provided.
        fresh_G: whether it is evidence on the problem's own pass rate.
        trained_G: whether it was in its step's update.
    """

    problem_G: Positions
    step_G: Positions
    passed_G: Positions
    size_G: Positions
    given_G: Floats
    fresh_G: Flags
    trained_G: Flags

    @property
    def problems(self) -> int:
        """One more than the last position."""
        return int(self.problem_G.max()) + 1 if len(self.problem_G) else 0

    @property
    def steps(self) -> int:
        return int(self.step_G.max()) + 1 if len(self.step_G) else 0

    def where(self, chosen_G: Flags) -> "Evidence":
        """The evidence of the chosen groups only."""
        return Evidence(*(getattr(self, name)[chosen_G] for name in self.__slots__))

    @classmethod
    def of_counts(cls, problem_G: Positions, step_G: Positions, passed_G: Positions, size_G: Positions) -> "Evidence":
        """Evidence from a log that has only counts: every group is fresh, and trains if it has both outcomes."""
        order = np.argsort(step_G, kind="stable")
        problem, step, passed, size = (np.asarray(x, np.int64)[order] for x in (problem_G, step_G, passed_G, size_G))
        mixed = (passed > 0) & (passed < size)
        return cls(problem, step, passed, size, np.zeros(len(step)), np.ones(len(step), np.bool_), mixed)


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """Evidence by problem: row p holds a problem's groups in order, padded to V columns.

    Whatever does not depend on the dynamics is computed once. There are T optimizer steps.

    Attributes:
        rows_P: positions of the problems.
        passed_PV, size_PV: k and N; size 0 where a group is not evidence on its problem's own pass rate.
        before_PV: number of optimizer steps before the group was rolled out.
        pull_PV: what the group contributes to its update; 0 if it did not train.
        at_PV: index of that update.
        common_T, skills_TK, own_T: each update in the three parts of phi.
        energy_T: each update's noise.
        pace: the log's learning rate divided by the best learning rate; 0 = noise does no harm.
        shared: the part of the noise that problems have in common, see `Dynamics`.
    """

    rows_P: Positions
    loadings_PK: Floats
    passed_PV: Floats
    size_PV: Floats
    before_PV: Positions
    pull_PV: Floats
    at_PV: Positions
    common_T: Floats
    skills_TK: Floats
    own_T: Floats
    energy_T: Floats
    pace: float = 0.0
    shared: float = 1.0


def visits(
    evidence: Evidence,
    loadings_PK: Floats,
    groups_per_update: int = 0,
    most: int | None = None,
    pace: float = 0.0,
) -> Visits:
    """Arrange the groups by problem.

    Args:
        groups_per_update: groups in a mini-batch; a step makes the number of updates that brings them closest to this
            size; 0 = one update per step.
        pace: see `Visits`.
        most: largest number of problems that are arranged, evenly spaced; the updates include all problems. None = all.
    """
    update_G, before_G, total = _updates(evidence, groups_per_update)
    taught = lessons(evidence.passed_G, np.maximum(evidence.size_G, 1), evidence.given_G)
    tokens_T = np.zeros(total)
    trains = update_G >= 0
    np.add.at(tokens_T, update_G[trains], taught.tokens[trains])
    whole_G = np.where(trains, tokens_T[update_G], 1.0) if total else np.ones(len(update_G))
    pull_G = np.where(trains, taught.signal / np.maximum(whole_G, 1e-12), 0.0)
    energy_G = np.where(trains, taught.energy / np.maximum(whole_G, 1e-12) ** 2, 0.0)
    common_T, own_T, energy_T = np.zeros(total), np.zeros(total), np.zeros(total)
    skills_TK = np.zeros((total, loadings_PK.shape[1]))
    np.add.at(common_T, update_G[trains], pull_G[trains])
    np.add.at(own_T, update_G[trains], pull_G[trains] ** 2)
    np.add.at(energy_T, update_G[trains], energy_G[trains])
    np.add.at(skills_TK, update_G[trains], pull_G[trains, None] * loadings_PK[evidence.problem_G[trains]])
    rows_P = np.unique(evidence.problem_G)
    if most is not None and len(rows_P) > most:
        rows_P = rows_P[np.linspace(0, len(rows_P) - 1, most).astype(np.int64)]
    row_G, column_G = _places(evidence.problem_G, rows_P)
    chosen = row_G >= 0
    shape = (len(rows_P), int(column_G[chosen].max()) + 1 if chosen.any() else 0)

    def laid(values_G: Floats | Positions, dtype: type) -> NDArray[Any]:
        table: NDArray[Any] = np.zeros(shape, dtype)
        table[row_G[chosen], column_G[chosen]] = values_G[chosen]
        return table

    return Visits(
        rows_P,
        loadings_PK[rows_P],
        laid(np.where(evidence.fresh_G, evidence.passed_G, 0), np.float64),
        laid(np.where(evidence.fresh_G, evidence.size_G, 0), np.float64),
        laid(before_G, np.int64),
        laid(pull_G, np.float64),
        laid(np.maximum(update_G, 0), np.int64),
        common_T,
        skills_TK,
        own_T,
        energy_T,
        pace,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """What a learner with given dynamics did in a log's updates.

    Attributes:
        moved_PV: the log-odds that a problem had gained by each visit, apart from noise.
        clock_PV: the variance that noise had added to them.
        gained_P, clock: both after the last update.
        harm: log-odds lost per squared length that noise added; see `paths`.
    """

    moved_PV: Floats
    clock_PV: Floats
    gained_P: Floats
    clock: float
    harm: float = 0.0


def paths(laid: Visits, dynamics: Dynamics) -> Paths:
    """Follow the updates of a log. The gradient depends on outcomes only, so nothing has to be guessed.

    The harm is not taken from the dynamics, since one log cannot tell it apart from slow learning: it takes the share
    pace / 2 of the mean gain, as at a learning rate of pace times the best learning rate.
    """
    common, skills, private = dynamics.common, dynamics.skills, dynamics.private
    scale_T, clock_T = _scales(laid, dynamics), clock_of(laid, dynamics)
    common_T = np.concatenate([[0.0], np.cumsum(scale_T * laid.common_T)])
    skills_TK = np.concatenate(
        [np.zeros((1, laid.skills_TK.shape[1])), np.cumsum(scale_T[:, None] * laid.skills_TK, 0)]
    )
    before_PV = laid.before_PV
    moved_PV = common * common_T[before_PV]
    moved_PV += skills * np.einsum("pk,pvk->pv", laid.loadings_PK, skills_TK[before_PV])
    kept, own_P, at_P = 1 - dynamics.forget, np.zeros(len(laid.rows_P)), np.zeros(len(laid.rows_P), np.int64)
    for v in range(before_PV.shape[1]):
        now_P = np.maximum(before_PV[:, v], at_P)
        own_P, at_P = own_P * kept ** (now_P - at_P), now_P
        moved_PV[:, v] += private * own_P
        trained_P, after_P = laid.pull_PV[:, v] != 0, laid.at_PV[:, v] + 1
        learnt_P = laid.pull_PV[:, v] * scale_T[after_P - 1] if len(scale_T) else 0.0
        own_P = np.where(trained_P, own_P * kept ** np.maximum(after_P - at_P, 0) + learnt_P, own_P)
        at_P = np.where(trained_P, after_P, at_P)
    length_T = np.concatenate([[0.0], np.cumsum(scale_T**2 * dynamics.noise * laid.energy_T)])
    gained_P = common * common_T[-1] + skills * laid.loadings_PK @ skills_TK[-1]
    own_P = own_P * kept ** np.maximum(len(scale_T) - at_P, 0)
    gained_P = gained_P + private * own_P
    harm = laid.pace / 2 * max(0.0, float(gained_P.mean())) / max(length_T[-1], 1e-300)
    return Paths(
        moved_PV - harm * length_T[before_PV],
        clock_T[before_PV],
        gained_P - harm * length_T[-1],
        float(clock_T[-1]),
        harm,
    )


def clock_of(laid: Visits, dynamics: Dynamics) -> Floats:
    """The variance that noise has added to each direction of theta, before the updates and after each."""
    spread_T = dynamics.interference * _scales(laid, dynamics) ** 2 * dynamics.noise * laid.energy_T
    return np.concatenate([[0.0], np.cumsum(spread_T)])


def _scales(laid: Visits, dynamics: Dynamics) -> Floats:
    """The length of each update divided by the length of its gradient."""
    skills_T = dynamics.skills * (laid.skills_TK**2).sum(1)
    power_T = dynamics.common * laid.common_T**2 + skills_T + dynamics.private * laid.own_T
    power_T = power_T + dynamics.noise * laid.energy_T
    scale_T = dynamics.rate / np.sqrt(np.maximum(_running(power_T, dynamics.memory), 1e-300))
    return np.where(power_T > 0, scale_T, 0.0)


def _running(power_T: Floats, memory: float) -> Floats:
    """The running mean, with Adam's correction for its start at 0."""
    mean, found_T = 0.0, np.empty(len(power_T))
    for t, power in enumerate(power_T.tolist()):
        mean = memory * mean + (1 - memory) * power
        found_T[t] = mean / (1 - memory ** (t + 1))
    return found_T


def _updates(evidence: Evidence, groups_per_update: int) -> tuple[Positions, Positions, int]:
    """Each group's optimizer step (-1 = none), the number of steps before its rollouts, and the number of all steps."""
    update_G = np.full(len(evidence.step_G), -1, np.int64)
    before_G = np.zeros(len(evidence.step_G), np.int64)
    bounds = np.searchsorted(evidence.step_G, np.arange(evidence.steps + 1))
    total = 0
    for start, end in pairwise(bounds.tolist()):
        before_G[start:end] = total
        trained = start + np.flatnonzero(evidence.trained_G[start:end])
        parts = updates_of(len(trained), groups_per_update)
        for part in np.array_split(trained, parts) if parts else ():
            update_G[part] = total
            total += 1
    return update_G, before_G, total


def updates_of(groups: int, groups_per_update: int) -> int:
    """Number of optimizer steps on this many groups."""
    if groups == 0:
        return 0
    return max(1, int(groups / groups_per_update + 0.5)) if groups_per_update else 1


def _places(problem_G: Positions, rows_P: Positions) -> tuple[Positions, Positions]:
    """Row and column of each group in a table by problem; row -1 = it is not in the table."""
    found = np.searchsorted(rows_P, problem_G)
    row_G = np.where((found < len(rows_P)) & (rows_P[np.minimum(found, len(rows_P) - 1)] == problem_G), found, -1)
    order = np.argsort(row_G, kind="stable")
    sorted_G = row_G[order]
    first = np.searchsorted(sorted_G, sorted_G)
    column_G = np.empty(len(row_G), np.int64)
    column_G[order] = np.arange(len(row_G)) - first
    return row_G, column_G
