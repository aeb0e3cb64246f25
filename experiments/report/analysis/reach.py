"""Computes what each arm spent to reach a target, and the ratio to the baseline's cost.

A run's scores are first made to rise (`rising`), so that one lucky evaluation does not count as reaching the target: it
is reached where the rising curve, linear between evaluations, first attains it. A run that never reaches the target
enters with all that it spent, which is a lower bound; every mean or ratio that contains it is a bound too, and printed
as one. Costs are averaged as logarithms. Their errors come from resampling seeds and problems
(`halfway.experiments.report.statistics.crossed`), and their intervals from Student's t with seeds - 1 degrees of
freedom.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from halfway.experiments.report.analysis.axes import ROLLOUTS, SECONDS, STEPS, TOKENS, Axis
from halfway.experiments.report.analysis.curves import (
    Array,
    Booleans,
    amounts,
    evaluated,
    first_crossings,
    problems_told_apart,
    rising,
    scores,
)
from halfway.experiments.report.analysis.design import Design
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import CrossedMean, corrected, resamples
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.statistics.multiple import LEVEL, holm

DRAWS = 2000
SEED = 20240229
Bound = Literal["", "at least", "at most"]
Kind = Literal["fixed", "baseline", "lowest"]
BySeed = Mapping[int, Array]


@dataclass(frozen=True, slots=True)
class Spent:
    """What an arm spent along one axis until it reached a target.

    Attributes:
        amount: geometric mean over seeds; None if no run reached the target, or some run met it from the start.
        bound: "at least" if some run never reached the target, otherwise empty.
        ratio: the amount divided by the baseline's, by seed if the arms have the same seeds or share at least two. None
            for the baseline itself, if either arm has no mean over the seeds that are compared, or if both have runs
            that never reached the target.
        left_out: seeds of the arm that the ratio leaves out, since the baseline met the target from the start with
            them; at least two others are in it.
        ratio_bound: "at least" if some run of the arm never reached the target, "at most" if some run of the baseline
            did not, otherwise empty.
        p: p-value for a true ratio of 1; None with one seed, or if the ratio is a bound that does not speak against 1.
        adjusted_p: p after Holm's adjustment over the arms.
        clear: whether adjusted_p is below .05.
        at_start: number of runs that met the target from the start, at no cost, so that there is no geometric mean.
    """

    amount: Estimate | None
    bound: Bound
    ratio: Estimate | None = None
    ratio_bound: Bound = ""
    p: float | None = None
    adjusted_p: float | None = None
    clear: bool = False
    at_start: int = 0
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachRow:
    """How many of an arm's runs reached the target, and what they spent, by the name of the axis."""

    arm: str
    seeds: int
    reached: int
    spent: Mapping[str, Spent]


@dataclass(frozen=True, slots=True)
class Reach:
    """What every arm spent to reach one target.

    Attributes:
        kind: "fixed" = fixed in advance; "baseline" = the baseline's final score, seed by seed; "lowest" = the highest
            score that every run reached, which is known only after the runs.
        target: held-out pass@1; for the kind "baseline", the mean over the baseline's seeds.
    """

    kind: Kind
    target: float
    baseline: str
    rows: tuple[ReachRow, ...]


@dataclass(frozen=True, slots=True)
class _Curve:
    """One run's rising scores: observed, (1, evaluations), and with resampled problems, (draws, evaluations).

    `problems` is the number of problems that are resampled; 1 if passes were not recorded by problem, and then every
    draw equals the observed scores.
    """

    run: Run
    problems: int
    found: Array
    drawn: Array


@dataclass(frozen=True, slots=True)
class _Costs:
    """Logarithms of what the runs of an arm spent, by seed: (1,) as observed, and (draws,) with resampled problems."""

    found: BySeed
    drawn: BySeed
    reached: Mapping[int, bool]
    problems: int

    @property
    def at_start(self) -> list[int]:
        """The seeds whose runs had the target from the start."""
        return [seed for seed, found in self.found.items() if np.isneginf(found[0])]

    @property
    def countable(self) -> bool:
        """Whether some run reached the target, and none had it from the start, so that there is a geometric mean."""
        return any(self.reached.values()) and not self.at_start

    def without(self, seeds: Sequence[int]) -> "_Costs":
        """The runs with other seeds."""
        found, drawn = ({s: v for s, v in each.items() if s not in seeds} for each in (self.found, self.drawn))
        return _Costs(found, drawn, {s: v for s, v in self.reached.items() if s not in seeds}, self.problems)


def reach_axes(design: Design) -> list[Axis]:
    """The axes along which the cost to reach a target is counted."""
    return [ROLLOUTS, TOKENS, STEPS, *design.costs, SECONDS]


