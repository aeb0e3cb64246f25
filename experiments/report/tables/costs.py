"""Tables of what it cost to reach a score, and the words that explain a cost."""

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.reach import Reach, ReachRow, Spent, reach_axes
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import TextTable, interval, number

SIGNS = {"": "", "at least": "≥ ", "at most": "≤ "}
GOALS = {
    "fixed": "",
    "lowest": "The target was chosen after the runs, since the file fixes none.",
    "baseline": "The target of each seed is the end of {}'s curve with that seed (without that seed, the mean of its "
    "ends); made to rise, a curve ends above its last evaluation if that one fell.",
}

RHO_FROM = {"given": "given in the file", "what the sources' hours imply": "what the hours of published runs imply"}
"""Where rho comes from, in words for the reader, by `Design.rho_from`; other values are printed as they are."""


def reach_tables(summary: Summary) -> list[TextTable]:
    """One table per target; the caption of the first explains how all were made."""
    return [reach_table(summary, reach, explained=i == 0) for i, reach in enumerate(summary.reach)]


def reach_table(summary: Summary, reach: Reach, explained: bool = True) -> TextTable:
    """What every arm spent to reach one target."""
    axes = reach_axes(summary.design)
    rows = tuple(_row(row, axes) for row in reach.rows)
    columns = ("arm", "reached", *(axis.label for axis in axes))
    notes = [GOALS[reach.kind].format(reach.baseline), *reach_notes(reach), reach_caption(summary) if explained else ""]
    return TextTable(reach_title(reach), columns, rows, " ".join(filter(None, notes)))


def reach_notes(reach: Reach) -> list[str]:
    """Sentences that only some of the tables need: a missing baseline, or runs that met the target from the start."""
    notes, seeds_of = [], {row.arm: row.seeds for row in reach.rows}
    if reach.baseline not in seeds_of:
        notes.append(f"No run of {reach.baseline} has two evaluations yet, so there is nothing to divide by.")
    if any(0 < spent.at_start < row.seeds for row in reach.rows for spent in row.spent.values()):
        notes.append("At the start in k of n: k runs had the target before any training, so there is no mean.")
    if left_out := left_out_text(reach):
        notes.append(left_out)
    return notes


def left_out_text(reach: Reach) -> str:
    """Which seeds the ratios leave out and why; empty if they leave out none."""
    seeds = sorted({seed for row in reach.rows for spent in row.spent.values() for seed in spent.left_out})
    if not seeds:
        return ""
    total = next(row.seeds for row in reach.rows if row.arm == reach.baseline)
    listed = ", ".join(map(str, seeds))
    runs = f"run with seed {listed}" if len(seeds) == 1 else f"runs with the seeds {listed}"
    return (
        f"Ratios are over {total - len(seeds)} of {total} seeds: {reach.baseline}'s {runs} had the target from the "
        "start, which no arm can undercut."
    )


def reach_title(reach: Reach) -> str:
    if reach.kind == "baseline":
        return f"Cost to reach the final score of {reach.baseline} ({reach.target:.3f})"
    origin = "fixed in advance" if reach.kind == "fixed" else "the highest that every run reached"
    return f"Cost to reach pass@1 = {reach.target:.3f} ({origin})"


def reach_caption(summary: Summary) -> str:
    """The caption that says how costs were counted and what the signs mean."""
    return (
        "What a run had spent when its curve first reached the target. The curve is made to rise by isotonic "
        "regression and is linear between evaluations, so that one lucky evaluation is no arrival. Amounts are "
        f"geometric means over seeds; x: as a multiple of what {summary.design.baseline} spent, seed by seed. "
        "Intervals: 95 %, seeds and problems resampled, Student's t of the logarithm. ≥ (≤): some run of the arm (of "
        "the baseline) never reached the target and counts with all that it spent, so the true number is larger "
        f"(smaller). *: clearly not 1 after Holm's adjustment over the arms. {cost_text(summary)}"
    )


def cost_text(summary: Summary) -> str:
    """Say what the cost axes weigh, and where the weights come from."""
    if not summary.design.costs:
        return "There is no cost axis, since these runs did not record what their updates went over."
    text = (
        "Cost: generated tokens + rho x trained tokens (whole sequences that the updates passed over, once per epoch); "
        f"rho is {RHO_FROM.get(summary.design.rho_from, summary.design.rho_from)}. The hours of published runs imply "
        ".25 to 1."
    )
    price = summary.design.judge_second
    if price is None:
        return text
    if not any("judge_seconds" in axis.weights for axis in summary.design.costs):
        return f"{text} There is no cost with judging, since not all of these runs recorded its seconds."
    return (
        f"{text} Judged: + {price:g} x the seconds that the environment took to answer and judge rollouts, summed over "
        "calls even if they ran at the same time."
    )


def _row(row: ReachRow, axes: list[Axis]) -> tuple[str, ...]:
    return (row.arm, f"{row.reached} of {row.seeds}", *(spent_cell(row.spent[axis.name], row.seeds) for axis in axes))


def spent_cell(spent: Spent, seeds: int) -> str:
    """The amount that an arm spent, and its ratio to the baseline's amount."""
    if spent.amount is not None:
        text = SIGNS[spent.bound] + number(spent.amount, 0)
    elif 0 < spent.at_start < seeds:
        text = f"at the start in {spent.at_start} of {seeds}"
    else:
        text = "not reached" if spent.bound else "at the start"
    if spent.ratio is None:
        return text
    return f"{text}, {SIGNS[spent.ratio_bound]}x{interval(spent.ratio, 2)}" + ("*" if spent.clear else "")
