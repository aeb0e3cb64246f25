"""What it cost to reach a score, and what a cost is."""

from halfway.experiments.report.analysis.axes import Axis
from halfway.experiments.report.analysis.reach import Reach, ReachRow, Spent, reach_axes
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import TextTable, interval, number

SIGNS = {"": "", "at least": "≥ ", "at most": "≤ "}
GOALS = {
    "fixed": "",
    "lowest": "The target was chosen after the runs, since the file fixes none.",
    "baseline": "The target of each seed is what {} had at its end with that seed.",
}


def reach_tables(summary: Summary) -> list[TextTable]:
    """One table for each target; the first explains how all were made."""
    return [reach_table(summary, reach, explained=i == 0) for i, reach in enumerate(summary.reach)]


def reach_table(summary: Summary, reach: Reach, explained: bool = True) -> TextTable:
    """Every arm on its way to one target."""
    axes = reach_axes(summary.design)
    rows = tuple(_row(row, axes) for row in reach.rows)
    columns = ("arm", "reached", *(axis.label for axis in axes))
    caption = f"{GOALS[reach.kind].format(reach.baseline)} {reach_caption(summary) if explained else ''}".strip()
    return TextTable(reach_title(reach), columns, rows, caption)


def reach_title(reach: Reach) -> str:
    if reach.kind == "baseline":
        return f"Cost to reach the final score of {reach.baseline} ({reach.target:.3f})"
    origin = "fixed in advance" if reach.kind == "fixed" else "the highest that every run reached"
    return f"Cost to reach pass@1 = {reach.target:.3f} ({origin})"


def reach_caption(summary: Summary) -> str:
    """How costs were counted, and what the signs mean."""
    return (
        "Spent until a run's curve, made to rise by isotonic regression and linear between evaluations, first reaches "
        f"the target: geometric means over seeds; x: relative to {summary.design.baseline}, by seed. Intervals: 95 %, "
        "seeds and problems resampled, Student's t of the logarithm. ≥ and ≤: some run of the arm, or of the baseline, "
        "never reached the target and counts with all that it spent, so the true number lies beyond. *: clearly not 1 "
        f"after Holm's adjustment over the arms. {cost_text(summary)}"
    )


def cost_text(summary: Summary) -> str:
    """What the cost axes weigh."""
    if not summary.design.costs:
        return "There is no cost axis, since these runs did not record what their updates went over."
    text = (
        "Cost: generated tokens + rho x trained tokens (whole sequences that updates went over, in every epoch); rho "
        f"is {summary.design.rho_from}. The sources' hours imply .25 to 1."
    )
    price = summary.design.judge_second
    if price is None:
        return text
    if not any("judge_seconds" in axis.weights for axis in summary.design.costs):
        return f"{text} There is no cost with judging, since these runs did not record its seconds."
    return (
        f"{text} Judged: + {price:g} x the seconds that the environment took to answer and judge the rollouts, "
        "added up over them, whether at once or not."
    )


def _row(row: ReachRow, axes: list[Axis]) -> tuple[str, ...]:
    return (row.arm, f"{row.reached} of {row.seeds}", *(spent_cell(row.spent[axis.name]) for axis in axes))


def spent_cell(spent: Spent) -> str:
    """The amount, and what it is beside the baseline's."""
    if spent.amount is None:
        return "not reached" if spent.bound else "at the start"
    text = SIGNS[spent.bound] + number(spent.amount, 0)
    if spent.ratio is None:
        return text
    return f"{text}, {SIGNS[spent.ratio_bound]}x{interval(spent.ratio, 2)}" + ("*" if spent.clear else "")
