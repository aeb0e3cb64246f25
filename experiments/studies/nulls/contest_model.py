"""Simulates contests from a measured arm: runs with its learning curve, and with the spread between its own runs.

A population is one arm of one contest, with all of its measured runs. On each held-out problem, a simulated run follows
the arm's own curve, in logits, plus three terms:

- the deviation of one measured run from the curve over all problems. It is drawn with replacement, so that if some of
  the measured runs collapsed, some simulated runs do too. For a given seed, two arms draw the same run with a
  probability equal to `common`, since arms that see the same data in the same order move together;
- a normal deviation on each single problem;
- the cost of its learning rate, as measured by the arm's sweep: zero at the start, rising to all of it at the half-way
  point.

Passes are binomial, with as many attempts as the evaluations had. A simulated run spends what the drawn run spent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from halfway.curriculum.support.errors import UserError
from halfway.experiments.comparing.tuning import Trial, chosen, mean_height
from halfway.experiments.config import yaml_files
from halfway.experiments.config.design import TuneOptions
from halfway.experiments.config.validation import typed
from halfway.experiments.report.records import Comparison, EvaluationRecord, Run, StepRecord, load_run_records

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
WIDEST = 8.0
"""Shifts are searched for within this many logits on either side of zero."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule by which a sweep chooses: the fields of `TuneOptions` that matter here, with numbers of seeds."""

    share: float
    seeds: int
    finals: int
    final_seeds: int


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """An arm as it was measured. Suffixes: _E evaluations, _P problems, _S seeds, _A arms.

    Attributes:
        name: names of the comparison and the arm.
        ease_EP: logit of each held-out problem's pass rate at each evaluation, over all runs.
        strayed_SE: how far each run deviated from this over all problems, in logits, shrunk by the part that is due to
            the finite number of attempts.
        single: standard deviation of a run's deviation on a single problem, in logits.
        samples: attempts at each problem.
        spent_SE: what each run had spent at each evaluation, by unit.
        cost_of: what each value of the tuned field changes at the end, in logits; 0 for the chosen value.
        rule: the rule by which the value was chosen.
        common: share of the runs' variance over seeds that is common to the contest's arms.
        budget: the size of the shared budget, by its unit.
    """

    name: str
    ease_EP: Array
    strayed_SE: Array
    single: float
    samples: int
    spent_SE: Mapping[str, Array]
    cost_of: Mapping[Any, float]
    rule: Rule
    common: float
    budget: Mapping[str, float]

    @property
    def ramp_E(self) -> Array:
        """0 at the start, rising linearly in rollouts to 1 at half of the budget, then constant, (E,)."""
        x_E = self.spent_SE["rollouts"].mean(axis=0)
        return np.asarray(np.minimum(1.0, 2 * x_E / x_E[-1]))

    def with_other_problems(self, generator: np.random.Generator) -> "Population":
        """The population with its problems resampled, since conclusions must hold for other questions too."""
        chosen_P = generator.integers(self.ease_EP.shape[1], size=self.ease_EP.shape[1])
        return replace(self, ease_EP=self.ease_EP[:, chosen_P])

    def passes(self, drawn: int, shift: float, generator: np.random.Generator) -> Counts:
        """Simulate a run that deviates as the measured run `drawn` did: its passes by evaluation and problem, (E, P).

        Args:
            shift: the change at the end in logits, which the ramp phases in.
        """
        own_P = generator.normal(0, self.single, self.ease_EP.shape[1])
        whole_E = self.strayed_SE[drawn] + shift * self.ramp_E
        logits_EP = self.ease_EP + whole_E[:, None] + self.ramp_E[:, None] * own_P
        return np.asarray(generator.binomial(self.samples, expit(logits_EP)))

    def ends(self, arms: int, seeds: int, generator: np.random.Generator) -> Array:
        """Simulate the final pass rates of equal arms, (arms, seeds, problems)."""
        strayed_AS = self.strayed_SE[self.draws(seeds, arms, generator), -1]
        own_ASP = generator.normal(0, self.single, (arms, seeds, self.ease_EP.shape[1]))
        rates_ASP = expit(self.ease_EP[-1] + strayed_AS[..., None] + own_ASP)
        return np.asarray(generator.binomial(self.samples, rates_ASP) / self.samples)

    def expected(self, shift: float) -> float:
        """Expected final pass rate: mean over measured runs and, by quadrature, over deviations on single problems."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(21)
        end_SPQ = self.ease_EP[-1][None, :, None] + self.strayed_SE[:, -1, None, None] + shift + self.single * nodes
        return float((expit(end_SPQ) @ weights / weights.sum()).mean())

    def draws(self, seeds: int, arms: int, generator: np.random.Generator) -> Counts:
        """For each simulated run, draw the measured run that it deviates like, (arms, seeds)."""
        runs = len(self.strayed_SE)
        shared_S = generator.integers(runs, size=seeds)
        own_AS = generator.integers(runs, size=(arms, seeds))
        return np.where(generator.random((arms, seeds)) < np.sqrt(self.common), shared_S, own_AS)


def measured(directory: Path, arm: str) -> Population:
    """Fit the population to an arm of a tuned comparison.

    Raises:
        UserError: if the arm has fewer than two finished runs that record which problems passed, or was not tuned over
            exactly one field.
    """
    runs = [load_run_records(path.parent, arm) for path in sorted((directory / arm).glob("seed-*/steps.jsonl"))]
    runs = [run for run in runs if run.finished and run.evaluations and run.evaluations[0].passed]
    if len(runs) < 2:
        raise UserError(f"{directory / arm}: fewer than two finished runs that say which problems passed")
    fewest = min(len(run.evaluations) for run in runs)
    records = [run.evaluations[:fewest] for run in runs]
    samples = records[0][0].samples
    passed_SEP = np.array([[record.passed for record in own] for own in records], np.float64)
    attempts = samples * len(runs)
    ease_EP = logit((passed_SEP.sum(axis=0) + 0.5) / (attempts + 1))
    strayed_SE = np.array([_shifts(ease_EP, own_EP.mean(axis=1) / samples) for own_EP in passed_SEP])
    rates_EP = expit(ease_EP)
    noise = float((rates_EP * (1 - rates_EP) / samples).mean(axis=1)[1:].sum() / ease_EP.shape[1])
    spread = float(passed_SEP.mean(axis=2).var(axis=0, ddof=1)[1:].sum() / samples**2)
    units = ("steps", "rollouts", "tokens", "trained_tokens", "seconds")
    spent_SE = {
        unit: np.array([[float(record.spent[unit] or 0) for record in own] for own in records]) for unit in units
    }
    found = Population(
        name=f"{directory.name}: {arm}",
        ease_EP=ease_EP,
        # Drawing with replacement from n runs gives only (n - 1) / n of the estimated variance, which is undone here.
        strayed_SE=strayed_SE * np.sqrt(max(0.0, 1 - noise / spread) * len(runs) / (len(runs) - 1)),
        single=_single(passed_SEP, samples, ease_EP, strayed_SE),
        samples=samples,
        spent_SE=spent_SE,
        cost_of={},
        rule=Rule(1.0, 1, 0, 0),
        common=common_share(directory),
        budget={"rollouts": float(runs[0].config["budget"]["rollouts"])},
    )
    return replace(found, **_tuned(directory, arm, found))


def _shifts(ease_EP: Array, means_E: Array) -> Array:
    """For each evaluation, find by bisection the shift of all problems, in logits, that gives this mean pass rate."""
    low_E, high_E = np.full(len(ease_EP), -WIDEST), np.full(len(ease_EP), WIDEST)
    for _ in range(60):
        middle_E = (low_E + high_E) / 2
        under_E = expit(ease_EP + middle_E[:, None]).mean(axis=1) < means_E
        low_E, high_E = np.where(under_E, middle_E, low_E), np.where(under_E, high_E, middle_E)
    return np.asarray((low_E + high_E) / 2)


def _single(passed_SEP: Array, samples: int, ease_EP: Array, strayed_SE: Array) -> float:
    """Standard deviation of a run's deviation on single problems, in logits.

    It follows from how far the squared residuals at the end exceed binomial variance (overdispersion, Williams 1982).
    """
    runs = len(passed_SEP)
    rates_SP = expit(ease_EP[-1] + strayed_SE[:, -1, None])
    slope_SP = rates_SP * (1 - rates_SP)
    squares = float(((passed_SEP[:, -1] / samples - rates_SP) ** 2).sum()) * runs / (runs - 1)
    excess = squares - float((slope_SP / samples).sum())
    return float(np.sqrt(max(0.0, excess) / (slope_SP**2).sum()))


def common_share(directory: Path) -> float:
    """Share of the variance of final scores over seeds, within arms, that is common to all arms.

    By a two-way analysis of variance, arms x seeds, over the arms that have all seeds; 0 with one arm or seed.
    """
    matched = json.loads((directory / "summary.json").read_text())["matched"]
    [headline] = [one for one in matched if one["headline"]]
    values = [row["pass_at_1"]["values"] for row in headline["rows"]]
    most = max(map(len, values))
    table_AS = np.array([own for own in values if len(own) == most], np.float64)
    arms, seeds = table_AS.shape
    if arms < 2 or seeds < 2:
        return 0.0
    within_AS = table_AS - table_AS.mean(axis=1, keepdims=True)
    between = float(within_AS.mean(axis=0).var(ddof=1))  # var(seed) + var(rest) / arms
    rest_AS = within_AS - within_AS.mean(axis=0)
    rest = float((rest_AS**2).sum() / ((arms - 1) * (seeds - 1)))
    seed = max(0.0, between - rest / arms)
    return seed / (seed + rest) if seed + rest > 0 else 0.0


def _tuned(directory: Path, arm: str, population: Population) -> dict[str, Any]:
    """The fields `cost_of` and `rule`, derived from the areas in the arm's sweep."""
    tune = typed(TuneOptions, yaml_files.read(directory / "comparison.yaml")["tune"])
    sweep = json.loads((directory / "tuning.json").read_text())["arms"].get(arm)
    if sweep is None or not sweep["chosen"] or any(len(each["values"]) != 1 for each in sweep["settings"]):
        raise UserError(f"{directory / 'tuning.json'}: {arm} was not tuned over one field; name another arm")
    [best] = [each for each in sweep["settings"] if each["name"] == sweep["chosen"]]
    costs = {}
    for each in sweep["settings"]:
        [value] = each["values"].values()
        last = each["final_area"] is not None and best["final_area"] is not None
        share, kind = (1.0, "final_areas") if last else (tune.share, "areas")
        lost = fmean(each[kind].values()) - fmean(best[kind].values()) if each[kind] else -1.0
        costs[value] = 0.0 if each is best else _shift_of_area(population, lost, share)
    rule = Rule(tune.share, len(tune.seeds), tune.finals, len(tune.seeds_of_finals))
    return {"cost_of": costs, "rule": rule}