def cost_to_reach(runs_of: Mapping[str, Sequence[Run]], design: Design, draws: int = DRAWS) -> list[Reach]:
    """The cost to reach each target: those fixed in advance, or else one that all runs reached; and the baseline's end.

    Without fixed targets, the target is the highest score that every run reached. Empty if no arm has a curve.

    Args:
        draws: number of resamples of the held-out problems.
    """
    having = {arm: found for arm, runs in runs_of.items() if (found := evaluated(runs))}
    if not having:
        return []
    curves = draw_curves(having, draws)
    targets: list[tuple[Kind, float | None]] = [("fixed", target) for target in design.targets]
    if not targets:
        targets.append(("lowest", min(float(curve.found[0, -1]) for own in curves.values() for curve in own)))
    if design.baseline in having and len(having) > 1:
        targets.append(("baseline", None))
    return [_reach(curves, kind, target, design) for kind, target in targets]


def draw_curves(runs_of: Mapping[str, Sequence[Run]], draws: int) -> dict[str, list[_Curve]]:
    """The curves of all runs, by arm; every draw resamples the same problems for all of them."""
    used = [run for runs in runs_of.values() for run in runs]
    apart = problems_told_apart(used)
    problems = len(used[0].evaluations[0].passed) if apart else 1
    chosen = resamples(problems, draws, np.random.default_rng([SEED, problems]))
    weights_DP = np.stack([np.bincount(row, minlength=problems) for row in chosen]) / chosen.shape[1]
    found = {}
    for arm, runs in runs_of.items():
        tables = [scores(run, apart) for run in runs]
        found[arm] = [
            _Curve(run, problems, rising(y_EP.mean(axis=1)[None]), rising(weights_DP @ y_EP.T))
            for run, y_EP in zip(runs, tables, strict=True)
        ]
    return found


def _reach(curves: Mapping[str, Sequence[_Curve]], kind: Kind, target: float | None, design: Design) -> Reach:
    finals = {curve.run.seed: curve for curve in curves.get(design.baseline, ())}
    if target is None:
        shown = float(np.mean([curve.found[0, -1] for curve in finals.values()]))
        targets = dict(finals)
    else:
        shown, targets = target, {}
    spent = {
        axis.name: _compare({arm: _costs(own, axis, shown, targets) for arm, own in curves.items()}, design)
        for axis in reach_axes(design)
    }
    rows = tuple(
        ReachRow(
            arm,
            len(own),
            sum(_costs(own, ROLLOUTS, shown, targets).reached.values()),
            {axis: by_arm[arm] for axis, by_arm in spent.items()},
        )
        for arm, own in curves.items()
    )
    return Reach(kind, shown, design.baseline, rows)


def _costs(curves: Sequence[_Curve], axis: Axis, target: float, of_seed: Mapping[int, _Curve]) -> _Costs:
    """What the runs of an arm spent to reach the target.

    Args:
        target: the target of seeds that are not in `of_seed`.
        of_seed: the baseline's curves by seed, whose final scores are the targets of these seeds.
    """
    found, drawn, reached = {}, {}, {}
    for curve in curves:
        seed, x_E = curve.run.seed, amounts(curve.run, axis)
        goals = of_seed.get(seed)
        found[seed], arrived = _logarithms(x_E, curve.found, goals.found[:, -1] if goals else target)
        drawn[seed], _ = _logarithms(x_E, curve.drawn, goals.drawn[:, -1] if goals else target, floor=x_E[1] / 100)
        reached[seed] = bool(arrived[0])
    return _Costs(found, drawn, reached, curves[0].problems)


def _logarithms(x_E: Array, rising_DE: Array, targets: Array | float, floor: float = 0.0) -> tuple[Array, Booleans]:
    """Logarithms of the crossings, (D,), and whether each target is reached, (D,).

    Minus infinity for a target that was met at the start, unless `floor` is positive.
    """
    crossings, reached = first_crossings(x_E, rising_DE, np.broadcast_to(np.asarray(targets), len(rising_DE)))
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(crossings, floor)), reached


def _compare(costs: Mapping[str, _Costs], design: Design) -> dict[str, Spent]:
    """Each arm's cost along one axis, and its ratio to the baseline's cost."""
    baseline = costs.get(design.baseline)
    spent = {}
    for arm, own in costs.items():
        beside = baseline if arm != design.baseline else None
        spent[arm] = _with_ratio(_amount(own), own, beside)
    others = [arm for arm in spent if arm != design.baseline]
    adjusted = holm([spent[arm].p for arm in others])
    for arm, p in zip(others, adjusted, strict=True):
        spent[arm] = replace(spent[arm], adjusted_p=p, clear=p is not None and p < LEVEL)
    return spent


