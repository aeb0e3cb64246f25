"""Lists the figures of a report, with their headings; `templates/captions.html.j2` has their captions."""

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


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart: its file name without extension, its heading, and its function."""

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
