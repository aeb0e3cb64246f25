"""The verdict: what each arm is worth by kind of data, price and budget, from the committed curves and the plan."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.curriculum.support.atomic import read_json_text, reading
from halfway.experiments.report.analysis.axes import PAPERS_RHO, ROLLOUTS, TOKENS, Axis, cost_axis
from halfway.experiments.report.analysis.curves import common_reach
from halfway.experiments.report.analysis.pooled import Pooled, area_gain, areas, best_shares, by_instance, pool, ratio
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.crossed import CrossedMean
from halfway.experiments.report.statistics.holm import LEVEL, holm
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.text_tables import NONE, TextTable, interval
from halfway.experiments.reproduction.run_curves import Curve, by_arm

BUDGETS = {"a quarter": 0.25, "half": 0.5, "all": 1.0}
"""Parts of what every run of a regime has spent, for which the page says who ends highest."""


REMOVED = frozenset({"dare"})
"""Arms whose controller the product no longer has."""


class Number(msgspec.Struct, array_like=True, frozen=True):
    """A number with its 95 % interval, if it has one.

    Attributes:
        clear: whether it differs from the baseline's after Holm's adjustment.
    """

    value: float
    low: float | None = None
    high: float | None = None
    clear: bool = False

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


class Row(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One arm along one axis.

    Attributes:
        gain: area under the mean curve minus that of the axis's baseline, for which it is None.
        ratio: what is spent until the baseline's end, as a multiple; None for the baseline, or if it is never reached.
        best: by budget, the chance that it scores highest of the arms without extra information; 0 with it.
    """

    area: float
    gain: Number | None = None
    ratio: Number | None = None
    best: dict[str, float] = {}


