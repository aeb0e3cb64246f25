"""What a comparison says: one row an arm, differences between arms, and what became of groups by where they began."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from halfway.experiments.report.prefix_metrics import final_ratio
from halfway.experiments.report.records import Comparison, EvaluationRecord, GroupRecord, Run, outcome_rollouts
from halfway.experiments.report.statistics.intervals import (
    Estimate,
    clustered_mean,
    normal,
    over_seeds,
    proportion,
    ratio_of_means,
    ratio_over_seeds,
)

NOT_IN_A_STEP = ("evaluate", "checkpoint")
COSTS = ("rollouts", "tokens", "step", "seconds")


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm over its seeds. Counts are means over seeds, shares are pooled within a seed and averaged over seeds.

    Attributes:
        before, after, gain: held-out pass@1 at the first and the last evaluation, and the difference.
        rollouts, tokens, steps: generated for training, and learner steps.
        trained_per_step: non-degenerate groups that were trained, a step.
        band_fresh: share of fresh groups, degenerate ones included, with a pass rate in 3/8..5/8. Fresh: of the data
            set's own problems, from their start; neither generated nor behind a prefix.
        band_trained: the same share of the trained groups of any origin.
        wasted: share of the generated rollouts in dropped or surplus groups, or lost before scoring.
        replayed: share of the tokens of all rollouts that were replayed from a prefix, so need not be generated.
        entropy: of the policy at the trained tokens, in nats, mean over the steps.
        rollouts_per_group: rollouts generated a trained group.
        skipped: problems refused before any rollout.
        starved: steps that trained on fewer groups than asked for.
        seconds: of the loop without evaluation and checkpoints, median over seeds.
        controller_share: share of those seconds spent in propose and observe.
        rollout_fates: rollouts by outcome.
    """

    arm: str
    seeds: tuple[int, ...]
    unfinished: int
    before: Estimate | None
    after: Estimate | None
    gain: Estimate | None
    rollouts: float
    tokens: float
    steps: float
    trained_per_step: Estimate | None
    band_fresh: Estimate | None
    band_trained: Estimate | None
    wasted: Estimate | None
    replayed: Estimate | None
    entropy: Estimate | None
    rollouts_per_group: Estimate | None
    skipped: float
    starved: float
    seconds: float
    controller_share: float | None
    rollout_fates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """One arm against another.

    Attributes:
        pass_at_1: final pass@1 of `arm` minus that of `reference`.
        rollout_ratio: rollouts a trained group of `arm`, divided by those of `reference`; geometric means over seeds.
        paired: both are differences within a seed, averaged over the seeds that the two arms share.
    """

    arm: str
    reference: str
    pass_at_1: Estimate | None
    rollout_ratio: Estimate | None
    paired: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """Cost of an arm to reach a held-out pass@1 that every arm reached, on its mean curve over seeds; and that cost
    divided by the first arm's. None if the curve never crosses the target."""

    arm: str
    target: float
    cost: Mapping[str, float | None]
    ratio: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class StartRow:
    """Groups that started from one kind of state: a problem of the data set, a generated one, or behind a prefix.

    Estimates are over the seeds that have such groups. Where one seed has, they are of its groups: the mean with an
    interval clustered by problem, shares with one that takes groups for independent.

    Attributes:
        start: "fresh" (of the data set's problems, from their start), "generated", "prefixed" (all buckets), or
            "k of N" for the parent's pass count.
        groups: scored groups, over all seeds; `late_*` are those of the second half of the steps.
        mean: mean pass rate. degenerate: share with k = 0 or k = N. band: share with a pass rate in 3/8..5/8.
        prefix_tokens: mean length of the replayed prefix.
        ratio: the controller's prefix ratio of this bucket after the last step, if it reports one.
    """

    arm: str
    start: str
    groups: int
    mean: Estimate | None
    degenerate: Estimate | None
    band: Estimate | None
    late_groups: int
    late_mean: Estimate | None
    late_degenerate: Estimate | None
    late_band: Estimate | None
    prefix_tokens: float
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything the tables and the report print. `arms` keeps the declared order, `ranking` the order of pass@1."""

    budget: tuple[str, float] | None
    intervals: str
    unreadable: int
    arms: tuple[ArmSummary, ...]
    ranking: tuple[str, ...]
    differences: tuple[Difference, ...]
    reach: tuple[Reach, ...]
    starts: tuple[StartRow, ...]


def summarize(comparison: Comparison) -> Summary:
    """Compute every number of the tables from the records of the runs."""
    runs_of = comparison.started().runs
    arms = tuple(summarize_arm(arm, runs) for arm, runs in runs_of.items())
    evaluated = [arm for arm in arms if arm.after is not None]
    names = list(runs_of)
    return Summary(
        budget=comparison.budget,
        intervals=describe_intervals(comparison.started()),
        unreadable=sum(run.unreadable for run in comparison.all_runs),
        arms=arms,
        ranking=tuple(arm.arm for arm in sorted(evaluated, key=lambda arm: -(arm.after.value if arm.after else 0))),
        differences=tuple(
            compare_arms(runs_of[arm], runs_of[reference])
            for i, reference in enumerate(names)
            for arm in names[i + 1 :]
        ),
        reach=tuple(cost_to_reach(runs_of)),
        starts=tuple(row for runs in runs_of.values() for row in start_rows(runs)),
    )


def describe_intervals(comparison: Comparison) -> str:
    """How the intervals of pass@1 were computed, for the caption."""
    if all(len(runs) >= 2 for runs in comparison.runs.values()):
        return (
            "95 % Student-t intervals over seeds; gains are differences within a seed, "
            "differences between arms are paired by seed; all evaluations use the same held-out problems"
        )
    if all(len(runs) < 2 for runs in comparison.runs.values()):
        return (
            "one seed: 95 % normal intervals from standard errors clustered by problem, which say nothing about the "
            "spread over seeds; gains and differences add the two variances, an upper bound for the same problems"
        )
    return (
        "arms with two or more seeds: 95 % Student-t intervals over seeds; arms with one: normal intervals clustered "
        "by problem, which say nothing about the spread over seeds; gains are differences within a seed, "
        "differences between arms are paired by seed where they share at least two"
    )


def summarize_arm(arm: str, runs: Sequence[Run]) -> ArmSummary:
    """The row of one arm. Needs at least one run with a finished step."""
    evaluated = [run for run in runs if run.evaluations]
    fates: Counter[str] = Counter()
    for run in runs:
        fates.update(outcome_rollouts(run.groups))
    return ArmSummary(
        arm=arm,
        seeds=tuple(run.seed for run in runs),
        unfinished=sum(not run.finished for run in runs),
        before=_pass_at_1([run.evaluations[0] for run in evaluated]),
        after=_pass_at_1([run.evaluations[-1] for run in evaluated]),
        gain=_difference([(run.evaluations[-1], run.evaluations[0]) for run in evaluated if len(run.evaluations) > 1]),
        rollouts=fmean(run.steps[-1].rollouts for run in runs),
        tokens=fmean(run.steps[-1].tokens for run in runs),
        steps=fmean(run.num_steps for run in runs),
        trained_per_step=_per_seed(runs, valid_per_step),
        band_fresh=_band(runs, lambda group: group.scored and group.fresh),
        band_trained=_band(runs, lambda group: group.outcome == "trained"),
        wasted=_per_seed(runs, wasted_share),
        replayed=_per_seed(runs, replayed_share),
        entropy=_per_seed(runs, mean_entropy),
        rollouts_per_group=_per_seed(runs, rollouts_per_group),
        skipped=fmean(len(run.skips) for run in runs),
        starved=fmean(sum(step.starved for step in run.steps) for run in runs),
        seconds=median(run.steps[-1].seconds for run in runs),
        controller_share=controller_share(runs),
        rollout_fates={outcome: count / len(runs) for outcome, count in sorted(fates.items())},
    )


def trained_groups(run: Run) -> int:
    """Groups that reached the learner."""
    return sum(step.groups.get("trained", 0) for step in run.steps)


def valid_per_step(run: Run) -> float:
    """Trained groups a step, without the degenerate ones that fill.degenerate=keep trains too."""
    return sum(group.outcome == "trained" and not group.degenerate for group in run.groups) / run.num_steps


def rollouts_per_group(run: Run) -> float | None:
    """Rollouts generated a trained group."""
    trained = trained_groups(run)
    return run.steps[-1].rollouts / trained if trained else None


def wasted_share(run: Run) -> float | None:
    """Share of the generated rollouts that taught nothing: in dropped or surplus groups, or lost before scoring."""
    fates = outcome_rollouts(run.groups)
    total = fates.total()
    return (fates["degenerate"] + fates["surplus"] + fates["lost"]) / total if total else None


def mean_entropy(run: Run) -> float | None:
    """Mean over the steps of the policy's entropy at the trained tokens, in nats."""
    entropies = [entropy for step in run.steps if (entropy := step.learner.get("entropy")) is not None]
    return fmean(entropies) if entropies else None