def _shift_of_area(population: Population, lost: float, share: float) -> float:
    """The shift that changes the area under the arm's curve by `lost`, over a share of the budget."""
    goal = area(population, expit(population.ease_EP).mean(axis=1), share) + lost
    low, high = -WIDEST, WIDEST
    for _ in range(60):
        middle = (low + high) / 2
        shifted_EP = expit(population.ease_EP + middle * population.ramp_E[:, None])
        under = area(population, shifted_EP.mean(axis=1), share) < goal
        low, high = (middle, high) if under else (low, middle)
    return (low + high) / 2


def area(population: Population, height_E: Array, share: float) -> float:
    """Mean height of a curve over the first `share` of the rollouts, computed as in a sweep."""
    x_E = population.spent_SE["rollouts"].mean(axis=0)
    return mean_height(x_E, height_E, share * float(x_E[-1]))


def tune(population: Population, arms: int, generator: np.random.Generator) -> list[Any]:
    """Tune several equal arms by the contest's own rule, on common tuning seeds; returns each arm's chosen value."""
    rule, values = population.rule, list(population.cost_of)
    swept_AS = population.draws(rule.seeds, arms, generator)
    final_AS = population.draws(rule.final_seeds, arms, generator)

    def areas(drawn_S: Counts, cost: float, share: float) -> dict[str, float]:
        curves = [population.passes(drawn, cost, generator).mean(axis=1) / population.samples for drawn in drawn_S]
        return {str(i): area(population, curve_E, share) for i, curve_E in enumerate(curves)}

    found = []
    for swept_S, final_S in zip(swept_AS, final_AS, strict=True):
        trials = []
        for value, cost in population.cost_of.items():
            swept = areas(swept_S, cost, rule.share)
            last = areas(final_S, cost, 1.0) if rule.finals else {}
            trials.append(
                Trial(
                    str(value), {"x": value}, swept, fmean(swept.values()), last, fmean(last.values()) if last else None
                )
            )
        choice = chosen(trials, {"x": values}, rule.finals).choice
        assert choice is not None
        found.append(choice.values["x"])
    return found


