"""Presents an audit in sentences and tables, for the terminal and for the page."""

from pathlib import Path
from typing import TYPE_CHECKING

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.curriculum.support.extras import clean
from halfway.experiments.audit.auditing import LIMITS, Audit, Audited
from halfway.experiments.audit.counterfactual import MOST_STEPS, MOST_VISITS, Calibration, Refused, Replayed
from halfway.experiments.audit.history import Reading
from halfway.experiments.audit.log_measures import Findings, Memory, Stretch
from halfway.experiments.report.html import render
from halfway.experiments.report.text_tables import NONE, TextTable, share_text

if TYPE_CHECKING:
    from rich.console import Console

MOST_SUSPECTS = 12
DOES = {"skips": "skips", "chooses": "chooses", "allocates": "sizes", "goes on": "continues", "weighs": "weighs"}


def headline(one: Audited) -> str:
    """The main result for a log, in one or two sentences."""
    findings, reading = one.findings, one.log.reading
    if not findings.groups:
        return "No group started from a plain problem (without prefix or hint), so problems cannot be judged."
    if findings.group_size == 1:
        rollouts = f"{findings.groups:,} groups of mostly one rollout"
        return f"This log cannot say how many groups had zero variance: it holds {rollouts}."
    if not reading.keeps_zero_variance:
        with_signal = f"{findings.groups:,} groups with a signal"
        return f"This log seems to leave zero-variance groups out: it holds {with_signal}, and no cost of the others."
    spent = findings.spending
    text = (
        f"{share_text(findings.zero_variance)} of {findings.groups:,} groups had zero variance "
        f"({share_text(findings.all_failed)} all failed, {share_text(findings.all_passed)} all passed): "
    )
    others = len(one.log.history) - findings.groups
    text += f"together with {others:,} groups started from a prefix, a hint or a generated problem, " if others else ""
    text += f"{spent.zero_variance:,} of {spent.rollouts:,} rollouts"
    if spent.tokens and spent.zero_variance_tokens is not None:
        text += f", {share_text(spent.zero_variance_tokens / spent.tokens)} of the {reading.measure}"
    text += "."
    if reading.values > 2:
        judged = "the log's own verdicts" if reading.passes_at is None else f"rewards from {reading.passes_at:g} on"
        text += (
            f" Rewards have more than two values and are seldom equal; by {judged} as passes, "
            f"{share_text(findings.none_passed)} of the groups all failed and {share_text(findings.none_failed)} all "
            "passed."
        )
    return text


def in_short(one: Audited) -> str:
    """One sentence on cost: the share without a gradient, and GRESO's share of skipped visits; "" if unknown."""
    spent, reading = one.findings.spending, one.log.reading
    if not one.findings.groups or one.findings.group_size == 1 or not reading.keeps_zero_variance:
        return ""
    if spent.hours is not None and spent.zero_variance_hours is not None:
        text = f"{amount(spent.zero_variance_hours)} of {amount(spent.hours)} hours bought no gradient"
    else:
        text = f"{share_text(spent.share)} of the rollouts bought no gradient"
    greso = next((each for each in one.replays if isinstance(each, Replayed) and each.name == "greso"), None)
    if greso is None or greso.precision is None:
        return text + "."
    low, high = (100 * share for share in greso.forecast)
    skipped = f"GRESO would have skipped {low:.0f} to {high:.0f} % of the visits"
    return f"{text}; {skipped}, {in_words(greso.precision)} of them rightly."


