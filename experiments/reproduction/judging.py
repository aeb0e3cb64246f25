"""Judges rows by finished runs: estimate, interval, power for the rule's size, and status.

A multiple is a ratio of geometric means over runs, with its interval on a logarithmic scale. Runs of an instance are a
stratum (`report.analysis.pooled`). The arms of a study are compared within seeds, since they share a seed's corpus and
probe. Power is the chance that an interval of the measured width excludes no effect, if the effect has the rule's size.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from halfway.curriculum.support.atomic import read_json_text, reading, write_json
from halfway.experiments.config import yaml_files
from halfway.experiments.config.paths import recipe
from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.pooled import by_instance, pool, ratio
from halfway.experiments.report.statistics.crossed import (
    Array,
    CrossedMean,
    crossed_mean,
    mean_difference,
    mean_of_strata,
)
from halfway.experiments.report.statistics.intervals import LEVEL
from halfway.experiments.reproduction.paper_rows import HERE, Paper, Row, papers
from halfway.experiments.reproduction.run_curves import Curve, by_arm, read_curves
from halfway.experiments.reproduction.run_measures import measure_of

CURVES = HERE / "curves"
MEASURED = HERE / "measured"
ENOUGH = 0.8
"""The power below which an interval decides nothing: its findings would too often be chance, or too large."""

REPRODUCED, PARTLY, NOT, UNDECIDED = "reproduced", "partly", "not reproduced", "undecided"
NOT_RUN, CANNOT = "not run on this ground", "cannot be tested here"
STATUSES = (REPRODUCED, PARTLY, NOT, UNDECIDED, NOT_RUN, CANNOT)


class Measured(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """The measured result of a row.

    Attributes:
        value, low, high: the estimate with its 95 % interval; None if infinite or unknown.
        arm, against: the mean measure of either arm; None for a cost to a target.
        runs: number of runs of each arm, in the order of `Row.arms`.
        left_out: number of runs without the measure.
        power: power for the rule's size; None if unknown.
        minutes: minutes of the runs on one core, if recorded.
    """

    status: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    arm: float | None = None
    against: float | None = None
    runs: tuple[int, ...] = ()
    left_out: int = 0
    power: float | None = None
    minutes: float | None = None


class _Estimate(msgspec.Struct, frozen=True):
    """An estimate on the scale of its interval, which is logarithmic for a multiple."""

    value: float
    low: float
    high: float
    stderr: float
    dof: float


class Ground(NamedTuple):
    """The facts about a recipe for judging.

    Attributes:
        instances: number of instances of the task; seed s belongs to instance s modulo their number.
        rho: the price of a trained token in generated tokens.
        paired: whether arms are compared within seeds.
    """

    instances: int = 1
    rho: float = 1.0
    paired: bool = False


def ground_of(paper: Paper, row: Row) -> Ground:
    """Read the recipe of a row."""
    raw = yaml_files.read(recipe(paper.recipe_of(row)))
    [rho] = raw.get("costs", {}).get("rho", [1.0])[:1]
    return Ground(max(1, len(raw.get("instances") or ())), rho, paper.study)


def judge(row: Row, curves: Sequence[Curve], ground: Ground) -> Measured:
    """Judge a row by its runs."""
    if not row.runs:
        return Measured(CANNOT if row.cannot else REPRODUCED)
    of, axis = measure_of(row.measure, ground.rho)
    own = {arm: [curve for curve in curves if curve.arm == arm] for arm in row.arms}
    kept = {arm: [curve for curve in found if of is None or of(curve) is not None] for arm, found in own.items()}
    left_out = sum(map(len, own.values())) - sum(map(len, kept.values()))
    if ground.paired:  # a seed counts if both arms have it
        both = set.intersection(*({curve.seed for curve in found} for found in kept.values()))
        kept = {arm: [curve for curve in found if curve.seed in both] for arm, found in kept.items()}
    runs = tuple(len(found) for found in kept.values())
    if not all(runs):
        return Measured(NOT_RUN, runs=runs, left_out=left_out)
    values = {arm: {one.seed: x for one in group if (x := of(one)) is not None} for arm, group in kept.items() if of}
    found = _cost(row, kept, ground.instances, axis) if axis else _number(row, values, ground)
    seconds = sum(curve.evaluations[-1].seconds for group in kept.values() for curve in group if curve.evaluations)
    value, low, high = (_shown(row, x) for x in (found.value, found.low, found.high)) if found else (None, None, None)
    return Measured(
        status_of(row, found),
        value,
        low,
        high,
        arm=_mean(values.get(row.arm)),
        against=_mean(values.get(row.against)),
        runs=runs,
        left_out=left_out,
        power=round(power_of(row, found), 3) if found else None,
        minutes=round(seconds / 60, 1) if seconds else None,
    )


def status_of(row: Row, found: _Estimate | None) -> str:
    """Apply a row's rule to an estimate; without a rule or without power, the row is undecided."""
    if found is None or power_of(row, found) < ENOUGH:
        return UNDECIDED
    if row.within is not None:
        low, high = (math.inf if bound is None else _scaled(row, bound) for bound in row.within)
        if low <= found.low and found.high <= high:
            return REPRODUCED
        return NOT if found.high < low or found.low > high else UNDECIDED
    null, least = _scaled(row, row.null), _scaled(row, row.least)
    sign = 1 if least > null else -1
    if (found.low if sign > 0 else -found.high) > sign * null:
        return REPRODUCED if sign * (found.value - least) >= 0 else PARTLY
    return NOT


