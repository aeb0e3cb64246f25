"""Tables with one row per arm: its scores, and the outcomes of its rollouts."""

from collections.abc import Callable, Sequence

from halfway.experiments.report.analysis.arm_summary import PAPERS_ROLLOUTS, ArmSummary, Timing
from halfway.experiments.report.analysis.comparison_summary import Summary
from halfway.experiments.report.analysis.starts import StartRow, StrataRow
from halfway.experiments.report.text_tables import (
    NONE,
    TextTable,
    interval,
    number,
    percent,
    percent_interval,
    seeds_text,
    table_of,
)


def arm_table(summary: Summary) -> TextTable:
    """Held-out pass@1 and its cost, one row per arm, in the declared order."""
    notes = [
        f"Budget: {budget_text(summary)}. Tokens are those generated. Trained tokens are those that the updates passed "
        "over: whole sequences, prompts and replayed prefixes included, once per epoch.",
        f"Intervals: {summary.intervals}.",
        "Seconds: the training loop without evaluation and checkpoints, median over seeds. Controllers: the share of "
        "those seconds in which the chain chose problems and took in their outcomes. "
        f"{timing_text(summary.timing)}".strip(),
        *missing_text(summary),
    ]
    columns: list[tuple[str, Callable[[ArmSummary], str]]] = [
        ("arm", lambda arm: arm.arm),
        ("rank", lambda arm: str(summary.ranks.get(arm.arm, NONE))),
        ("seeds", lambda arm: seeds_text(len(arm.seeds))),
        ("pass@1 before", lambda arm: interval(arm.before)),
        ("pass@1 after", lambda arm: interval(arm.after)),
        ("gain", lambda arm: interval(arm.gain, signed=True)),
        ("rollouts", lambda arm: number(arm.rollouts, 0)),
        ("tokens", lambda arm: number(arm.tokens, 0)),
        ("trained tokens", lambda arm: number(arm.trained_tokens, 0)),
        ("steps", lambda arm: number(arm.steps, 0)),
        ("seconds", lambda arm: f"{arm.seconds:.0f}"),
        *(
            [("extra information", lambda arm: arm.extra_information or NONE)]
            if any(arm.extra_information for arm in summary.arms)
            else []
        ),
        ("controllers", lambda arm: NONE if arm.controller_share is None else f"{100 * arm.controller_share:.2f} %"),
    ]
    return table_of("Arms", summary.arms, columns, " ".join(notes))


def missing_text(summary: Summary) -> list[str]:
    """Sentences on missing or incomplete arms, runs or records."""
    notes = []
    if summary.not_started:
        notes.append(f"No run of {', '.join(summary.not_started)} has finished a step yet.")
    if summary.failed:
        notes.append(f"Failed before the first step: {', '.join(summary.failed)}; log.txt of their runs says why.")
    if summary.matched and summary.without_curve:
        without = ", ".join(summary.without_curve)
        notes.append(f"No run of {without} has two evaluations, so it is in none of the comparisons below.")
    if summary.same:
        pairs = ", ".join(f"{one.arm} (as {one.reference})" for one in summary.same.values())
        notes.append(f"The same as another arm, so without rank, savings and contrasts: {pairs}.")
    if unfinished := sum(arm.unfinished for arm in summary.arms):
        runs = "1 run has" if unfinished == 1 else f"{unfinished} runs have"
        notes.append(f"{runs} not finished: the numbers are those of the last record.")
    if summary.unreadable:
        lines = "1 cut-off last line" if summary.unreadable == 1 else f"{summary.unreadable} cut-off last lines"
        notes.append(f"Left out: {lines} of record files.")
    return notes


def rollout_table(summary: Summary) -> TextTable:
    """Outcomes of the rollouts, one row per arm."""
    differing = {one.arm: "none" if one.same else f"{100 * one.differing:.0f} %" for one in summary.decided}
    columns: list[tuple[str, Callable[[ArmSummary], str]]] = [
        ("arm", lambda arm: arm.arm),
        ("mixed groups / step", lambda arm: interval(arm.trained_per_step, 1)),
        ("3/8..5/8, fresh", lambda arm: percent_interval(arm.band_fresh)),
        ("3/8..5/8, trained", lambda arm: percent_interval(arm.band_trained)),
        ("wasted rollouts", lambda arm: percent_interval(arm.wasted)),
        ("replayed tokens", lambda arm: percent_interval(arm.replayed)),
        ("entropy", lambda arm: interval(arm.entropy)),
        ("rollouts / trained group", lambda arm: interval(arm.rollouts_per_group, 1)),
        ("skipped", lambda arm: f"{arm.skipped:,.0f}"),
        ("starved steps", lambda arm: f"{arm.starved:.0f}"),
        *([("other decisions", lambda arm: differing.get(arm.arm, NONE))] if differing else []),
    ]
    caption = (
        "Mixed groups: trained groups in which some rollouts passed and some failed. 3/8..5/8: the share of "
        "groups whose pass rate lies in that band, among fresh groups (zero-variance ones included) and among trained "
        "groups of any origin. Wasted: rollouts in groups that did not train (no variance, surplus, or declined by a "
        "controller), or lost before scoring. "
        "Replayed: the share of all rollout tokens that came from prefixes. Entropy: the policy's, at the trained "
        "tokens, in nats. Skipped: problems refused before any rollout. Starved: steps that trained on fewer groups "
        "than the recipe asks for. Other decisions: the share of an arm's and the baseline's decisions that only "
        "one of them made, in runs with equal seeds (a decision: what is tried in a step, from where and how often, or "
        "skipped); none: the arm is the same as another one. Intervals: over seeds."
    )
    return table_of("What the rollouts gave", summary.arms, columns, caption)


