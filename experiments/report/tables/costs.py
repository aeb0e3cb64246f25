"""Tables of the cost to reach a score, and the words that explain a cost."""

from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.analysis.pooled import DRAWS, PooledRatio
from halfway.experiments.report.analysis.savings import END, SavingRow, Savings
from halfway.experiments.report.statistics.intervals import FEW
from halfway.experiments.report.text_tables import NONE, TextTable, interval, seeds_text


def saving_tables(summary: Summary) -> list[TextTable]:
    """One table per measure of cost; the first one's caption explains all of them. None for a single arm."""
    if len(summary.arms) < 2:
        return []
    return [saving_table(summary, found, explained=i == 0) for i, found in enumerate(summary.savings)]


def saving_table(summary: Summary, found: Savings, explained: bool = True) -> TextTable:
    """Every arm's mean curve against the baseline's, along one measure of cost."""
    goals = [f"to {goal_text(found, goal)}" for goal in found.goals]
    columns = ("arm", "seeds", "area", f"minus {found.baseline}", *goals, "P(best)")
    notes = [saving_caption(found) if explained else "", *saving_notes(found), cost_text(summary) if explained else ""]
    title = f"Savings in {found.axis.label}, by mean curves"
    return TextTable(title, columns, tuple(_row(row, found) for row in found.rows), " ".join(filter(None, notes)))


def goal_text(found: Savings, goal: str) -> str:
    """A goal in words, for a column."""
    score = found.goals[goal].score
    return f"{found.baseline}'s end, {score:.3f}" if goal == END else f"{score:g}"


def saving_caption(found: Savings) -> str:
    """Describe how areas, ratios and chances were computed."""
    return (
        f"Area: mean height of an arm's mean curve up to what every run has spent. To a score: what {found.baseline} "
        "spends until its mean curve has it, and for the others the multiple (x) of that which their mean curves need, "
        "made to rise and linear between evaluations. Intervals: 95 %, over seeds and problems; those of areas by "
        f"Student's t, those of multiples from {DRAWS:,} resamples, with the share that never get there in brackets; "
        "*: clear after Holm's adjustment over the arms. P(best): the share of resamples in which the arm has the "
        "largest area."
    )


def saving_notes(found: Savings) -> list[str]:
    """Sentences that only some of the tables need."""
    notes = []
    if not found.goals:
        notes.append(f"No run of {found.baseline} has two evaluations yet, so there is nothing to compare with.")
    if any(row.seeds == 1 for row in found.rows):
        notes.append("One seed shows no spread over seeds, so there are no intervals with it.")
    if any(1 < row.seeds <= FEW for row in found.rows):
        notes.append("With two or three seeds there are no intervals and no chances, and no multiple is called clear.")
    beyond = [goal_text(found, goal) for goal, ratios in _ratios_by_goal(found) if ratios and not any(ratios)]
    if beyond:
        notes.append(f"{found.baseline} never reaches {', '.join(beyond)}, or is there from the start: no ratio.")
    return notes


def _ratios_by_goal(found: Savings) -> list[tuple[str, list[PooledRatio | None]]]:
    return [(goal, [row.ratios[goal] for row in found.rows if row.ratios]) for goal in found.goals]


def cost_text(summary: Summary) -> str:
    """Describe the weights of the cost axes, and their source."""
    if not summary.design.costs:
        return "There is no cost axis, since these runs did not record their trained tokens."
    text = (
        "Cost: generated tokens + rho x trained tokens (whole sequences that the updates passed over, once per epoch); "
        f"rho is {summary.design.rho_from}. The hours of published runs imply "
        "0.25 to 1."
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


def _row(row: SavingRow, found: Savings) -> tuple[str, ...]:
    return (
        row.arm,
        seeds_text(row.seeds),
        f"{row.area:.3f}",
        interval(row.gain, signed=True) + "*" * row.clear,
        *(goal_cell(row, found, goal) for goal in found.goals),
        NONE if row.best is None else f"{row.best:.2f}",
    )


def goal_cell(row: SavingRow, found: Savings, goal: str) -> str:
    """The baseline's cost to reach a score, or another arm's cost as a multiple of it."""
    if row.ratios:
        ratio = row.ratios[goal]
        return ratio_text(ratio and PooledRatio(ratio.value) if row.seeds <= FEW else ratio)
    spent = found.goals[goal].spent
    return "not reached" if spent is None else f"{spent:,.0f}"


def ratio_text(ratio: PooledRatio | None) -> str:
    """A ratio with its interval, a star if it is significant, and the share of resamples that never reach the score."""
    if ratio is None:
        return NONE
    never = "" if ratio.never is None or ratio.never < 0.005 else f" ({100 * ratio.never:.0f} %)"
    if ratio.value is None:
        return f"not reached{never}"
    star = "*" * ratio.clear
    if ratio.value == 0:
        return f"from the start{star}{never}"
    bounds = ["never" if bound is None else f"{bound:.2f}" for bound in (ratio.low, ratio.high)]
    return f"x{ratio.value:.2f}" + (f" [{', '.join(bounds)}]" if ratio.never is not None else "") + star + never