def _amount(costs: _Costs) -> Spent:
    missed = not all(costs.reached.values())
    if not costs.countable:
        return Spent(None, "at least" if missed else "", at_start=len(costs.at_start))
    found = _mean(costs.found, costs.drawn, list(costs.found), costs.problems).estimate.map(math.exp)
    return Spent(replace(found, high=None) if missed else found, "at least" if missed else "")


def _with_ratio(spent: Spent, own: _Costs, baseline: _Costs | None) -> Spent:
    if baseline is None:
        return spent
    left_out = tuple(seed for seed in baseline.at_start if seed in own.found)
    if len(own.found.keys() & baseline.found.keys()) >= len(left_out) + 2:
        own, baseline = own.without(baseline.at_start), baseline.without(baseline.at_start)
    if not own.countable or not baseline.countable:
        return spent
    shared = [seed for seed in own.found if seed in baseline.found]
    paired = len(shared) >= 2 or len(shared) == len(own.found) == len(baseline.found)
    seeds, beside = (shared, shared) if paired else (list(own.found), list(baseline.found))
    missed = not all(own.reached[seed] for seed in seeds), not all(baseline.reached[seed] for seed in beside)
    if all(missed):
        return spent
    if paired:
        found, drawn = (
            {s: a[s] - b[s] for s in shared} for a, b in ((own.found, baseline.found), (own.drawn, baseline.drawn))
        )
        mean = _mean(found, drawn, shared, own.problems)
    else:
        mean = _difference(own, baseline)
    ratio = mean.estimate.map(math.exp)
    bound: Bound = "at least" if missed[0] else "at most" if missed[1] else ""
    if bound:
        ratio = replace(ratio, high=None) if missed[0] else replace(ratio, low=None)
    tells = min(len(seeds), len(beside)) > 1 and (not bound or (mean.mean > 0) == missed[0])
    return replace(spent, ratio=ratio, ratio_bound=bound, p=mean.p if tells else None, left_out=left_out)


def _mean(found: BySeed, drawn: BySeed, seeds: Sequence[int], problems: int) -> CrossedMean:
    values = tuple(float(found[seed][0]) for seed in seeds)
    variance = _variance([(values, [drawn[seed] for seed in seeds])], problems)
    known = len(seeds) > 1 or problems > 1
    dof = (len(seeds) if len(seeds) > 1 else problems) - 1
    return CrossedMean(float(np.mean(values)), math.sqrt(variance) if known else None, max(1, dof), values)


def _difference(own: _Costs, baseline: _Costs) -> CrossedMean:
    """Difference of the means of two arms whose seeds are not paired."""
    sides = [
        (tuple(float(costs.found[seed][0]) for seed in costs.found), [costs.drawn[seed] for seed in costs.found])
        for costs in (own, baseline)
    ]
    fewest, most = sorted(len(values) for values, _ in sides)
    dof = (fewest if fewest > 1 else own.problems) - 1
    known = most > 1 or own.problems > 1
    stderr = math.sqrt(_variance(sides, own.problems)) if known else None
    return CrossedMean(float(np.mean(sides[0][0]) - np.mean(sides[1][0])), stderr, max(1, dof))


def _variance(sides: Sequence[tuple[Sequence[float], Sequence[Array]]], problems: int) -> float:
    """Variance of a mean over seeds, or of the difference of two, by resampling seeds, problems, and both at once.

    Args:
        sides: one arm, or two arms whose seeds are not paired. Each side holds the observed value of every seed, and
            for every seed its values with resampled problems, (draws,); the draws are the same for all seeds.
        problems: number of problems; 1 = problems are not resampled.
    """
    seed_part = sum(float(np.var(values, ddof=1)) / len(values) for values, _ in sides if len(values) > 1)
    if problems == 1:
        return seed_part
    tables_SD = [np.stack(list(drawn)) for _, drawn in sides]
    draws = np.arange(tables_SD[0].shape[1])
    generator = np.random.default_rng(SEED)
    chosen = [resamples(len(table_SD), len(draws), generator) for table_SD in tables_SD]
    fixed = [table_SD.mean(axis=0) for table_SD in tables_SD]
    mixed = [table_SD[seeds, draws[:, None]].mean(axis=1) for table_SD, seeds in zip(tables_SD, chosen, strict=True)]
    problem_part, both = (float(np.var(means[0] - sum(means[1:]))) for means in (fixed, mixed))
    return corrected(seed_part, problem_part, both - seed_part - problem_part)
