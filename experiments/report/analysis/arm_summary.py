"""Summarises one arm over its seeds: scores, outcomes of rollouts, and seconds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from halfway.curriculum import UserError
from halfway.curriculum.decision_log import UNUSED, GroupRecord
from halfway.experiments.config.run import parse_run_config
from halfway.experiments.report.analysis.curves import scores
from halfway.experiments.report.records import Run, outcome_rollouts
from halfway.experiments.report.statistics.crossed import Array, crossed_mean
from halfway.experiments.report.statistics.intervals import Estimate, few_over_seeds, unless_few
from halfway.trainers.prompt_states import NEED

NOT_IN_A_STEP = ("evaluate", "measure", "checkpoint")
WITHIN_ROLLOUT = ("tools",)
"""Parts of `timing` whose seconds are already counted in the rollout part."""

PAPERS_ROLLOUTS = (0.78, 0.91)
"""Smallest and largest share of the hours that rollouts take in published runs (GRESO, table 2)."""


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm over its seeds. Counts are means over seeds; shares are pooled within a seed, then averaged over seeds.

    Attributes:
        seeds: the seeds, in the order of the `values` of every estimate.
        unfinished: number of runs that have not finished.
        extra_information: what the controllers know besides the outcomes of rollouts, in words; empty = nothing.
        before, after, gain: held-out pass@1 at the first and the last evaluation, and the difference; the last two are
            None if no run has been evaluated twice.
        rollouts, tokens: rollouts and tokens generated for training.
        trained_tokens: tokens that the updates processed, including prompts and replayed prefixes; None if not
            recorded.
        steps: learner steps.
        trained_per_step: mixed trained groups per step.
        mixed: mixed trained groups of a run.
        band_fresh: share of fresh groups, including zero-variance ones, with a pass rate in 3/8..5/8. A fresh group
            starts at the beginning of a problem of the data set, not of a generated one, and without a prefix.
        band_trained: the same share among trained groups of any origin.
        wasted: share of the generated rollouts in groups that do not train, or lost before scoring.
        replayed: share of all rollout tokens that were replayed from a prefix instead of generated.
        entropy: the policy's entropy at the trained tokens in nats, averaged over the steps.
        rollouts_per_group: rollouts generated per trained group.
        skipped: number of problems that the controller refused before any rollout.
        starved: number of steps that trained on fewer groups than the recipe demands.
        seconds: duration of the training loop without evaluation and checkpoints, median over seeds.
        controller_share: share of those seconds spent in propose and observe.
    """

    arm: str
    seeds: tuple[int, ...]
    unfinished: int
    extra_information: str
    before: Estimate | None
    after: Estimate | None
    gain: Estimate | None
    rollouts: Estimate
    tokens: Estimate
    trained_tokens: Estimate | None
    steps: Estimate
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
    mixed: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Shares of the seconds of all runs, without evaluation and checkpoints.

    Attributes:
        rollouts, updates: shares of the seconds.
        rho: update seconds per trained token, divided by rollout seconds per generated token; None if trained tokens
            were not recorded.
    """

    rollouts: float
    updates: float
    rho: float | None

    @property
    def inverted(self) -> bool:
        """True if updates take more time than rollouts, the reverse of the published runs."""
        return self.updates > self.rollouts


def summarize_arm(arm: str, runs: Sequence[Run], known: bool = False) -> ArmSummary:
    """Summarise the runs of one arm. Every run must have finished at least one step.

    Args:
        known: whether passes were recorded by problem, the same problems for all runs; see `problems_known`.
    """
    curves = [scores(run, known) for run in runs if run.evaluations]
    gains = [curve[-1] - curve[0] for curve in curves if len(curve) > 1]
    return ArmSummary(
        arm=arm,
        seeds=tuple(run.seed for run in runs),
        unfinished=sum(not run.finished for run in runs),
        extra_information=extra_information(runs[0].config),
        before=_measured([curve[0] for curve in curves]),
        after=_measured([curve[-1] for curve in curves if len(curve) > 1]),
        gain=unless_few(crossed_mean(np.stack(gains)).estimate, len(gains)) if gains else None,
        rollouts=few_over_seeds([run.steps[-1].rollouts for run in runs]),
        tokens=few_over_seeds([run.steps[-1].tokens for run in runs]),
        trained_tokens=_per_seed(runs, lambda run: run.steps[-1].trained_tokens),
        steps=few_over_seeds([run.num_steps for run in runs]),
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
        mixed=_per_seed(runs, lambda run: valid_per_step(run) * run.num_steps),
    )


EXTRA_INFORMATION = {
    "solutions": "reference solutions",
    "measured": "measured pass rates",
    "generated": "further problems and guesses of their pass rates",
    "also": "further problems",
}
"""Words for a controller's extra information, by need, and for `problems.also`; features keep their names."""