def facts(one: Audited) -> TextTable:
    """A table of how the log was read: format, size, assumptions, and parts left out."""
    reading, history, findings = one.log.reading, one.log.history, one.findings
    steps, span = history.step_V, ""
    if len(steps):
        span = f", from {steps.min()} to {steps.max()}" if findings.steps > 1 else f" (step {steps[0]})"
    files = "1 file" if reading.files == 1 else f"{reading.files:,} files"
    rows = [
        ("format", f"{reading.format} ({reading.trainer}), {files}, {size_text(reading.size)}"),
        ("steps", f"{findings.steps:,}{span}"),
        ("groups", f"{len(history):,} of {len(history.problems):,} problems, mostly of {findings.group_size} rollouts"),
    ]
    if findings.outcomes:
        outcomes = ", ".join(f"{name} {count:,}" for name, count in findings.outcomes.items())
        rows.append(("what became of them", outcomes))
    if findings.wasted is not None:
        rows.append(("rollouts that trained nothing", share_text(findings.wasted)))
    if findings.skipped:
        rows.append(("problems skipped before any rollout", f"{findings.skipped:,}"))
    rows += [("decides the finding", doubt) for doubt in reading.doubts]
    rows += [("assumed", guess) for guess in reading.guesses]
    rows += [("beware", trap) for trap in reading.traps]
    rows += [("left out", f"{count:,} x {reason}") for reason, count in reading.dropped.items()]
    return TextTable("How it was read", ("", ""), tuple(rows), words=True)


def over_time(findings: Findings) -> TextTable:
    rows = tuple((s.steps, f"{s.groups:,}", *_kinds(s), rate(s.rate)) for s in findings.over_time)
    columns = ("steps", "groups", "all failed", "mixed", "all passed", "pass rate")
    return TextTable("Zero-variance groups over time", columns, rows, "Groups that started from the plain problem.")


def past(findings: Findings) -> list[TextTable]:
    """Tables of how a problem's past predicts its next visit; none if problems are not recognised."""
    if not findings.memory:
        return []
    rows = tuple((m.before, f"{m.visits:,}", *_kinds(m)) for m in findings.memory)
    columns = ("previous visit", "visits", "all failed", "mixed", "all passed")
    caption = "Outcome of a visit, given the previous visit."
    tables = [TextTable("What a problem remembers", columns, rows, caption)]
    if findings.streaks:
        kinds = dict.fromkeys(streak.kind for streak in findings.streaks)
        lengths = sorted({streak.length for streak in findings.streaks})
        cells = {(s.kind, s.length): f"{share_text(s.again)} of {s.visits:,}" for s in findings.streaks}
        streak_rows = [(kind, *(cells.get((kind, length), NONE) for length in lengths)) for kind in kinds]
        names = [f"{length} in a row" + (" or more" if length == lengths[-1] else "") for length in lengths]
        caption = "How often the next visit has the same outcome: the premise of skipping by streaks."
        tables.append(TextTable("Zero-variance streaks", ("", *names), tuple(streak_rows), caption))
    return tables


def fates(findings: Findings) -> TextTable:
    fate = findings.fates
    counts = (
        ("never passed", fate.never, fate.problems),
        ("never failed", fate.always, fate.problems),
        ("forgotten: solved once, failed at the last visit", fate.forgotten, fate.revisited),
        ("unlocked: failed at the first visit, passed later", fate.unlocked, fate.revisited),
    )
    rows = tuple((name, f"{count:,}", share(count, total)) for name, count, total in counts)
    caption = f"Shares of {fate.problems:,} problems; in the last two rows, of the {fate.revisited:,} visited again."
    return TextTable("Problems", ("", "problems", "share"), rows, caption)


def by_kind(findings: Findings) -> list[TextTable]:
    if not findings.kinds:
        return []
    rows = tuple(
        (
            k.category,
            f"{k.groups:,}",
            rate(k.before),
            rate(k.after),
            f"{k.after - k.before:+.3f}",
            share_text(k.zero_variance),
        )
        for k in findings.kinds
    )
    columns = ("kind of problem", "groups", "first third", "last third", "change", "zero-variance")
    caption = "Pass rates of the groups in the first and last third of the log."
    return [TextTable("Learning by kind", columns, rows, caption)]