def power_of(row: Row, found: _Estimate) -> float:
    """The chance that an interval of this width decides, if the effect has the rule's size.

    With bounds, the true value is assumed to be halfway between them.
    """
    from scipy.special import nctdtr, stdtr, stdtrit

    if not math.isfinite(found.stderr):
        return 0.0
    edge = float(stdtrit(found.dof, (1 + LEVEL) / 2))
    if row.within is not None:
        low, high = (None if bound is None else _scaled(row, bound) for bound in row.within)
        assert low is not None
        truth = 0.0 if row.against else (low + (low if high is None else high)) / 2
        room = [truth - low, *([] if high is None else [high - truth])]
        inside = [
            float(stdtr(found.dof, one / found.stderr - edge)) if found.stderr else float(one > 0) for one in room
        ]
        return max(0.0, sum(inside) - len(inside) + 1)
    effect = abs(_scaled(row, row.least) - _scaled(row, row.null))
    return 1 - float(nctdtr(found.dof, effect / found.stderr, edge)) if found.stderr else 1.0


def _number(row: Row, values: Mapping[str, Mapping[int, float]], ground: Ground) -> _Estimate | None:
    """Estimate a measure that every run has; None without an interval, or without a logarithm."""
    if row.against and min(min(found.values()) for found in values.values()) <= 0:
        return None
    scaled = {arm: {seed: _scaled(row, value) for seed, value in found.items()} for arm, found in values.items()}
    strata = _strata(scaled, ground.instances)
    own = scaled[row.arm]
    if not row.against:
        mean = mean_of_strata([crossed_mean(part[row.arm]) for part in strata])
    elif ground.paired:
        mean = crossed_mean(np.array([[own[seed] - scaled[row.against][seed]] for seed in own]))
    else:
        mean = mean_difference([(part[row.arm], part[row.against]) for part in strata])
    return _of_mean(mean)


def _strata(scaled: Mapping[str, Mapping[int, float]], instances: int) -> list[dict[str, Array]]:
    """The values of each instance in which every arm has a run, (runs, 1); one stratum if no instance has."""
    parts = [
        {
            arm: np.array([[value] for seed, value in found.items() if seed % instances == place])
            for arm, found in scaled.items()
        }
        for place in range(instances)
    ]
    whole = {arm: np.array([[value] for value in found.values()]) for arm, found in scaled.items()}
    return [part for part in parts if all(map(len, part.values()))] or [whole]


def _of_mean(mean: CrossedMean) -> _Estimate | None:
    found = mean.estimate
    if mean.stderr is None or found.low is None or found.high is None or not math.isfinite(found.high):
        return None
    return _Estimate(found.value, found.low, found.high, mean.stderr, mean.dof)


def _cost(row: Row, kept: Mapping[str, Sequence[Curve]], instances: int, axis: Axis) -> _Estimate | None:
    """Estimate the cost to the other arm's final score; infinite if the arm never reaches it."""
    runs = {arm: by_arm(found)[arm] for arm, found in kept.items()}
    found = ratio(pool(by_instance(runs, instances), axis), row.arm, row.against)
    if found is None or found.never is None or found.low == 0:
        return None
    value, low, high = (
        math.inf if bound is None else math.log(bound) for bound in (found.value, found.low, found.high)
    )
    stderr = (high - low) / (2 * 1.96) if math.isfinite(high) else math.inf
    return _Estimate(value, low, high, stderr, math.inf)


def _mean(values: Mapping[int, float] | None) -> float | None:
    """An arm's mean; None for a cost to a target, which only mean curves have."""
    return round(float(np.mean([*values.values()])), 4) if values else None


def _scaled(row: Row, value: float) -> float:
    return math.log(value) if row.against else value


def _shown(row: Row, value: float) -> float | None:
    if math.isinf(value):
        return None
    return round(math.exp(value) if row.against else value, 4)


def committed_runs(paper: Paper, row: Row) -> list[Curve]:
    """Read the committed runs of a row, if there are any."""
    file = CURVES / f"{paper.name}.jsonl.gz"
    found = read_curves(file) if file.exists() else []
    return [curve for curve in found if not row.seeds or curve.seed in row.seeds]


def judge_paper(paper: Paper) -> dict[str, Measured]:
    """Judge each row of a paper by the committed runs."""
    return {
        name: judge(row, committed_runs(paper, row) if row.runs else (), ground_of(paper, row))
        for name, row in paper.rows.items()
    }


def decided_claims(paper: Paper, found: Mapping[str, Measured]) -> set[str]:
    """The rows that runs decided by a rule older than the runs; rows that share a measurement count once."""
    rows = {name: row for name, row in paper.rows.items() if row.runs and not row.late}
    return {row.rests_on or name for name, row in rows.items() if found[name].status in (REPRODUCED, PARTLY, NOT)}


def write_measured() -> None:
    """Judge every row by the committed runs, and write the results for `halfway reproduce`."""
    MEASURED.mkdir(exist_ok=True)
    for paper in papers():
        write_json(MEASURED / f"{paper.name}.json", msgspec.to_builtins(judge_paper(paper)))


def read_measured(paper: Paper) -> dict[str, Measured]:
    """Read the committed measurement of each row of a paper; a row that is not in the file was not run."""
    file = MEASURED / f"{paper.name}.json"
    remedy = "restore it with git, or write it again with `make reproduction`"
    with reading(file, remedy):
        found = msgspec.json.decode(read_json_text(file, remedy), type=dict[str, Measured]) if file.exists() else {}
    return {name: found.get(name, Measured(NOT_RUN)) for name in paper.rows}