class Pair(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Two arms of one kind of data, and how much larger the first one's area is along an axis."""

    arm: str
    beside: str
    axis: str
    gain: Number


class Regime(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One kind of data.

    Attributes:
        stage: "screening" or "confirming", which says which seeds these are.
        baselines: by axis, the plain recipe with the largest area, which chance therefore favours.
        complete: whether plain and planned arms have run with every seed of the stage; until then nothing is clear.
        runs, rates, ends: by arm, the number of runs, their learning rate, and their mean final pass@1.
        start: pass@1 of the starting policies.
        axes: by axis and arm.
        pairs: the plan's other differences between arms, as far as both have run.
    """

    stage: str
    baselines: dict[str, str]
    complete: bool
    start: float
    runs: dict[str, int]
    rates: dict[str, float]
    ends: dict[str, float]
    axes: dict[str, dict[str, Row]]
    pairs: tuple[Pair, ...] = ()


class Verdict(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Results of every kind of data, and each arm's gain pooled over the kinds at the same stage, by axis.

    Attributes:
        screened: where confirming runs have begun, the screening runs that came before.
        planned: the arms of the planned contrasts.
        headline: the arms of the front page's table, by the plan's `headline`; the planned ones without it.
        extra_information: what an arm knows beyond the outcomes of its rollouts, for the arms that know more.
        rho: the prices of a trained token in generated ones.
    """

    planned: tuple[str, ...]
    headline: tuple[str, ...]
    extra_information: dict[str, str]
    regimes: dict[str, Regime]
    screened: dict[str, Regime]
    pooled: dict[str, dict[str, Number]]
    rho: tuple[float, ...] = PAPERS_RHO

    @property
    def prices(self) -> tuple[Axis, ...]:
        """The axes of cost: rollouts, tokens, and tokens with training at each rho."""
        return _prices(self.rho)


def read_verdict(path: Path) -> Verdict:
    """Read the verdict.

    Raises:
        UserError: if the file cannot be read as such.
    """
    remedy = "restore it with git, or write it again with verdict.py beside it"
    with reading(path, remedy):
        return msgspec.json.decode(read_json_text(path, remedy), type=Verdict)


def judge(curves: Mapping[str, Sequence[Curve]], plan: Mapping[str, Any]) -> Verdict:
    """Compare the arms of every regime that has runs of two arms.

    Args:
        curves: by regime.
        plan: what was fixed beforehand: instances, seeds by stage, plain recipes, the arms that are tested, and prices.
    """
    regimes, gains, screened = {}, {}, {}
    for name, found in curves.items():
        stage, runs_of = compared(found, plan)
        if len(runs_of) > 1:
            regimes[name], gains[name] = _regime(stage, runs_of, plan, plan.get("pairs", {}).get(name, ()))
        before = compared(found, plan, stages=("screening",))[1] if stage == "confirming" else {}
        if len(before) > 1:
            screened[name], _ = _regime("screening", before, plan, ())
    stages = {regime.stage for regime in regimes.values()}
    last = "confirming" if "confirming" in stages else "screening"
    used = [name for name in gains if regimes[name].stage == last]
    tested = _tested(plan) if all(regimes[name].complete for name in used) else ()
    rho = tuple(plan.get("rho", PAPERS_RHO))
    pooled = {axis.name: _pooled([gains[name][axis.name] for name in used], tested) for axis in _prices(rho)}
    headline = tuple(plan.get("headline", _tested(plan)))
    return Verdict(_tested(plan), headline, plan.get("extra_information", {}), regimes, screened, pooled, rho)


def _prices(rho: Sequence[float]) -> tuple[Axis, ...]:
    return (ROLLOUTS, TOKENS, *map(cost_axis, rho))


def _tested(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The arms of the planned contrasts."""
    return tuple(plan.get("arms", ()))


def compared(
    curves: Sequence[Curve],
    plan: Mapping[str, Any],
    stages: Sequence[str] = ("confirming", "screening"),
) -> tuple[str, dict[str, list[Run]]]:
    """The runs with the seeds of the last stage that has begun, in the instances that every arm has.

    An arm with a single instance, where there are several, is left out until it has another.

    Args:
        stages: which may be taken, the preferred one first.
    """
    number, longest = plan["instances"], max((c.evaluations[-1].rollouts for c in curves), default=0)
    whole = [curve for curve in curves if curve.evaluations[-1].rollouts > 0.9 * longest]
    for stage in stages:
        runs_of = by_arm([curve for curve in whole if curve.seed in plan["seeds"][stage]])
        places = {arm: {run.seed % number for run in runs} for arm, runs in runs_of.items()}
        several = [arm for arm, found in places.items() if len(found) >= min(2, number)]
        if {*several} & {*plan["plain"]}:
            common = set.intersection(*(places[arm] for arm in several))
            return stage, {arm: [run for run in runs_of[arm] if run.seed % number in common] for arm in several}
    return "screening", {}


def _regime(
    stage: str, runs_of: Mapping[str, list[Run]], plan: Mapping[str, Any], named: Sequence[Sequence[str]]
) -> tuple[Regime, dict[str, dict[str, CrossedMean]]]:
    used = [run for runs in runs_of.values() for run in runs]
    parts = by_instance(runs_of, plan["instances"])
    plain = [arm for arm in plan["plain"] if arm in runs_of]
    tested = _tested(plan) if stage == "confirming" else ()
    whole = [{run.seed for run in runs_of.get(arm, ())} == {*plan["seeds"][stage]} for arm in (*plain, *tested)]
    axes, gains, baselines = {}, {}, {}
    for axis in _prices(plan.get("rho", PAPERS_RHO)):
        amount, pooled = common_reach(used, axis), pool(parts, axis)
        observed = areas(pooled, amount)[0]
        baseline = baselines[axis.name] = max(plain, key=lambda arm: observed[pooled.place(arm)])
        gains[axis.name] = {arm: area_gain(pooled, arm, baseline, amount) for arm in runs_of if arm != baseline}
        clear = _clear(gains[axis.name], tested if all(whole) else ())
        axes[axis.name] = _rows(pooled, gains[axis.name], clear, baseline, amount, plan.get("extra_information", ()))
    regime = Regime(
        stage,
        baselines,
        all(whole),
        float(np.mean([run.evaluations[0].pass_at_1 for run in used])),
        {arm: len(runs) for arm, runs in runs_of.items()},
        {arm: runs[0].config["learner"]["lr"] for arm, runs in runs_of.items()},
        {arm: float(np.mean([run.evaluations[-1].pass_at_1 for run in runs])) for arm, runs in runs_of.items()},
        axes,
        _pairs(runs_of, plan, named),
    )
    return regime, gains


def _pairs(
    runs_of: Mapping[str, list[Run]], plan: Mapping[str, Any], named: Sequence[Sequence[str]]
) -> tuple[Pair, ...]:
    """The differences in area, along rollouts unless a third word says otherwise, adjusted together.

    Pairs that have not been run count in the adjustment.
    """
    found = []
    done = [pair for pair in named if runs_of.keys() >= {*pair[:2]}]
    for axis in _prices(plan.get("rho", PAPERS_RHO)):
        along = [(arm, beside) for arm, beside, *other in done if (other or [ROLLOUTS.name]) == [axis.name]]
        arms = dict.fromkeys(arm for pair in along for arm in pair)
        used = {arm: runs_of[arm] for arm in arms}
        if used:
            pooled = pool(by_instance(used, plan["instances"]), axis)
            amount = common_reach([run for runs in used.values() for run in runs], axis)
            found += [(arm, beside, axis, area_gain(pooled, arm, beside, amount)) for arm, beside in along]
    adjusted = holm([gain.p for *_, gain in found], len(named))
    return tuple(
        Pair(arm, beside, axis.label, _number(gain, p is not None and p < LEVEL))
        for (arm, beside, axis, gain), p in zip(found, adjusted, strict=True)
    )


def _rows(
    pooled: Pooled,
    gains: Mapping[str, CrossedMean],
    clear: Mapping[str, bool],
    baseline: str,
    amount: float,
    informed: Collection[str],
) -> dict[str, Row]:
    observed = dict(zip(pooled.arms, areas(pooled, amount)[0].tolist(), strict=True))
    points = {name: int(np.searchsorted(pooled.grid_G, part * amount)) for name, part in BUDGETS.items()}
    plain_A1 = np.array([[arm not in informed] for arm in pooled.arms])
    draws_DAG = np.where(plain_A1, pooled.draws_DAG, -np.inf)
    best = {name: best_shares(draws_DAG[:, :, point]).tolist() for name, point in points.items()}
    rows = {}
    for place, arm in enumerate(pooled.arms):
        shares = {name: share[place] for name, share in best.items()}
        if arm == baseline:
            rows[arm] = Row(observed[arm], best=shares)
            continue
        cost = ratio(pooled, arm, baseline)
        reached = cost is not None and cost.value is not None
        number = Number(cost.value, cost.low, cost.high) if cost and reached and cost.value is not None else None
        rows[arm] = Row(observed[arm], _number(gains[arm], clear[arm]), number, shares)
    return rows


def _clear(gains: Mapping[str, CrossedMean], tested: Collection[str]) -> dict[str, bool]:
    """Which gains are clear after Holm's adjustment over the planned contrasts; others are described, not tested."""
    adjusted = holm([gains[arm].p for arm in gains if arm in tested])
    p_of = dict(zip([arm for arm in gains if arm in tested], adjusted, strict=True))
    return {arm: (p := p_of.get(arm)) is not None and p < LEVEL for arm in gains}


def _number(gain: CrossedMean, clear: bool) -> Number:
    return Number(gain.mean, gain.estimate.low, gain.estimate.high, clear)


def _pooled(gains: Sequence[Mapping[str, CrossedMean]], tested: Collection[str]) -> dict[str, Number]:
    """The gains over regimes of the arms that are in all of them."""
    arms = [arm for arm in (gains[0] if gains else {}) if all(arm in found for found in gains)]
    over = {arm: over_regimes([found[arm] for found in gains]) for arm in arms}
    clear = _clear(over, tested)
    return {arm: _number(gain, clear[arm]) for arm, gain in over.items()}


def over_regimes(effects: Sequence[CrossedMean]) -> CrossedMean:
    """The mean effect over regimes, with an error that counts how much they differ: a random-effects meta-analysis.

    The variance between regimes is Paule and Mandel's (1982), the error Hartung and Knapp's (2001) with one degree of
    freedom less than there are regimes, but never less than the error without their factor. A single regime's effect is
    returned as it is.

    Args:
        effects: one per regime, each with a standard error above 0.
    """
    from statsmodels.stats.meta_analysis import combine_effects

    if len(effects) == 1:
        return effects[0]
    means = np.array([effect.mean for effect in effects])
    errors = np.array([effect.stderr for effect in effects], np.float64)
    assert (errors > 0).all(), "every regime's effect needs an error"
    found = combine_effects(means, errors**2, method_re="iterated")
    stderr = max(float(found.sd_eff_w_re), float(found.sd_eff_w_re_hksj))
    return CrossedMean(float(found.mean_effect_re), stderr, len(effects) - 1, tuple(means.tolist()))


def best_table(verdict: Verdict) -> TextTable:
    """The arms without extra information that most likely score highest, by kind of data, price and budget."""
    rows = []
    for name, regime in verdict.regimes.items():
        for axis in verdict.prices:
            found = regime.axes[axis.name]
            cells = [_best_cell({arm: row.best[budget] for arm, row in found.items()}) for budget in BUDGETS]
            rows.append((_kind(name, regime), axis.label, *cells))
    columns = ("kind of data", "what is paid for", *(f"{budget} of the budget" for budget in BUDGETS))
    notes = (
        "Of the arms without extra information, the two likeliest of each cell, by resampled seeds, problems and, in "
        "screening, instances."
    )
    return TextTable("Which arm scores highest", columns, tuple(rows), notes)


def _best_cell(shares: Mapping[str, float]) -> str:
    likeliest = sorted(shares, key=lambda arm: -shares[arm])[:2]
    return ", ".join(f"{arm} {shares[arm]:.2f}" for arm in likeliest)


def arms_table(verdict: Verdict) -> TextTable:
    """Every arm's gain in area and cost to the baseline's end, by kind of data."""
    rows = [_arm_row(name, regime, arm, verdict) for name, regime in verdict.regimes.items() for arm in regime.runs]
    return _arms("Every arm of the verdict", rows, verdict.prices)


def screened_table(verdict: Verdict) -> TextTable:
    """The columns of `arms_table` for arms that were screened and not run again, and for their baselines."""
    rows = [
        _arm_row(name, regime, arm, verdict)
        for name, regime in verdict.screened.items()
        for arm in regime.runs
        if arm in regime.baselines.values() or arm not in verdict.regimes[name].runs
    ]
    return _arms("Arms that were screened only", rows, verdict.prices)


def _arm_row(name: str, regime: Regime, arm: str, verdict: Verdict) -> tuple[str, ...]:
    gain, ends = regime.axes[ROLLOUTS.name][arm].gain, f"{regime.start:.3f} -> {regime.ends[arm]:.3f}"
    costs = [_ratio_cell(regime.axes[axis.name][arm], arm == regime.baselines[axis.name]) for axis in verdict.prices]
    runs = (verdict.extra_information.get(arm, NONE), str(regime.runs[arm]), f"{regime.rates[arm]:g}")
    label = f"{arm} (removed)" if arm in REMOVED else arm
    return (_kind(name, regime), label, *runs, ends, _gain(gain), *costs)


def _arms(title: str, rows: Sequence[tuple[str, ...]], prices: Sequence[Axis]) -> TextTable:
    spent = (axis.label for axis in prices)
    columns = ("kind of data", "arm", "extra information", "runs", "lr", "pass@1", "gain in area", *spent)
    notes = (
        "Gain in area: over the best plain recipe along rollouts, the arm with the multiple 1 there; *: clear after "
        "Holm's adjustment. Then what is spent until the final score of that price's best plain recipe, as a multiple "
        "of what that one spends until it first has it. 95 % intervals."
    )
    return TextTable(title, columns, tuple(rows), notes)


def pairs_table(verdict: Verdict) -> TextTable:
    """The planned differences between arms that are not beside the best plain recipe."""
    rows = tuple(
        (_kind(name, regime), pair.arm, pair.beside, pair.axis, _gain(pair.gain))
        for name, regime in verdict.regimes.items()
        for pair in regime.pairs
    )
    columns = ("kind of data", "arm", "beside", "along", "difference in area")
    notes = "95 % intervals; *: clear after Holm's adjustment over a kind's pairs."
    return TextTable("Arm beside arm", columns, rows, notes)


def headline_table(verdict: Verdict) -> TextTable:
    """What the headline's arms gain and spend along rollouts, beside the best plain recipe, by kind of data."""
    found = verdict.pooled[ROLLOUTS.name]
    pooled = [("all kinds", NONE, *(_gain(found.get(arm)) for arm in verdict.headline))]
    kinds = {_kind(name, regime): regime for name, regime in verdict.regimes.items()}
    return _beside_plain(verdict.headline, kinds, pooled)


def lab_table(verdict: Verdict, lab: Verdict) -> TextTable:
    """What arms gain and spend along rollouts, and what they did in the lab, by kind of data."""
    arms = dict.fromkeys(arm for regime in verdict.regimes.values() for arm in regime.runs)
    kinds = {_kind(name, regime): regime for name, regime in verdict.regimes.items()}
    kinds |= {f"lab: {_kind(name, regime)}": regime for name, regime in lab.regimes.items()}
    return _beside_plain([*arms], kinds)


def _beside_plain(arms: Sequence[str], kinds: Mapping[str, Regime], more: Sequence[Sequence[str]] = ()) -> TextTable:
    """Arms beside the best plain recipe of each kind of data, along rollouts, and more columns after those."""
    columns = [("arm", "plain, for comparison", *arms)]
    for name, regime in kinds.items():
        columns.append((name, regime.baselines[ROLLOUTS.name], *(_headline_cell(regime, arm) for arm in arms)))
    heads, *rows = zip(*columns, *more, strict=True)
    notes = (
        "Gain in area under pass@1 along rollouts, and the rollouts needed for the plain recipe's final score, as a "
        "multiple of those after which that one first has it; -: the arm does not get there. *: clear after Holm's "
        "adjustment over the planned contrasts; brackets: 95 % intervals, not adjusted."
    )
    return TextTable("Beside the best plain recipe, along rollouts", heads, tuple(rows), notes)


def _headline_cell(regime: Regime, arm: str) -> str:
    if arm not in regime.runs or arm == regime.baselines[ROLLOUTS.name]:
        return NONE
    row = regime.axes[ROLLOUTS.name][arm]
    assert row.gain is not None, "only the baseline has none"
    spent = NONE if row.ratio is None else f"x{row.ratio.value:.2f}"
    return f"{row.gain.value:+.3f}{'*' * row.gain.clear}, {spent}"


def _kind(name: str, regime: Regime) -> str:
    if regime.stage == "screening":
        return f"{name}, screening"
    return name if regime.complete else f"{name}, not complete"


def _gain(gain: Number | None) -> str:
    return NONE if gain is None else interval(gain.estimate, 3, signed=True) + "*" * gain.clear


def _ratio_cell(row: Row, is_baseline: bool) -> str:
    if is_baseline:
        return "1"
    return "not reached" if row.ratio is None else interval(row.ratio.estimate, 2)