def replayed_share(run: Run) -> float | None:
    """Tokens replayed, out of those replayed and generated."""
    replayed = sum(group.prefix_tokens * group.size for group in run.groups)
    total = replayed + sum(group.tokens for group in run.groups)
    return replayed / total if total else None


def controller_share(runs: Sequence[Run]) -> float | None:
    """Seconds in propose and observe, out of the seconds of all steps without evaluation and checkpoints."""
    parts: defaultdict[str, float] = defaultdict(float)
    for run in runs:
        for step in run.steps:
            for part, seconds in step.timing.items():
                parts[part] += seconds
    total = sum(seconds for part, seconds in parts.items() if part not in NOT_IN_A_STEP)
    return (parts["propose"] + parts["observe"]) / total if total else None


def compare_arms(runs: Sequence[Run], reference: Sequence[Run]) -> Difference:
    """The difference of two arms: paired by seed if they share at least two, else between their means."""
    seeds = sorted({run.seed for run in runs} & {run.seed for run in reference})
    paired = len(seeds) >= 2
    left, right = ([run for run in side if not paired or run.seed in seeds] for side in (runs, reference))
    return Difference(
        arm=runs[0].arm,
        reference=reference[0].arm,
        pass_at_1=_arm_difference(left, right, paired),
        rollout_ratio=_rollout_ratio(left, right, paired),
        paired=paired,
    )


