"""Frontier: chooses problems by the expected signal of their groups, under one model of all pass rates (ours)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from halfway.controllers.beliefs.counts import fresh_counts, predict_fresh
from halfway.controllers.beliefs.forest import Floats, Positions
from halfway.controllers.beliefs.shared_skills import SkillModel, Skills, design, integrate
from halfway.controllers.laws.choose_problems import draw_keys, first_by
from halfway.controllers.laws.slots import fill_slots
from halfway.curriculum import Group, PassRateController, Plan, ProblemSet, Request, Stream, UserError, require
from halfway.curriculum.signals import expected_update_mass

MOST = 65_536
"""Maximum number of problems that compete if `candidates` is null: a step over a million would take a second."""

SURVEYED = ("passed", "attempts")
"""Columns that `halfway survey` adds to a file."""

LEAST = 16
"""Minimum number of problems that compete for each slot if `candidates` is null."""


@dataclass(frozen=True, slots=True, eq=False)
class FrontierState:
    """The belief that all problems share: a model of pass rate by features.

    Attributes:
        skills: belief about the weights of the features.
        learnt: step of the latest outcomes.
        rate_P: measured pass rates, under `rates: measured`.
    """

    problems: ProblemSet
    skills: Skills
    learnt: int = 0
    rate_P: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Frontier(PassRateController[FrontierState]):
    """Draws problems with probability proportional to a power of the expected worth of their groups.

    A posterior for each problem says little if each problem is visited only a few times in a run. Here one model
    predicts all pass rates, from features that the data set provides: skills, topics, lengths, an embedding. Each
    problem also has a residual, which its own groups move and which fades (`beliefs.shared_skills`). A filter with one
    shared drift and no features, as the abstract of ARCUS (2609.38018) describes, estimated worse here. The worth of a
    group of N is

    - "signal": the probability that it is mixed, 1 - p^N - (1 - p)^N;
    - "gain": that probability times p (1 - p)^2, the gain of a step under `knapsack`, which favours harder problems;
    - "mass": pass@N - p = 1 - (1 - p)^N - p, proportional to the expected update mass under MaxRL, which also favours
      harder problems (`halfway.curriculum.signals.expected_update_mass`);

    averaged over the uncertainty about p, so that uncertain problems are tried too. The signal falls off more gently
    than the distance from one half: at N = 8, a pass rate of 0.05 has a third of the largest signal, and 0.2 has five
    sixths. Problems are drawn without replacement, in proportion to worth^sharpness. A share of the slots is drawn
    uniformly, so that solved problems are still tried: policies forget, and only rollouts show it.

    Only fresh groups are evidence.

    Attributes:
        features: columns of the problem set: numbers, words or vectors.
        worth: worth of a group, "signal", "gain" or "mass".
        sharpness: the power; 0 = all problems equally likely; large = only the most valuable problems.
        exploration: probability that a slot takes a problem drawn uniformly from all.
        candidates: number of random problems that compete for each slot; null = all problems compete for all slots, or
            a random 65,536 if there are more.
        rates: "believed" = predicted by the model; "measured" = measured by the trainer, an oracle for studies of the
            law apart from the model. Measured rates are clipped to 0.015 to 0.985, as they are not more accurate than
            that.
        prior: "flat" = no evidence at the start; "surveyed" = the columns `passed` and `attempts`, which `halfway
            survey` writes, are the evidence at step 0: `passed` of `attempts` rollouts passed. 0 attempts = not
            surveyed.
        model: prior and drift of the model.
    """

    features: tuple[str, ...] = ("category",)
    worth: Literal["signal", "gain", "mass"] = "signal"
    sharpness: float = 4.0
    exploration: float = 0.25
    candidates: int | None = 64
    rates: Literal["believed", "measured"] = "believed"
    prior: Literal["flat", "surveyed"] = "flat"
    model: SkillModel = field(default_factory=SkillModel)

    claims = frozenset({"problems"})

    def __post_init__(self) -> None:
        require(len(self.features) > 0, "frontier.features", list(self.features), "name at least one column")
        require(self.sharpness >= 0, "frontier.sharpness", self.sharpness, "give a power of 0 or more")
        share = 0 <= self.exploration <= 1
        require(share, "frontier.exploration", self.exploration, "give a chance between 0 and 1")
        fits = self.candidates is None or self.candidates >= 1
        require(fits, "frontier.candidates", self.candidates, "give at least 1 for each slot, or null for all problems")
        used = self.prior == "flat" or self.rates == "believed"
        require(used, "frontier.prior", self.prior, "use flat with measured rates, which need no belief")

    @property
    def needs(self) -> frozenset[str]:
        if self.rates == "measured":
            return frozenset({"measured"})
        names = (*self.features, *(SURVEYED if self.prior == "surveyed" else ()))
        return frozenset(f"feature:{name}" for name in names)

    def init(self, problems: ProblemSet) -> FrontierState:
        """Raises UserError if a feature is missing or cannot be a column, see `beliefs.shared_skills.design`, or if the
        columns of a survey are not counts."""
        if self.rates == "measured":
            return FrontierState(problems, self.model.init(1, 0), rate_P=np.full(len(problems), 0.5))
        x_PD = self._design(problems)
        skills = self.model.init(x_PD.shape[1], len(problems))
        if self.prior == "surveyed":
            passed_P, tried_P = surveyed_counts(problems)
            [places] = np.nonzero(tried_P)
            if len(places):
                skills = self.model.learn(skills, x_PD, places, passed_P[places], tried_P[places])
        return FrontierState(problems, skills)

    def propose(self, plan: Plan, state: FrontierState, stream: Stream) -> tuple[Plan, FrontierState]:
        if plan.missing == 0:
            return plan, state
        generator = stream.at("choose").generator()
        known: dict[int, float] = {}

        def worth(rate_F: Floats) -> Floats:
            return self.worth_of(rate_F, plan.num_rollouts)

        def choose(free_F: Positions, wanted: int) -> Positions:
            rivals = max(MOST, LEAST * wanted) if self.candidates is None else self.candidates * wanted
            if rivals < len(free_F):
                free_F = generator.choice(free_F, rivals, replace=False, shuffle=False)
            worth_F = self._average(worth, state, free_F, max(0, plan.step - state.learnt))
            places = first_by([draw_keys(worth_F, generator, self.sharpness)], wanted, generator)
            places = _explore(places, len(free_F), self.exploration, generator)
            known.update(zip(free_F[places].tolist(), worth_F[places].tolist(), strict=True))
            chosen: Positions = free_F[places]
            return chosen

        chosen = fill_slots(plan, state.problems, choose)
        requests = [Request(state.problems[position], plan.num_rollouts) for position in chosen]
        return plan.add(requests, [f"worth {known[position]:.2g}" for position in chosen]), state

    def worth_of(self, rate: Floats, size: int) -> Floats:
        """The worth of groups of `size` rollouts at these pass rates."""
        if self.worth == "mass":
            return expected_update_mass(rate, size)
        mixed: Floats = 1 - power(rate, size) - power(1 - rate, size)
        return mixed if self.worth == "signal" else mixed * rate * (1 - rate) ** 2

    def observe(self, state: FrontierState, groups: Sequence[Group], step: int) -> FrontierState:
        counts = fresh_counts(groups, state.problems)
        if not counts.positions or self.rates == "measured":
            return state
        skills = self.model.wander(state.skills, max(0, step - state.learnt))
        skills = self.model.learn(
            skills, self._design(state.problems), np.array(counts.positions), counts.passed, counts.tried
        )
        return replace(state, skills=skills, learnt=step)

    def inform(self, state: FrontierState, rates_P: Floats) -> FrontierState:
        return replace(state, rate_P=np.clip(rates_P, 0.015, 0.985)) if self.rates == "measured" else state

    def predict(self, state: FrontierState, groups: Sequence[Group]) -> Floats:
        step = max((group.request.step for group in groups), default=0)
        state = replace(state, skills=self.model.wander(state.skills, max(0, step - state.learnt)))
        return predict_fresh(groups, state.problems, lambda places: self._average(lambda rate: rate, state, places))

    def _average(
        self, of_rate: Callable[[Floats], Floats], state: FrontierState, places: Positions, steps: int | None = None
    ) -> Floats:
        """Mean of a function of the pass rate for some problems, under the belief `steps` steps later."""
        if self.rates == "measured":
            return of_rate(state.rate_P[places])
        return integrate(of_rate, *self.model.logits(state.skills, self._design(state.problems), places, steps))

    def _design(self, problems: ProblemSet) -> Floats:
        return design(problems, self.features, "frontier.features")

    def metrics(self, state: FrontierState) -> Mapping[str, float]:
        """ability: logit of an average problem's pass rate."""
        if self.rates == "measured":
            return {"mean_rate": float(state.rate_P.mean())}
        return {"ability": float(state.skills.mean_D[0])}