def counterfactuals(one: Audited) -> list[TextTable]:
    """Tables of the controllers' requests and beliefs, and of the controllers that could not be replayed."""
    done = [each for each in one.replays if isinstance(each, Replayed)]
    tables = []
    if done:
        findings = one.findings
        price = NONE if findings.price is None else f"{findings.price:.1f}"
        rows: list[tuple[str, ...]] = [("as logged", "", NONE, NONE, NONE, price, NONE)]
        rows += [_replayed(each) for each in done]
        columns = ("", "does", "skipped", "precision", "recall", "rollouts per mixed group", "answered")
        left_out = done[0].left_out
        caption = (
            "Each controller with its defaults, answered from the log. Skipped: at its own pace, in batches of the "
            "log's size; in brackets what a run of its own may skip, with dynamic sampling or without. Precision: "
            "share of the skipped visits that had zero variance. Recall: share of the zero-variance visits that were "
            "skipped. In a mixed group some passed and some failed; dynamic sampling pays the price in the first row "
            "for each. Answered: share of the requested rollouts that the log holds; again: answered by groups that "
            "had been used before, so a controller that chooses problems would not keep these savings for long."
        )
        if left_out > 0:
            first = f"the first {MOST_VISITS:,} of at most {MOST_STEPS:,} steps"
            caption += f" {left_out:,} later groups were not replayed ({first} are)."
        tables.append(TextTable("What controllers would have asked for", columns, tuple(rows), caption))
    believers = [(each.name, each.calibration) for each in done if each.calibration]
    if believers:
        headings = ("belief of", "visits", "calibration error", "squared error", "of the last rate", "of the mean rate")
        caption = (
            "Believed against observed pass rates, at visits to problems seen before. Calibration error: mean distance "
            "over ten bins, which chance keeps above 0. The last two columns are the squared errors of two trivial "
            "predictions; a belief that beats neither is worth nothing here."
        )
        right = tuple((name, *_calibrated(each)) for name, each in believers)
        tables.append(TextTable("Were the beliefs right?", headings, right, caption))
    refused = [each for each in one.replays if isinstance(each, Refused)]
    if refused:
        reasons = tuple((each.name, each.why) for each in refused)
        tables.append(TextTable("What this log cannot answer", ("", "why"), reasons, words=True))
    return tables


def suspicious(audit: Audit) -> list[TextTable]:
    if not audit.suspects:
        return []
    shown = audit.suspects[:MOST_SUSPECTS]
    rows = tuple((each.problem, each.why, each.text[:100], each.log) for each in shown)
    rest = len(audit.suspects) - len(shown)
    caption = "Reasons to look, not verdicts." + (f" The JSON file lists {rest:,} more." if rest else "")
    return [TextTable("Suspicious problems", ("problem", "why", "begins", "log"), rows, caption, words=True)]


def tables_of(one: Audited) -> list[TextTable]:
    """All tables about one log, in order."""
    findings = one.findings
    if not findings.groups:
        return [facts(one)]
    problems = [fates(findings)] if one.log.reading.identified else []
    rest = [*by_kind(findings), *counterfactuals(one)]
    return [facts(one), over_time(findings), *past(findings), *problems, *rest]


def limits(reading: Reading) -> list[str]:
    """Limits of the log, one phrase each."""
    own = () if reading.identified else ("how a problem fares over time, since the log does not identify problems",)
    return [*own, *LIMITS]


def brief(one: Audited) -> TextTable:
    """The remarks that decide the finding, and a few rows: data read, fates of problems, and advice."""
    reading, findings, history = one.log.reading, one.findings, one.log.history
    notes = len(reading.guesses) + len(reading.traps) + len(reading.dropped)
    read = f"{reading.format}: {findings.steps:,} steps, {len(history):,} groups of {len(history.problems):,} problems"
    rows = [("beware", doubt) for doubt in reading.doubts]
    rows.append(("read as", read + (f"; {notes} remarks, see --full" if notes else "")))
    judged = findings.groups and findings.group_size > 1 and reading.keeps_zero_variance
    if findings.groups and reading.identified:
        fate = findings.fates
        rows.append(("never passed", f"{share(fate.never, fate.problems)} of the problems"))
        rows.append(("forgotten", f"{share(fate.forgotten, fate.revisited)} of those visited again"))
    if judged and len(findings.over_time) > 1:
        ends = findings.over_time[0], findings.over_time[-1]
        first, last = (share_text(each.all_failed + each.all_passed) for each in ends)
        rows.append(("zero-variance groups", f"{first} in the first steps, {last} in the last"))
    # Savings of a controller that chooses problems do not last; see the caption of `counterfactuals`.
    lasting = [each for each in one.replays if isinstance(each, Replayed) and each.kind != "chooses"]
    prices = {each.name: each.price for each in lasting if each.price}
    if prices and findings.price:
        best = min(prices, key=prices.__getitem__)
        paid = f"{findings.price:.1f} rollouts as logged; {best} would have paid {prices[best]:.1f}"
        rows.append(("price of a mixed group", paid))
    if judged and reading.next_step:
        rows.append(("what to do", reading.next_step))
    return TextTable("", ("", ""), tuple(rows), words=True)