def cost_to_reach(runs_of: Mapping[str, Sequence[Run]]) -> list[Reach]:
    """What each arm spent to reach the lowest of the arms' final pass@1, linear between evaluations."""
    curves = {arm: curve for arm, runs in runs_of.items() if len(curve := mean_curve(runs)) > 1}
    if not curves:
        return []
    target = min(float(curve[-1, -1]) for curve in curves.values())
    costs = {
        arm: {cost: first_crossing(curve[:, i], curve[:, -1], target) for i, cost in enumerate(COSTS)}
        for arm, curve in curves.items()
    }
    first = next(iter(costs.values()))
    return [
        Reach(arm, target, cost, {unit: _ratio(value, first[unit]) for unit, value in cost.items()})
        for arm, cost in costs.items()
    ]


def mean_curve(runs: Sequence[Run]) -> NDArray[np.float64]:
    """Means over seeds of (rollouts, tokens, step, seconds, pass@1), one row an evaluation that every seed has.
    Seeds with less than two evaluations are left out."""
    runs = [run for run in runs if len(run.evaluations) > 1]
    columns = (*COSTS, "pass_at_1")
    if not runs:
        return np.zeros((0, len(columns)))
    points = min(len(run.evaluations) for run in runs)
    values = [
        [[getattr(evaluation, column) for column in columns] for evaluation in run.evaluations[:points]] for run in runs
    ]
    stacked = np.asarray(values, np.float64).reshape(len(runs), points, len(columns))
    return np.asarray(stacked.mean(axis=0))


def first_crossing(cost: NDArray[np.float64], score: NDArray[np.float64], target: float) -> float | None:
    """Cost at which a piecewise linear curve first reaches the target; None if it never does."""
    for i in range(len(score)):
        if score[i] >= target:
            if i == 0:
                return float(cost[0])
            share = (target - score[i - 1]) / (score[i] - score[i - 1])
            return float(cost[i - 1] + share * (cost[i] - cost[i - 1]))
    return None


def start_rows(runs: Sequence[Run]) -> list[StartRow]:
    """Fresh, generated and prefixed groups, and those of each parent bucket; nothing for an arm of fresh ones alone."""
    buckets = sorted({group.bucket for run in runs for group in run.groups if group.prefixed and group.bucket})
    generated = any(group.generated for run in runs for group in run.groups)
    if not buckets and not generated:
        return []
    rows = [_start_row(runs, "fresh", lambda group: group.fresh, None)]
    if generated:
        rows.append(_start_row(runs, "generated", lambda group: group.generated, None))
    if buckets:
        rows.append(_start_row(runs, "prefixed", lambda group: group.prefixed, None))
    for bucket in buckets:
        ratios = [value for run in runs if (value := final_ratio(run, bucket)) is not None]
        rows.append(
            _start_row(
                runs,
                f"{bucket[0]} of {bucket[1]}",
                lambda group, bucket=bucket: group.prefixed and group.bucket == bucket,  # type: ignore[misc]
                fmean(ratios) if ratios else None,
            )
        )
    return rows


