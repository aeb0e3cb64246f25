"""One row per arm: what it scored, and what became of its rollouts."""

from halfway.experiments.report.analysis.timing import PAPERS_ROLLOUTS, Timing
from halfway.experiments.report.arms import ArmSummary
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.text import (
    NONE,
    TextTable,
    interval,
    number,
    percent,
    percent_interval,
    seeds_text,
)


def arm_table(summary: Summary) -> TextTable:
    """Held-out pass@1 and what it cost, one row per arm, in the declared order."""
    rank = {arm: str(i + 1) for i, arm in enumerate(summary.ranking)}
    unfinished = sum(arm.unfinished for arm in summary.arms)
    notes = [
        f"Budget: {budget_text(summary)}. Tokens: generated; trained: that the updates went over, prompts and replayed "
        "tokens included, in every epoch.",
        f"Intervals: {summary.intervals}.",
        "Seconds: of the training loop without evaluation and checkpoints, median over seeds. Controllers: propose and "
        f"observe, share of those seconds. {timing_text(summary.timing)}".strip(),
    ]
    if unfinished:
        notes.append(f"{unfinished} of the runs have not finished: their numbers are from their last record.")
    if summary.unreadable:
        notes.append(f"{summary.unreadable} cut-off last lines of record files were left out.")
    columns = (
        "arm",
        "rank",
        "seeds",
        "pass@1 before",
        "pass@1 after",
        "gain",
        "rollouts",
        "tokens",
        "trained tokens",
        "steps",
        "seconds",
    )
    rows = tuple(_arm_row(arm, rank.get(arm.arm, NONE)) for arm in summary.arms)
    return TextTable("Arms", (*columns, "controllers"), rows, " ".join(notes))


def rollout_table(summary: Summary) -> TextTable:
    """What became of the rollouts, one row per arm."""
    columns = (
        "arm",
        "non-degenerate groups / step",
        "3/8..5/8, fresh",
        "3/8..5/8, trained",
        "wasted rollouts",
        "replayed tokens",
        "entropy",
        "rollouts / trained group",
        "skipped",
        "starved steps",
    )
    caption = (
        "Non-degenerate groups: trained groups that neither all passed nor all failed. 3/8..5/8: share of groups with "
        "such a pass rate among fresh groups (degenerate included) and among trained groups of any origin. Wasted: "
        "rollouts in dropped or surplus groups, or lost before scoring, out of those generated. Replayed: tokens of "
        "prefixes, out of all tokens of rollouts. Entropy: of the policy at the trained tokens, nats, mean over the "
        "steps. Skipped: problems refused before any rollout. "
        "Starved: steps that trained on fewer groups than asked for. Intervals as above, over seeds; for the shares of "
        "groups of a single seed, Wilson intervals over groups."
    )
    return TextTable("What the rollouts gave", columns, tuple(map(_rollout_row, summary.arms)), caption)


def quick_table(summary: Summary) -> TextTable:
    """The arms in seven columns, narrow enough for a terminal of 80 characters."""
    columns = (
        "arm",
        "pass@1\nbefore -> after",
        "rollouts",
        "valid\ngroups\n/ step",
        "3/8..5/8\ntrained",
        "wasted",
        "seconds",
    )
    rows = tuple(
        (
            arm.arm,
            f"{number(arm.before)} -> {interval(arm.after)}".replace(" [", "\n["),
            number(arm.rollouts, 0),
            number(arm.trained_per_step, 1),
            percent(arm.band_trained),
            percent(arm.wasted),
            f"{arm.seconds:.0f}",
        )
        for arm in summary.arms
    )
    caption = f"Valid groups are not degenerate. Budget: {budget_text(summary)}. {summary.intervals}."
    return TextTable("Arms", columns, rows, caption)


def budget_text(summary: Summary) -> str:
    """The shared budget in words."""
    if summary.budget is None:
        return "not declared"
    unit, total = summary.budget
    return f"{total:,.0f} {unit} per run"


def plan_text(summary: Summary) -> str:
    """What the file fixed in advance."""
    design = summary.design
    contrasts = f"contrasts named: {len(design.contrasts)}" if design.named else "no contrasts named: all pairs count"
    targets = f"targets {', '.join(f'{target:g}' for target in design.targets)}" if design.targets else "no targets"
    return f"judged at equal {design.headline.label}; {contrasts}; {targets}"


def timing_text(timing: Timing | None) -> str:
    """Which of rollouts and updates takes the time here and in the sources, so what the seconds are good for."""
    if timing is None:
        return ""
    low, high = PAPERS_ROLLOUTS
    text = (
        f"Rollouts take {timing.rollouts:.0%} of them and updates {timing.updates:.0%}; in the sources rollouts take "
        f"{low:.0%} to {high:.0%} of the hours"
    )
    if timing.rho is not None:
        text += f", and by these seconds a trained token costs as much as {timing.rho:.2g} generated"
    remedy = " The time of this machine is inverted: hold arms against each other by tokens or by cost, not by seconds."
    return f"{text}.{remedy if timing.inverted else ''}"


def _arm_row(arm: ArmSummary, rank: str) -> tuple[str, ...]:
    return (
        arm.arm,
        rank,
        seeds_text(len(arm.seeds)),
        interval(arm.before),
        interval(arm.after),
        interval(arm.gain, signed=True),
        number(arm.rollouts, 0),
        number(arm.tokens, 0),
        number(arm.trained_tokens, 0),
        number(arm.steps, 0),
        f"{arm.seconds:.0f}",
        NONE if arm.controller_share is None else f"{100 * arm.controller_share:.2f} %",
    )


def _rollout_row(arm: ArmSummary) -> tuple[str, ...]:
    return (
        arm.arm,
        interval(arm.trained_per_step, 1),
        percent_interval(arm.band_fresh),
        percent_interval(arm.band_trained),
        percent_interval(arm.wasted),
        percent_interval(arm.replayed),
        interval(arm.entropy),
        interval(arm.rollouts_per_group, 1),
        f"{arm.skipped:,.0f}",
        f"{arm.starved:.0f}",
    )
