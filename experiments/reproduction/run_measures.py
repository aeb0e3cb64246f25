"""Measures of published results: named functions over finished runs.

A *fact* of a run is not in its evaluations; it is read once from the records and kept beside the curve. A measure is a
number per run, or the cost to a target, which only the mean curves of two arms have.
"""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.analysis.arm_summary import rollouts_per_group, valid_per_step
from halfway.experiments.report.analysis.axes import ROLLOUTS, STEPS, TOKENS, Axis, cost_axis
from halfway.experiments.report.records import Run
from halfway.experiments.reproduction.run_curves import Curve, curve_of

MIDWAY = 0.6
"""The share of the baseline's steps after which the papers compare scores."""

Fact = Callable[[Run], float | None]


def zero_variance_share(run: Run) -> float | None:
    """Share of fresh groups in which all rollouts pass or all fail."""
    return _share(_scored(run, "fresh"), lambda group: group.zero_variance)


def prefix_pass_rate(run: Run) -> float | None:
    """Mean pass rate of groups with prefixes in the second half of the run."""
    return _mean_rate(_late(run))


def prefix_pass_rate_hard(run: Run) -> float | None:
    """`prefix_pass_rate` of head starts, whose parents passed less than half of the time."""
    return _mean_rate([group for group in _late(run) if _parent_rate(group) < 0.5])


def prefix_pass_rate_easy(run: Run) -> float | None:
    """`prefix_pass_rate` of handicaps, whose parents passed more than half of the time."""
    return _mean_rate([group for group in _late(run) if _parent_rate(group) > 0.5])


def band_behind_prefixes(run: Run) -> float | None:
    """Share of groups with a pass rate of 3/8 to 5/8 among groups with prefixes, as a multiple of fresh groups'."""
    return _multiple(run, lambda group: group.near_half)


def extremes_behind_prefixes(run: Run) -> float | None:
    """Share of zero-variance groups among groups with prefixes, as a multiple of fresh groups'."""
    return _multiple(run, lambda group: group.zero_variance)


def early_entropy(run: Run) -> float | None:
    """The policy's entropy at trained tokens in the first half of the steps, in nats."""
    found = [step.learner.get("entropy") for step in run.steps[: max(1, run.num_steps // 2)]]
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def zero_variance_memory(run: Run) -> float | None:
    """Probability of zero variance after a zero-variance group, divided by that of any revisit."""
    latest: dict[str, bool] = {}
    pairs: list[tuple[bool, bool]] = []
    for group in _scored(run, "fresh"):
        if group.problem in latest:
            pairs.append((latest[group.problem], group.zero_variance))
        latest[group.problem] = group.zero_variance
    after = [now for before, now in pairs if before]
    share = fmean(now for _, now in pairs) if pairs else 0.0
    return fmean(after) / share if after and share else None


FACTS: Mapping[str, Fact] = {
    "mixed_groups": valid_per_step,
    "rollouts_per_trained_group": rollouts_per_group,
    "zero_variance_share": zero_variance_share,
    "prefix_pass_rate": prefix_pass_rate,
    "prefix_pass_rate_hard": prefix_pass_rate_hard,
    "prefix_pass_rate_easy": prefix_pass_rate_easy,
    "band_behind_prefixes": band_behind_prefixes,
    "extremes_behind_prefixes": extremes_behind_prefixes,
    "early_entropy": early_entropy,
    "zero_variance_memory": zero_variance_memory,
}


def record_of(run: Run, regime: str) -> Curve:
    """Make a run's curve with all its facts."""
    facts = {name: round(value, 6) for name, fact in FACTS.items() if (value := fact(run)) is not None}
    return msgspec.structs.replace(curve_of(run, regime), facts=facts)


class Measure(NamedTuple):
    """A measure by which a reproduced result is judged.

    Attributes:
        of: value of one run; None if the run has none. None for a cost to a target or with a price.
        axis: the cost, for a cost to a target.
    """

    of: Callable[[Curve], float | None] | None = None
    axis: Axis | None = None


def final_score(curve: Curve) -> float | None:
    """Held-out pass@1 at the end."""
    return float(_scores(curve)[-1]) if curve.evaluations else None


def area(curve: Curve) -> float | None:
    """The area under held-out pass@1 along the steps, divided by their number."""
    steps, scores = _steps(curve), _scores(curve)
    return float(np.trapezoid(scores, steps) / steps[-1]) if len(steps) > 1 else None


def midway_score(curve: Curve) -> float | None:
    """Held-out pass@1 after `MIDWAY` of the steps."""
    steps = _steps(curve)
    return float(np.interp(MIDWAY * steps[-1], steps, _scores(curve))) if len(steps) > 1 else None


def _per_step(axis: Axis) -> Callable[[Curve], float | None]:
    def amount(curve: Curve) -> float | None:
        last = curve.run.evaluations[-1] if curve.evaluations else None
        return axis.of(last) / last.step if last and last.step else None

    return amount


def _fact(name: str) -> Callable[[Curve], float | None]:
    return lambda curve: curve.facts.get(name)


OF_TEXTS = ("utility", "valid", "too_easy", "too_hard", "self_bleu_3", "distinct_3", "top_topic")
"""Facts of the texts of a trained task generator."""

OF_STUDIES = (*OF_TEXTS, "solver_trials", "balanced_accuracy", "calibration_error")
"""These facts, the attempts of the solver, and the quality of the seed's probe on test rows."""

MEASURES: Mapping[str, Measure] = {
    "final_score": Measure(final_score),
    "area": Measure(area),
    "midway_score": Measure(midway_score),
    "steps_to_target": Measure(axis=STEPS),
    "rollouts_to_target": Measure(axis=ROLLOUTS),
    "tokens_to_target": Measure(axis=TOKENS),
    "rollouts_per_step": Measure(_per_step(ROLLOUTS)),
    "tokens_per_step": Measure(_per_step(TOKENS)),
    "cost_per_step": Measure(),  # at the recipe's price of a trained token
    **{name: Measure(_fact(name)) for name in (*FACTS, *OF_STUDIES)},
}


def measure_of(name: str, rho: float) -> tuple[Callable[[Curve], float | None] | None, Axis | None]:
    """A measure's `of` and `axis`, with the price of a trained token in generated tokens."""
    measure = MEASURES[name]
    return (_per_step(cost_axis(rho)) if name == "cost_per_step" else measure.of), measure.axis


def _steps(curve: Curve) -> np.ndarray:
    return np.array([each.step for each in curve.evaluations], np.float64)


def _scores(curve: Curve) -> np.ndarray:
    return np.array([each.pass_at_1 for each in curve.run.evaluations], np.float64)


def _scored(run: Run, origin: str) -> list[GroupRecord]:
    return [group for group in run.groups if group.origin == origin and group.scored]


def _late(run: Run) -> list[GroupRecord]:
    return [group for group in _scored(run, "prefix") if group.step >= run.num_steps / 2]


def _parent_rate(group: GroupRecord) -> float:
    parent = group.parent_count
    return parent.passed / parent.size if parent else 0.5


def _mean_rate(groups: list[GroupRecord]) -> float | None:
    return fmean(group.pass_rate for group in groups) if groups else None


def _share(groups: list[GroupRecord], counts: Callable[[GroupRecord], bool]) -> float | None:
    return fmean(map(counts, groups)) if groups else None


def _multiple(run: Run, counts: Callable[[GroupRecord], bool]) -> float | None:
    behind, fresh = (_share(_scored(run, origin), counts) for origin in ("prefix", "fresh"))
    return behind / fresh if behind is not None and fresh else None
