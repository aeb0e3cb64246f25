"""Puts advice into words, a table, and a YAML file that runs here or tells a host what to run."""

from pathlib import Path
from typing import Any

from halfway.experiments.advice.candidates import BASELINE, Candidate
from halfway.experiments.advice.model_error import CONFIDENT, LAB
from halfway.experiments.advice.ranking import Advice, Row
from halfway.experiments.config.run import RunConfig
from halfway.experiments.report.tables.text import TextTable

NOT_ENOUGH = "not enough to tell"
TRUST = (
    f"Leads are scaled to what training would show: in three regimes of the lab's contest that was {LAB.share:.2f} of "
    "the "
    f"simulated lead, give or take {CONFIDENT * LAB.deviation:.2f} (95 %; experiments/results/predicted_ranks)."
)


def sentence(advice: Advice) -> str:
    """One sentence that says what to do, and why."""
    if advice.missing:
        return f"{NOT_ENOUGH}: {'; '.join(advice.missing)}"
    plain, best = advice.baseline, advice.clear
    if plain is None:
        return f"{NOT_ENOUGH}: the plain chain was not played, so nothing can be ahead of it"
    if best is None:
        lead = next((row for row in advice.rows if row.candidate.name != BASELINE), None)
        seen = f"; the nearest is {lead.candidate.name}: {_lead(lead)}, {lead.better:.0%} likely ahead" if lead else ""
        return f"stay with plain GRPO: no chain is clearly ahead of it on learners like yours{seen}"
    why = _reason(best, plain)
    return (
        f"try {best.candidate.name} first: expected {_lead(best)} against plain GRPO at equal {_spent(advice)}, since "
        f"{why}"
    )


def _lead(row: Row) -> str:
    return f"{row.ahead:+.3f} [{row.ahead_low:+.3f}, {row.ahead_high:+.3f}] in pass rate"


def _spent(advice: Advice) -> str:
    return "rollouts" if advice.setting.unit == "rollouts" else f"cost (rho {advice.setting.rho:.2f})"


def _reason(best: Row, plain: Row) -> str:
    """The main difference between the best chain and plain GRPO, in words."""
    more, fewer = best.trained_groups / max(plain.trained_groups, 1), plain.degenerate - best.degenerate
    if best.steps > 1.15 * plain.steps:
        return f"it makes {best.steps / plain.steps:.2f} times as many training steps from the same rollouts"
    if fewer > 0.03:
        return (
            f"{100 * best.degenerate:.0f} % of its groups are silent, against plain GRPO's "
            f"{100 * plain.degenerate:.0f} %"
        )
    if more > 1.05:
        return f"it trains on {more:.2f} times as many groups"
    return "its groups lie where this learner gains more from each"


def ranking_table(advice: Advice) -> TextTable:
    """The chains with their scores and leads, best first."""
    rows = tuple(
        (
            row.candidate.name,
            f"{row.score:.3f} [{row.low:.3f}, {row.high:.3f}]",
            "-"
            if row.candidate.name == BASELINE
            else f"{row.ahead:+.3f} [{row.ahead_low:+.3f}, {row.ahead_high:+.3f}]",
            "-" if row.candidate.name == BASELINE else f"{100 * row.better:.0f} %",
            f"{100 * row.degenerate:.0f} %",
            f"{row.steps:.0f}{' (idle)' if row.idle else ''}",
        )
        for row in advice.rows
    )
    draws = len(next(iter(advice.plays.values()), []))
    return TextTable(
        f"What {advice.setting.budget:,.0f} {'rollouts' if advice.setting.unit == 'rollouts' else 'units of cost'} buy",
        ("chain", "pass rate", "lead over plain GRPO", "chance of a lead", "silent groups", "steps"),
        rows,
        f"Simulated: {draws} learners drawn from the fit to the log, each played by every chain. Pass rate of new "
        "problems of the same kinds at the end, with 95 % intervals over fits and simulations together. What a "
        "prefix of "
        "a failure is worth is not in the log, so it is drawn as well. Idle: the chain had nothing more to propose "
        f"before the budget was spent. {TRUST}",
    )


def fit_lines(advice: Advice) -> list[str]:
    """Lines that say what was fitted, what is not known, and which chains were not played."""
    lines = [f"note: {note}" for note in advice.run.notes]
    if advice.fitted is not None and advice.rows:
        names = ("gain", "common", "private", "interference")
        told = [
            f"{name} {value:.2f} [{low:.2f}, {high:.2f}]"
            for name in names
            for value, low, high in [advice.fitted.interval(name)]
        ]
        lines.append(
            f"fit: {', '.join(told)}; {advice.fitted.loglik - advice.fitted.still_loglik:,.0f} nats better than "
            "a learner whose pass rates never change"
        )
    reasons: dict[str, list[str]] = {}
    for name, why in advice.refused.items():
        reasons.setdefault(why, []).append(name)
    return lines + [f"not played: {', '.join(names)}: {why}" for why, names in reasons.items()]


def recipe(candidate: Candidate, advice: Advice, log: Path) -> str:
    """A YAML file with a chain: a whole run if the log has a configuration beside it, else what a host must know."""
    import yaml

    config: RunConfig | None = advice.run.config
    content: dict[str, Any] = {}
    beside = (log if log.is_dir() else log.parent) / "config.yaml"
    if config is not None:
        content["base"] = str(beside.resolve())
        content["name"] = f"advised_{candidate.name}"
    content["controllers"] = list(candidate.controllers)
    if candidate.fill:
        content["fill"] = dict(candidate.fill)
    if config is None:
        content["rollouts"] = {"num_rollouts": advice.setting.num_rollouts}
    head = f"# {sentence(advice)}\n# From a simulation fitted to {log}: train it beside your plain chain first.\n"
    return head + str(yaml.safe_dump(content, sort_keys=False, width=100))