def quick_table(summary: Summary) -> TextTable:
    """The main results of the arms in six columns, a line for each arm in a terminal of 80 characters."""
    headline = next((matched for matched in summary.matched if matched.headline), None)
    level = {row.arm: row.pass_at_1 for row in headline.rows} if headline else {}
    when = f"where every run has spent {headline.axis.phrase(headline.amount)}" if headline else "after training"
    columns: list[tuple[str, Callable[[ArmSummary], str]]] = [
        ("arm", lambda arm: arm.arm),
        ("pass@1", lambda arm: interval(level.get(arm.arm) if headline else arm.after)),
        ("rollouts", lambda arm: number(arm.rollouts, 0)),
        ("mixed\ngroups", lambda arm: NONE if arm.mixed is None else number(arm.mixed, 0)),
        ("wasted", lambda arm: percent(arm.wasted)),
        ("time\n(s)", lambda arm: f"{arm.seconds:.0f}"),
    ]
    before = " or ".join(dict.fromkeys(number(arm.before) for arm in summary.arms))
    caption = (
        f"pass@1: {when}; before, it was {before}. Mixed groups: trained groups of a run in which some rollouts "
        "passed and some failed. Wasted: rollouts in groups that did not train, or lost before scoring. Budget: "
        f"{budget_text(summary)}. Intervals: {summary.intervals}."
    )
    return table_of("Arms", summary.arms, columns, caption)


def strata_table(strata: Sequence[StrataRow]) -> TextTable:
    """Pass rates of every arm's last evaluations, with one column per stratum."""
    names = list(strata[0].rates) if strata else []
    rows = tuple((row.arm, seeds_text(row.seeds), *(interval(row.rates[name]) for name in names)) for row in strata)
    caption = (
        "Held-out pass rate of the problems of each stratum at the last evaluation of each run; means over seeds with "
        "95 % Student-t intervals. Arms may end at different costs: the figure shows the strata along the way."
    )
    columns = ("arm", "seeds", *(name or "no stratum" for name in names))
    return TextTable("Final pass rate by stratum", columns, rows, caption)


def start_table(starts: Sequence[StartRow]) -> TextTable:
    """Fresh, generated and prefixed groups of every arm; prefixed groups also by the pass count of their parents."""
    columns: list[tuple[str, Callable[[StartRow], str]]] = [
        ("arm, start", lambda row: f"{row.arm}, {row.start}"),
        ("groups", lambda row: str(row.groups)),
        ("pass rate", lambda row: interval(row.mean)),
        ("zero-variance", lambda row: percent_interval(row.zero_variance)),
        ("3/8..5/8", lambda row: percent_interval(row.band)),
        ("prefix tokens", lambda row: f"{row.prefix_tokens:.1f}" if row.prefix_tokens else NONE),
        ("final ratio", lambda row: NONE if row.ratio is None else f"{row.ratio:.2f}"),
    ]
    caption = (
        "Groups that start at a problem of the data set (fresh), at a generated problem, or behind a prefix, the "
        "latter also by the pass count k of the parent group. A mean near one half helps only if the groups themselves "
        "are mixed. Counts: all seeds together. Means and shares: over the seeds that have such groups, with "
        "95 % Student-t intervals, which are not cut at 0 and 1."
    )
    return table_of("Where groups started", starts, columns, caption)


def budget_text(summary: Summary) -> str:
    """The shared budget in words."""
    if summary.budget is None:
        return "not declared"
    unit, total = summary.budget
    return f"{total:,.0f} {unit} per run"


def plan_text(summary: Summary) -> str:
    """The plan in comparison.yaml, in words."""
    design = summary.design
    contrasts = f"contrasts named: {len(design.contrasts)}" if design.named else "no contrasts named: all pairs count"
    targets = f"targets {', '.join(f'{target:g}' for target in design.targets)}" if design.targets else "no targets"
    return f"judged at equal {design.headline.label}; {contrasts}; {targets}"


def timing_text(timing: Timing | None) -> str:
    """Compare the seconds of rollouts and updates with published runs, to judge whether to trust seconds."""
    if timing is None:
        return ""
    low, high = PAPERS_ROLLOUTS
    text = (
        f"Rollouts take {100 * timing.rollouts:.0f} % of these seconds and updates {100 * timing.updates:.0f} %; in "
        f"the published runs, rollouts take {100 * low:.0f} % to {100 * high:.0f} % of the hours."
    )
    if timing.rho is not None:
        text += f" By these seconds, a trained token costs as much as {timing.rho:.2g} generated tokens."
    remedy = " This is the reverse of the published balance, so compare arms by tokens or by cost, not by seconds."
    return f"{text}{remedy if timing.inverted else ''}"