def surveyed_counts(problems: ProblemSet) -> tuple[Floats, Floats]:
    """Passes and attempts of a survey, (P,) each.

    Raises:
        UserError: if a problem lacks these columns, or they are not counts with 0 <= passed <= attempts.
    """
    passed_P, tried_P = (np.asarray(problems.column(name)) for name in SURVEYED)
    kinds = passed_P.dtype.kind + tried_P.dtype.kind
    bad = [0] if set(kinds) - set("fiu") else np.flatnonzero(~((passed_P >= 0) & (passed_P <= tried_P)))
    if len(bad):
        found = f"{passed_P[bad[0]]} of {tried_P[bad[0]]}"
        raise UserError(
            f"frontier.prior: problem {problems[int(bad[0])].id!r} passed {found} attempts, which is not a count; "
            "survey again, or leave the prior flat"
        )
    return passed_P.astype(np.float64), tried_P.astype(np.float64)


def power(base: Floats, exponent: int) -> Floats:
    """base^exponent by repeated squaring, for an exponent of at least 1; takes a tenth of the time of numpy's power."""
    if exponent == 1:
        return base
    squared = power(base * base, exponent // 2)
    return squared * base if exponent % 2 else squared


def _explore(places: Positions, number: int, chance: float, generator: np.random.Generator) -> Positions:
    """Replace each place with probability `chance` by a random place that was not taken."""
    others = np.setdiff1d(np.arange(number), places, assume_unique=True)
    given_up = np.flatnonzero(generator.random(len(places)) < chance)[: len(others)]
    places = places.copy()
    places[given_up] = generator.choice(others, len(given_up), replace=False)
    return places
