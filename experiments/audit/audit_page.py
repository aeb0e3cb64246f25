"""Writes an audit as one HTML file without scripts that needs no network. All text from a log is escaped."""

from pathlib import Path

from halfway.curriculum.support.atomic import write_json, write_text
from halfway.experiments.audit.auditing import Audit
from halfway.experiments.audit.counterfactual import Replayed
from halfway.experiments.audit.tables import headline, in_short, limits, suspicious, tables_of
from halfway.experiments.report.html import render


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
