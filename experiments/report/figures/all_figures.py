"""Lists the figures of a report, with their headings and captions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure

from halfway.experiments.report.figures.curves import CROWD, HIGHEST, LOWEST, learning_curves, strata_curves
from halfway.experiments.report.figures.forest import contrast_forest, saving_forest
from halfway.experiments.report.figures.groups import pass_counts, prefix_control, zero_variance
from halfway.experiments.report.figures.spending import learner_metrics, rollout_fates, timing
from halfway.experiments.report.figures.timeline import timeline
from halfway.experiments.report.records import Comparison
from halfway.experiments.report.summary import Summary


def captions(intervals: str) -> Mapping[str, str]:
    """The caption of each figure, by the figure's name.

    Args:
        intervals: how intervals of pass@1 were computed, from `Summary.intervals`.
    """
    smooth = "Lines are centred moving averages over a tenth of the run, all seeds together."
    return {
        "learning_curves": "Held-out pass@1 against each measure of cost: means over seeds, as far as every seed got. "
        f"Bands: {intervals.split(';')[0]}. Dotted: targets. With more than {CROWD} arms, only the {HIGHEST} highest, "
        f"the {LOWEST} lowest and the baseline are in colour, and only the baseline has a band.",
        "contrasts": "Differences in held-out pass@1, first arm minus second, where every run has spent the same; the "
        "comparison is judged by the panel with *. 95 % intervals for each pair alone. Filled: clear after Holm's "
        "adjustment within the panel.",
        "cost_to_reach": "What an arm spends until its mean curve has a score, as a multiple of what the baseline "
        "spends, with 95 % intervals from resamples. Filled: clearly not 1 after Holm's adjustment within the panel. "
        "Arrowheads: no upper end. Not reached: with the share of the resamples.",
        "strata_curves": "Held-out pass rate by stratum of the problems, means over seeds.",
        "pass_counts": "Groups by their number of passing rollouts. Grey areas are degenerate groups (dark: none "
        f"passed, light: all passed), which teach nothing; green is the middle. {smooth}",
        "zero_variance": f"Share of the rolled-out groups in which all rollouts passed or none did. {smooth}",
        "prefix_control": "Groups behind a prefix, by the pass count of the parent group: their mean pass rate, with "
        "0.5 +- 0.1 shaded; the share that is degenerate nevertheless; and the prefix ratio that the controller set, "
        f"one line per seed. {smooth}",
        "rollout_fates": "Rollouts of a run, mean over seeds, by what became of them. Hatched: what the skipped "
        "problems would have taken.",
        "learner_metrics": "Response length (without replayed tokens) and what the learner reports. Pale: means over "
        "seeds; strong: their moving averages.",
        "timing": "Where the seconds of a step go. Hatched parts do not count towards a budget of seconds.",
        "timeline": "The first run of each arm whose rollouts do not wait (`rollouts.staleness`). Left: when sampler "
        "and learner worked, for a dozen steps; gaps are waiting. Right: by how many updates the learner was ahead of "
        "the weights that sampled the groups of each step.",
    }


@dataclass(frozen=True, slots=True)
class Picture:
    """How to draw a figure, and its heading; `name` is the file name without its extension."""

    name: str
    heading: str
    draw: Callable[[Comparison, Summary], Figure | None]


def of_runs(draw: Callable[[Comparison], Figure | None]) -> Callable[[Comparison, Summary], Figure | None]:
    """Adapt a function that draws from the runs alone to the signature of `Picture.draw`."""
    return lambda comparison, _: draw(comparison)


PICTURES = (
    Picture("learning_curves", "Held-out pass@1", of_runs(learning_curves)),
    Picture("contrasts", "Contrasts", contrast_forest),
    Picture("cost_to_reach", "Cost to reach a score", saving_forest),
    Picture("strata_curves", "What was learnt when", of_runs(strata_curves)),
    Picture("rollout_fates", "Where the rollouts went", of_runs(rollout_fates)),
    Picture("pass_counts", "Pass counts over time", of_runs(pass_counts)),
    Picture("zero_variance", "Groups without signal", of_runs(zero_variance)),
    Picture("prefix_control", "What the prefixes do", of_runs(prefix_control)),
    Picture("learner_metrics", "The learner", of_runs(learner_metrics)),
    Picture("timing", "Where the time goes", of_runs(timing)),
    Picture("timeline", "Who worked when", of_runs(timeline)),
)