def _start_row(
    runs: Sequence[Run], start: str, belongs: Callable[[GroupRecord], bool], ratio: float | None
) -> StartRow:
    def counts(group: GroupRecord) -> bool:
        return group.scored and belongs(group)

    cases = _by_seed((run.groups for run in runs), counts)
    late = _by_seed((run.second_half() for run in runs), counts)
    return StartRow(
        arm=runs[0].arm,
        start=start,
        groups=sum(map(len, cases)),
        mean=_mean_pass_rate(cases),
        degenerate=_share(cases, lambda group: group.degenerate),
        band=_share(cases, lambda group: group.in_band),
        late_groups=sum(map(len, late)),
        late_mean=_mean_pass_rate(late),
        late_degenerate=_share(late, lambda group: group.degenerate),
        late_band=_share(late, lambda group: group.in_band),
        prefix_tokens=fmean([group.prefix_tokens for groups in cases for group in groups] or [0]),
        ratio=ratio,
    )


def _pass_at_1(evaluations: Sequence[EvaluationRecord]) -> Estimate | None:
    if not evaluations:
        return None
    if len(evaluations) == 1:
        return normal(evaluations[0].pass_at_1, evaluations[0].stderr)
    return over_seeds([evaluation.pass_at_1 for evaluation in evaluations])


def _difference(pairs: Sequence[tuple[EvaluationRecord, EvaluationRecord]]) -> Estimate | None:
    """Mean of left - right, one pair a seed; with one pair from the two standard errors."""
    if not pairs:
        return None
    differences = [left.pass_at_1 - right.pass_at_1 for left, right in pairs]
    if len(pairs) > 1:
        return over_seeds(differences)
    (left, right), *_ = pairs
    return normal(differences[0], float(np.hypot(left.stderr, right.stderr)))


def _arm_difference(left: Sequence[Run], right: Sequence[Run], paired: bool) -> Estimate | None:
    finals = [[run.evaluations[-1] for run in side if run.evaluations] for side in (left, right)]
    if paired and len(finals[0]) == len(finals[1]) == len(left):
        return _difference(list(zip(*finals, strict=True)))
    if len(finals[0]) == len(finals[1]) == 1:
        return _difference([(finals[0][0], finals[1][0])])
    means = [fmean(evaluation.pass_at_1 for evaluation in side) if side else None for side in finals]
    return Estimate(means[0] - means[1]) if means[0] is not None and means[1] is not None else None


def _rollout_ratio(left: Sequence[Run], right: Sequence[Run], paired: bool) -> Estimate | None:
    values = [[value for run in side if (value := rollouts_per_group(run)) is not None] for side in (left, right)]
    if not values[0] or not values[1]:
        return None
    if paired and len(values[0]) == len(values[1]) == len(left):
        return ratio_over_seeds(*values)
    return ratio_of_means(*values)


def _per_seed(runs: Sequence[Run], value: Callable[[Run], float | None]) -> Estimate | None:
    values = [number for run in runs if (number := value(run)) is not None]
    return over_seeds(values) if values else None


def _band(runs: Sequence[Run], counts: Callable[[GroupRecord], bool]) -> Estimate | None:
    """Share of the groups that count whose pass rate lies in 3/8..5/8."""
    return _share(_by_seed((run.groups for run in runs), counts), lambda group: group.in_band)


def _by_seed(seeds: Iterable[Sequence[GroupRecord]], counts: Callable[[GroupRecord], bool]) -> list[list[GroupRecord]]:
    """The groups that count, a list for each seed that has any."""
    return [chosen for groups in seeds if (chosen := [group for group in groups if counts(group)])]


def _share(cases: Sequence[Sequence[GroupRecord]], hit: Callable[[GroupRecord], bool]) -> Estimate | None:
    """Share of the groups which are a hit: over seeds, or with one seed over its groups."""
    if len(cases) == 1:
        return proportion(sum(map(hit, cases[0])), len(cases[0]))
    return over_seeds([sum(map(hit, groups)) / len(groups) for groups in cases]) if cases else None


def _mean_pass_rate(cases: Sequence[Sequence[GroupRecord]]) -> Estimate | None:
    """Mean pass rate of the groups: over seeds, or with one seed over its problems."""
    if len(cases) == 1:
        return clustered_mean([group.pass_rate for group in cases[0]], [group.problem for group in cases[0]])
    return over_seeds([fmean(group.pass_rate for group in groups) for groups in cases]) if cases else None


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None