def extra_information(config: Mapping[str, Any]) -> str:
    """Describe the controllers' information besides the outcomes of rollouts; empty also for a configuration of another
    version."""
    try:
        run = parse_run_config(config)
    except UserError:
        return ""
    given = run.chain.needs | ({"also"} if run.problems.also else set())
    features = [need.removeprefix("feature:") for need in given if need.startswith("feature:") and need != NEED]
    return ", ".join([*(words for need, words in EXTRA_INFORMATION.items() if need in given), *sorted(features)])


def valid_per_step(run: Run) -> float:
    """Trained groups per step, without the zero-variance groups that `fill.zero_variance=keep` also trains."""
    return sum(group.outcome == "trained" and not group.zero_variance for group in run.groups) / run.num_steps


def rollouts_per_group(run: Run) -> float | None:
    """Rollouts generated per trained group; None if no group was trained."""
    trained = sum(step.groups.get("trained", 0) for step in run.steps)
    return run.steps[-1].rollouts / trained if trained else None


def wasted_share(run: Run) -> float | None:
    """Share of the generated rollouts without a gradient: in groups that do not train, or lost before scoring.

    None without any rollout.
    """
    fates = outcome_rollouts(run.groups)
    total = fates.total()
    return sum(fates[outcome] for outcome in (*UNUSED, "lost")) / total if total else None


def mean_entropy(run: Run) -> float | None:
    """The policy's entropy at the trained tokens in nats, averaged over the steps; None if it was not recorded."""
    entropies = [entropy for step in run.steps if (entropy := step.learner.get("entropy")) is not None]
    return fmean(entropies) if entropies else None


def replayed_share(run: Run) -> float | None:
    """Replayed tokens as a share of all replayed and generated tokens; None without any."""
    replayed = sum(group.prefix_tokens * group.size for group in run.groups)
    total = replayed + sum(group.tokens for group in run.groups)
    return replayed / total if total else None


def controller_share(runs: Sequence[Run]) -> float | None:
    """Share of the steps' seconds spent in propose and observe, without evaluation and checkpoints.

    A host's rollouts and updates are not timed, so there it is a share of all seconds.
    """
    parts = seconds_by_part(runs)
    total = sum(parts.values()) if "rollout" in parts else sum(run.steps[-1].seconds for run in runs if run.steps)
    return (parts.get("propose", 0.0) + parts.get("observe", 0.0)) / total if total else None


def seconds_by_part(runs: Sequence[Run]) -> dict[str, float]:
    """Seconds of all steps by part of the training loop, without evaluation and checkpoints."""
    parts: defaultdict[str, float] = defaultdict(float)
    for run in runs:
        for step in run.steps:
            for part, seconds in step.timing.items():
                parts[part] += seconds
    return {part: seconds for part, seconds in parts.items() if part not in (*NOT_IN_A_STEP, *WITHIN_ROLLOUT)}


def timing_of(runs: Sequence[Run]) -> Timing | None:
    """The timing of all runs together; None if no seconds of rollouts were recorded, as in a host."""
    parts = seconds_by_part(runs)
    total = sum(parts.values())
    if total <= 0 or "rollout" not in parts:
        return None
    rollout, update = parts.get("rollout", 0.0), parts.get("update", 0.0)
    generated = sum(run.steps[-1].tokens for run in runs if run.steps)
    trained = [run.steps[-1].trained_tokens for run in runs if run.steps]
    rho = None
    if rollout > 0 and generated and None not in trained and sum(filter(None, trained)):
        rho = (update / sum(filter(None, trained))) / (rollout / generated)
    return Timing(rollout / total, update / total, rho)


def by_seed(seeds: Iterable[Sequence[GroupRecord]], counts: Callable[[GroupRecord], bool]) -> list[list[GroupRecord]]:
    """The groups for which `counts` holds: one list for each seed that has any."""
    return [chosen for groups in seeds if (chosen := [group for group in groups if counts(group)])]


def mean_of_groups(cases: Sequence[Sequence[GroupRecord]], value: Callable[[GroupRecord], float]) -> Estimate | None:
    """Mean value of the groups within each seed, over seeds; None without any group."""
    return few_over_seeds([fmean(map(value, groups)) for groups in cases]) if cases else None


def _measured(rates: Sequence[Array]) -> Estimate | None:
    """Held-out pass@1 from the problems' pass rates in every run."""
    return unless_few(crossed_mean(np.stack(rates)).estimate.as_rate, len(rates)) if rates else None


def _per_seed(runs: Sequence[Run], value: Callable[[Run], float | None]) -> Estimate | None:
    values = [number for run in runs if (number := value(run)) is not None]
    return few_over_seeds(values) if values else None


def _band(runs: Sequence[Run], counts: Callable[[GroupRecord], bool]) -> Estimate | None:
    """Share of the groups with a pass rate in 3/8..5/8, among those for which `counts` holds."""
    return mean_of_groups(by_seed((run.groups for run in runs), counts), lambda group: group.near_half)
