"""Writes an audit as one HTML file that has no scripts and needs no network. All text from a log is escaped."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.experiments.audit.auditing import Audit, Audited
from halfway.experiments.audit.counterfactual import Calibration, Replayed
from halfway.experiments.audit.measures import Stretch
from halfway.experiments.audit.tables import Table, clean, headline, limits, suspicious, tables_of

# Okabe and Ito's colours, as in the reports.
FAILED, MIXED, PASSED, LINE = "#D55E00", "#009E73", "#56B4E9", "#1f2933"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 240, 44, 34, 12
STYLE = """
body { font: 15px/1.5 "Helvetica Neue", Arial, "Liberation Sans", sans-serif; color: #1f2933; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { margin-top: 3rem; border-bottom: 2px solid #e4e7eb } h3 { margin: 2rem 0 .4rem }
p.lead { font-size: 1.15rem } p.caption, figcaption { color: #66717e; font-size: .88rem; margin: .3rem 0 0 }
table { border-collapse: collapse } th, td { padding: .2rem .8rem .2rem 0; text-align: right; vertical-align: top;
  border-bottom: 1px solid #e4e7eb } th { color: #66717e; font-weight: 600 }
th:first-child, td:first-child, table.words th, table.words td { text-align: left } td { overflow-wrap: anywhere }
figure { margin: 1.5rem 0 } svg text { font-size: 11px; fill: #66717e }
"""


def write_audit(audit: Audit, path: Path) -> None:
    """Write an audit as JSON if the path ends in ".json", else as an HTML page.

    Raises:
        WriteError: if the file cannot be written.
    """
    if path.suffix == ".json":
        write_json(path, audit.plain())
    else:
        write_text(path, page(audit))


def page(audit: Audit) -> str:
    """The whole page as HTML."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Rollout audit</title>',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>{STYLE}</style></head><body><h1>Rollout audit</h1>",
        *(section(one) for one in audit.logs),
        *(table_html(table) for table in suspicious(audit)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def section(one: Audited) -> str:
    """The page's section about one log, as HTML."""
    found = one.findings
    parts = [f"<h2>{escape(clean(one.log.name))}</h2>", f'<p class="lead">{escape(headline(one))}</p>']
    if len(found.over_time) > 1 and one.log.reading.keeps_silent:
        parts.append(figure(silence(found.over_time), "Groups by outcome over the steps; the line is the pass rate."))
    parts += [table_html(table) for table in tables_of(one)]
    believers = [
        (each.name, each.calibration) for each in one.replays if isinstance(each, Replayed) and each.calibration
    ]
    if believers:
        caption = (
            "Observed pass rates (vertical) against believed ones (horizontal), from 0 to 1; the area of a dot grows "
            "with its visits. On the dashed line a belief is right, above it too low."
        )
        parts.append(figure("".join(reliability(name, each) for name, each in believers), caption))
    told = "".join(f"<li>{escape(text)}</li>" for text in limits(one.log.reading))
    return "\n".join([*parts, f"<h3>What this log cannot tell</h3><ul>{told}</ul>"])


def table_html(table: Table) -> str:
    """A table with its title and caption, as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(clean(cell))}</td>" for cell in row) + "</tr>" for row in table.rows)
    kind = ' class="words"' if table.words else ""
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    header = f"<thead><tr>{head}</tr></thead>" if any(table.columns) else ""
    return f"<h3>{escape(table.title)}</h3><table{kind}>{header}<tbody>{rows}</tbody></table>{caption}"


def figure(content: str, caption: str) -> str:
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>"


def silence(stretches: Sequence[Stretch]) -> str:
    """An SVG chart over steps: all-failed groups from below, all-passed groups from above, the pass rate as a line."""
    wide, high = WIDTH - LEFT - 8, HEIGHT - BOTTOM - TOP
    each = wide / len(stretches)
    bars, points, labels = [], [], []
    for i, stretch in enumerate(stretches):
        x = LEFT + i * each
        y = float(TOP)
        for share, color, name in (
            (stretch.all_passed, PASSED, "all passed"),
            (stretch.mixed, MIXED, "mixed"),
            (stretch.all_failed, FAILED, "all failed"),
        ):
            word = "step" if stretch.first == stretch.last else "steps"
            tip = f"{word} {stretch.steps}: {name} {100 * share:.1f} % of {stretch.groups}"
            bars.append(
                f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{each - 2:.1f}" height="{high * share:.1f}" fill="{color}">'
                f"<title>{tip}</title></rect>"
            )
            y += high * share
        points.append(f"{x + each / 2:.1f},{TOP + high * (1 - stretch.rate):.1f}")
        labels.append(f'<text x="{x + each / 2:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{stretch.first}</text>')
    ticks = "".join(
        f'<text x="{LEFT - 6}" y="{TOP + high * (1 - t) + 4:.1f}" text-anchor="end">{100 * t:.0f} %</text>'
        for t in (0.0, 0.5, 1.0)
    )
    legend = "".join(
        f'<rect x="{LEFT + i * 110}" y="{HEIGHT - 11}" width="10" height="10" fill="{color}"/>'
        f'<text x="{LEFT + 15 + i * 110}" y="{HEIGHT - 2}">{name}</text>'
        for i, (name, color) in enumerate((("all failed", FAILED), ("mixed", MIXED), ("all passed", PASSED)))
    )
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="{LINE}" stroke-width="2"/>'
    body = "".join([*bars, line, *labels, ticks, legend])
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="silence over time">{body}</svg>'


def reliability(name: str, calibration: Calibration) -> str:
    """A reliability diagram of one controller's belief, as SVG."""
    side, edge = 150, 24
    total = sum(each.visits for each in calibration.bins)
    dots = "".join(
        f'<circle cx="{edge + side * each.believed:.1f}" cy="{edge + side * (1 - each.observed):.1f}" '
        f'r="{2 + 14 * (each.visits / total) ** 0.5:.1f}" fill="{PASSED}" fill-opacity=".7" stroke="{LINE}">'
        f"<title>believed {each.believed:.2f}, observed {each.observed:.2f}, {each.visits} visits</title></circle>"
        for each in calibration.bins
    )
    frame = (
        f'<rect x="{edge}" y="{edge}" width="{side}" height="{side}" fill="none" stroke="#9aa5b1"/>'
        f'<line x1="{edge}" y1="{edge + side}" x2="{edge + side}" y2="{edge}" stroke="#9aa5b1" stroke-dasharray="4 3"/>'
    )
    middle, end = edge + side / 2, edge + side
    label = (
        f'<text x="{edge}" y="14">{escape(name)}</text><text x="{middle}" y="{end + 16}" text-anchor="middle">believed'
        f'</text><text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">observed</text>'
    )
    size = side + 2 * edge
    return f'<svg viewBox="0 0 {size} {size}" width="{size}" role="img">{frame}{dots}{label}</svg>'
