"""Writes an audit as one HTML file that has no scripts and needs no network. All text from a log is escaped."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.experiments.audit.auditing import Audit
from halfway.experiments.audit.counterfactual import Calibration, Replayed
from halfway.experiments.audit.measures import Stretch
from halfway.experiments.audit.tables import headline, limits, suspicious, tables_of
from halfway.experiments.report.html import rendered

# Okabe and Ito's colours, as in the reports.
FAILED, MIXED, PASSED, LINE = "#D55E00", "#009E73", "#56B4E9", "#1f2933"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 240, 44, 34, 12


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
    sections = [
        {
            "name": one.log.name,
            "headline": headline(one),
            "silence": silence(one.findings.over_time)
            if len(one.findings.over_time) > 1 and one.log.reading.keeps_silent
            else "",
            "tables": tables_of(one),
            "beliefs": "".join(
                reliability(each.name, each.calibration)
                for each in one.replays
                if isinstance(each, Replayed) and each.calibration
            ),
            "limits": limits(one.log.reading),
        }
        for one in audit.logs
    ]
    return rendered("audit.html.j2", "halfway.experiments.audit", sections=sections, suspicious=suspicious(audit))


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
