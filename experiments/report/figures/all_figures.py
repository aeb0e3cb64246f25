"""Lists the figures of a report, with their headings and captions."""

from collections.abc import Callable
from dataclasses import dataclass

from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.figures.charts import Chart
from halfway.experiments.report.figures.forest import contrast_forest, saving_forest
from halfway.experiments.report.figures.groups import pass_counts, prefix_control, problem_map, zero_variance
from halfway.experiments.report.figures.learning_curves import learning_curves, strata_curves
from halfway.experiments.report.figures.spending import rollout_fates, timing, training
from halfway.experiments.report.figures.timeline import lags, timeline
from halfway.experiments.report.records import Comparison

SMOOTH = "Lines are centred moving averages over a tenth of the run, all seeds together."


CAPTIONS = {
    "learning_curves": "Means over seeds, as far as every seed got. Bands: intervals, as under Arms; with two or "
    "three seeds, thin lines: the single runs. Dotted: targets.",
    "rollout_fates": "Rollouts of a run, mean over seeds, by what became of them. Pale: what the skipped problems "
    "would have taken. A click lists the problems.",
    "contrasts": "Differences in held-out pass@1, first arm minus second, where every run has spent the same; the "
    "comparison is judged by the panel with *. 95 % intervals for each pair alone. Filled: clear after Holm's "
    "adjustment within the panel.",
    "cost_to_reach": "What an arm spends until its mean curve has a score, as a multiple of what the baseline "
    "spends, with 95 % intervals from resamples. Filled: clearly not 1 after Holm's adjustment within the panel. "
    "Triangles: no upper end. Not reached: with the share of the resamples.",
    "strata_curves": "Held-out pass rate by stratum of the problems, means over seeds.",
    "training": "What the runs report at each step, means over seeds. The pass rate is that of the groups that were "
    f"rolled out, prefixes included; response length is without replayed tokens. {SMOOTH}",
    "pass_counts": "Groups by their number of passing rollouts. Grey areas are zero-variance groups (dark: none "
    f"passed, light: all passed), which teach nothing; green is the middle. {SMOOTH}",
    "problem_map": "Training problems from hard (above) to easy, each in the colour of its last pass count up to the "
    "step: grey none or all, green near one half; empty before its first visit. The first run of each arm.",
    "zero_variance": f"Share of the rolled-out groups in which all rollouts passed or none did. {SMOOTH}",
    "prefix_control": "Groups behind a prefix, by the pass count of the parent group: their mean pass rate; the share "
    f"that has zero variance nevertheless; and the prefix ratio that the controller set, one line per seed. {SMOOTH}",
    "timing": "Where the seconds of a step go. Pale parts do not count towards a budget of seconds.",
    "timeline": "When sampler and learner worked, for a dozen steps of the first run of each arm whose rollouts do not "
    "wait (`rollouts.staleness`); gaps are waiting.",
    "lags": "By how many updates the learner was ahead of the weights that sampled the groups of each step, in the "
    "first run of each arm whose rollouts do not wait.",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart: its file name without extension, its heading, and its function; `CAPTIONS` has its caption."""

    name: str
    heading: str
    draw: Callable[[Comparison, Summary], Chart | None]


PICTURES = (
    Picture("learning_curves", "Held-out pass@1", lambda runs, _: learning_curves(runs)),
    Picture("rollout_fates", "Where the rollouts went", lambda runs, _: rollout_fates(runs)),
    Picture("contrasts", "Contrasts", contrast_forest),
    Picture("cost_to_reach", "Cost to reach a score", saving_forest),
    Picture("training", "Training by step", lambda runs, _: training(runs)),
    Picture("pass_counts", "Pass counts over time", lambda runs, _: pass_counts(runs)),
    Picture("problem_map", "Problem by step", lambda runs, _: problem_map(runs)),
    Picture("strata_curves", "What was learnt when", lambda runs, _: strata_curves(runs)),
    Picture("zero_variance", "Zero-variance groups", lambda runs, _: zero_variance(runs)),
    Picture("prefix_control", "What the prefixes do", lambda runs, _: prefix_control(runs)),
    Picture("timing", "Where the time goes", lambda runs, _: timing(runs)),
    Picture("timeline", "Who worked when", lambda runs, _: timeline(runs)),
    Picture("lags", "How late groups came", lambda runs, _: lags(runs)),
)