def contest(
    population: Population,
    shifts: Sequence[float],
    seeds: int,
    generator: np.random.Generator,
    targets: Sequence[float] = (),
) -> Comparison:
    """Simulate a contest of arms `same_0`, `same_1` ..., which differ from the population only by a shift each.

    The first arm is the baseline.

    Args:
        shifts: each arm's change at the end, in logits.
        targets: values of held-out pass@1 whose costs to reach are compared.
    """
    drawn_AS = population.draws(seeds, len(shifts), generator)
    arms = {
        f"same_{i}": [_run(population, f"same_{i}", seed, drawn, shift, generator) for seed, drawn in enumerate(row)]
        for i, (shift, row) in enumerate(zip(shifts, drawn_AS, strict=True))
    }
    config = {
        "arms": {arm: {} for arm in arms},
        "contrasts": {"baseline": "same_0"},
        "targets": list(targets),
        "costs": {"rho": [0.25, 1.0]},
        "budget": dict(population.budget),
    }
    return Comparison(Path("."), config, arms)


def _run(population: Population, arm: str, seed: int, drawn: int, shift: float, generator: np.random.Generator) -> Run:
    passed_EP = population.passes(drawn, shift, generator)
    problems = passed_EP.shape[1]
    spent = [
        {unit: amounts_SE[drawn, i] for unit, amounts_SE in population.spent_SE.items()} for i in range(len(passed_EP))
    ]
    evaluations = [
        EvaluationRecord(
            step=int(at["steps"]),
            rollouts=int(at["rollouts"]),
            tokens=int(at["tokens"]),
            seconds=float(at["seconds"]),
            trained_tokens=int(at["trained_tokens"]),
            pass_at_1=float(passed_P.mean() / population.samples),
            stderr=0.0,
            problems=problems,
            samples=population.samples,
            passed=tuple(passed_P.tolist()),
        )
        for at, passed_P in zip(spent, passed_EP, strict=True)
    ]
    steps = [
        StepRecord(
            step=i,
            rollouts=int(at["rollouts"]),
            tokens=int(at["tokens"]),
            seconds=float(at["seconds"]),
            trained_tokens=int(at["trained_tokens"]),
            groups={"trained": 1},
        )
        for i, at in enumerate(spent[1:])
    ]
    return Run(arm, seed, Path(f"{arm}/seed-{seed}"), "finished", {}, [], [], steps, evaluations, 0)