def show(audit: Audit, console: "Console", full: bool = True) -> None:
    """Print the audit to a terminal.

    Args:
        full: whether to print all tables; else the main result, a few rows, and how to see the rest.
    """
    from rich.text import Text

    for one in audit.logs:
        console.rule(Text(clean(one.log.name)))
        console.print(Text(clean(headline(one))))
        if short := in_short(one):
            console.print(Text(short))
        for table in tables_of(one) if full else [brief(one)]:
            console.print(table)
        if full:
            console.print(Text("What this log cannot tell: " + "; ".join(limits(one.log.reading)) + "."))
    for table in suspicious(audit) if full else []:
        console.print(table)
    if not full:
        number = len(audit.suspects)
        looks = f" and the {number:,} problems that look suspicious" if number else ""
        console.print(Text(f"next: the same command with --full shows all tables{looks}; --write audit.html, a page"))


def _kinds(shares: Stretch | Memory) -> tuple[str, str, str]:
    return share_text(shares.all_failed), share_text(shares.mixed), share_text(shares.all_passed)


def _replayed(each: Replayed) -> tuple[str, ...]:
    skips = each.kind == "skips"
    return (
        each.name,
        DOES[each.kind],
        _skipped(each) if skips else NONE,
        share_text(each.precision) if skips else NONE,
        share_text(each.caught) if skips else NONE,
        NONE if each.price is None else f"{each.price:.1f}",
        share_text(each.answered) + (f", {share_text(each.again)} again" if each.again else ""),
    )


def _skipped(each: Replayed) -> str:
    low, high = (f"{100 * share:.1f}" for share in each.forecast)
    return f"{share(each.skipped, each.visits)} [{low} to {high}]"


def _calibrated(each: Calibration) -> tuple[str, ...]:
    visits = sum(one.visits for one in each.bins)
    return (f"{visits:,}", rate(each.error), *(f"{value:.4f}" for value in (each.square, each.last, each.mean)))


def amount(hours: float) -> str:
    """Hours with at least two digits, without an exponent."""
    return f"{hours:,.0f}" if hours >= 9.95 else f"{hours:.1f}" if hours >= 0.95 else f"{hours:.2g}"


def in_words(part: float) -> str:
    """A share as a word where one is right to 2 %, else in percent."""
    words = {0.5: "half", 2 / 3: "two thirds", 0.75: "three quarters", 0.9: "nine tenths", 1.0: "all"}
    nearest = min(words, key=lambda value: abs(value - part))
    return words[nearest] if abs(nearest - part) < (0.005 if nearest == 1 else 0.02) else f"{100 * part:.0f} %"


def rate(value: float) -> str:
    return f"{value:.3f}"


def share(count: int, total: int) -> str:
    return share_text(count / total) if total else NONE


def size_text(size: int) -> str:
    """A number of bytes in a readable unit, such as "1.5 MB"."""
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


def write_audit(audit: Audit, path: Path) -> None:
    """Write an audit as JSON if the path ends in ".json", otherwise as an HTML page.

    Raises:
        WriteError: if the file cannot be written.
    """
    if path.suffix == ".json":
        write_json(path, audit.plain())
    else:
        write_text(path, page(audit))


def page(audit: Audit) -> str:
    """Build the whole page as HTML."""
    sections = []
    for one in audit.logs:
        replayed = [each for each in one.replays if isinstance(each, Replayed)]
        section = {
            "name": one.log.name,
            "headline": headline(one),
            "short": in_short(one),
            "stretches": one.findings.over_time,
            "tables": tables_of(one),
            "beliefs": [(each.name, each.calibration) for each in replayed if each.calibration],
            "limits": limits(one.log.reading),
        }
        sections.append(section)
    return render("audit.html.j2", "halfway.experiments.audit", sections=sections, suspicious=suspicious(audit))
