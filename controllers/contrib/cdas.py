"""CDAS: problems whose estimated difficulty straddles the policy's competence (arXiv 2505.17652)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.beliefs.counts import fresh_counts, predict_fresh
from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.beliefs.forest_beliefs import Aim
from halfway.controllers.beliefs.logit_normal import sigmoid
from halfway.controllers.laws.choose_problems import Choice, ChoiceKind
from halfway.controllers.laws.slots import fill_by_rate
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Stream


@dataclass(frozen=True)
class Straddle(Choice):
    """`Choice` that takes half of the problems from each side of the target by default, as CDAS does."""

    kind: ChoiceKind = "straddle"


@dataclass(frozen=True, slots=True, eq=False)
class CdasState:
    """Difficulty and visits of every problem, after CDAS.

    Attributes:
        difficulty_P: difficulty of each problem, from -1 to 1; 0 = passes as often as expected.
        visits_P: number of observed groups of each problem.
    """

    problems: ProblemSet
    difficulty_P: Floats
    visits_P: NDArray[np.int32]

    @property
    def competence(self) -> float:
        """Competence of the policy, on the scale of the difficulties."""
        return -float(self.difficulty_P.mean())

    def rates(self, positions: Positions | slice = slice(None)) -> Floats:
        """Expected pass rates: sigmoid(competence - difficulty)."""
        return sigmoid(self.competence - self.difficulty_P[positions])


@dataclass(frozen=True)
class Cdas(PassRateController[CdasState]):
    """Takes half of a plan from the problems just easier than the policy's competence, and half from those just harder.

    The difficulty of a problem is the mean shortfall of its pass rate over its visits: with p = sigmoid(competence - d)
    expected and r observed, d <- ((t - 1) d + p - r) / t. The competence is minus the mean difficulty of all problems,
    untried ones included. The published recursion (minus the sum of all changes over the number of problems, from 0)
    gives the same.

    In the published script t is the number of visits plus one: the initial 0 counts as a visit, which shrinks every
    difficulty. That is the default here. With `shrink: false`, t is the number of visits and d the plain mean. If the
    number of slots is odd, the extra slot goes to the easier half; the script leaves it empty.

    Half on each side of d = competence means half on each side of an expected pass rate of 0.5, so any other `law` can
    use the same rates. Only fresh groups are evidence.

    Attributes:
        shrink: true = the initial 0 counts as a visit, as in the published script.
        law: chooses problems by their expected pass rates.
    """

    shrink: bool = True
    law: Choice = field(default_factory=Straddle)

    claims = frozenset({"problems"})

    def init(self, problems: ProblemSet) -> CdasState:
        return CdasState(problems, np.zeros(len(problems)), np.zeros(len(problems), np.int32))

    def propose(self, plan: Plan, state: CdasState, stream: Stream) -> tuple[Plan, CdasState]:
        def rates(free_F: Positions, near: Aim | None, stream: Stream) -> tuple[Positions, Floats]:
            return free_F, state.rates(free_F)

        return fill_by_rate(plan, state.problems, rates, self.law, stream), state

    def observe(self, state: CdasState, groups: Sequence[Group], step: int) -> CdasState:
        """One update per problem and step, with the pass rate over all its rollouts."""
        counts = fresh_counts(groups, state.problems)
        if not counts.positions:
            return state
        places, which_G = np.unique(counts.positions, return_inverse=True)
        rate = np.bincount(which_G, counts.passed) / np.bincount(which_G, counts.tried)
        surprise = state.rates(places) - rate
        visits_P, difficulty_P = state.visits_P.copy(), state.difficulty_P.copy()
        visits_P[places] += 1
        past = visits_P[places] - (0 if self.shrink else 1)
        difficulty_P[places] = (past * difficulty_P[places] + surprise) / (past + 1)
        return replace(state, difficulty_P=difficulty_P, visits_P=visits_P)

    def predict(self, state: CdasState, groups: Sequence[Group]) -> Floats:
        return predict_fresh(groups, state.problems, state.rates)

    def metrics(self, state: CdasState) -> Mapping[str, float]:
        """competence: see `CdasState`; spread: standard deviation of the difficulties; tried: share of problems tried
        so far."""
        spread, tried = float(state.difficulty_P.std()), float((state.visits_P > 0).mean())
        return {"competence": state.competence, "spread": spread, "tried": tried}
