"""Measures how often a problem whose group gave no signal gives none again, the observation that GRESO rests on.

A group without signal is degenerate: all of its rollouts passed, or none did. For every visit of a problem after the
first, the study counts, by the source's definitions, P(before | now): the share of the problems degenerate at this
visit that were degenerate at any earlier visit; and P(now | before): the share of the problems degenerate at any
earlier visit that are degenerate at this one. If problems had no memory, these would equal the shares of all problems
that were degenerate before and that are degenerate now; the former share grows with the number of visits by itself.
GRESO's streaks look only at the latest visit, so P(now | latest) is counted too. Only the decision logs are used.

    python -m halfway.experiments.studies.consistency runs/visits/grpo/seed-{0,1,2} --out runs/consistency
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.records import load_run_records
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds, proportion
from halfway.experiments.report.tables.text import TextTable, interval
from halfway.experiments.scripts import script, script_parser


@dataclass(frozen=True, slots=True)
class Visits:
    """Counts of problems at their `visit`-th visit in one run.

    Attributes:
        visit: the number of the visit; 2 = the second time that a problem was rolled out.
        problems: number of problems that were visited so often.
        before: number of these that were degenerate at any earlier visit.
        latest: number of these that were degenerate at the visit just before.
        now: number of these that were degenerate at this visit.
        both: number of these that were degenerate at any earlier visit and at this one.
        latest_and_now: number of these that were degenerate at the visit just before and at this one.
    """

    run: str
    visit: int
    problems: int
    before: int
    latest: int
    now: int
    both: int
    latest_and_now: int


def visits(run: str, groups: Iterable[GroupRecord]) -> Iterator[Visits]:
    """Count visits over the fresh groups of a log, given in the log's order; yields one row per number of the visit.

    Groups behind a prefix do not start from the problem, and generated problems are not in the data set; both are left
    out.
    """
    seen: dict[str, list[bool]] = defaultdict(list)
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for group in groups:
        if not group.scored or not group.fresh:
            continue
        earlier, now = seen[group.problem], group.degenerate
        if earlier:
            before, latest = any(earlier), earlier[-1]
            counts[len(earlier) + 1].update(
                problems=1,
                before=before,
                latest=latest,
                now=now,
                both=before and now,
                latest_and_now=latest and now,
            )
        earlier.append(now)
    for visit, found in sorted(counts.items()):
        amounts = (found[name] for name in ("problems", "before", "latest", "now", "both", "latest_and_now"))
        yield Visits(run, visit, *amounts)


def consistency_table(rows: Sequence[Visits]) -> TextTable:
    """One row per number of the visit, with means and intervals over runs; with a single run, over its problems."""
    cells = []
    for visit in sorted({row.visit for row in rows}):
        chosen = [row for row in rows if row.visit == visit]
        shares = [
            _over_runs([(row.before, row.problems) for row in chosen]),
            _over_runs([(row.now, row.problems) for row in chosen]),
            _over_runs([(row.both, row.now) for row in chosen]),
            _over_runs([(row.both, row.before) for row in chosen]),
            _over_runs([(row.latest_and_now, row.latest) for row in chosen]),
        ]
        cells.append((str(visit), f"{sum(row.problems for row in chosen):,}", *map(interval, shares)))
    columns = (
        "visit",
        "problems",
        "degenerate before",
        "degenerate now",
        "before, given now",
        "now, given before",
        "now, given the latest",
    )
    return TextTable(
        "Groups without signal, visit by visit",
        columns,
        tuple(cells),
        f"Fresh groups of {len({row.run for row in rows})} runs; before: at any visit before, which is the source's "
        "definition; latest: at the visit just before. If a problem had no memory, `before, given now` would equal "
        "`degenerate before`, and the two columns of `now, given` would equal `degenerate now`. 95 % intervals over "
        "runs; of a single run, over problems.",
    )


def _over_runs(pairs: Sequence[tuple[int, int]]) -> Estimate | None:
    known = [(hits, total) for hits, total in pairs if total]
    if len(known) == 1:
        return proportion(*known[0])
    return over_seeds([hits / total for hits, total in known]) if known else None


@script
def main() -> int:
    """Count the visits of the runs, print the table, and write the table and its numbers."""
    parser = script_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs")
    parser.add_argument("--out", type=Path, default=Path("runs/consistency"))
    arguments = parser.parse_args()
    rows = [row for folder in arguments.runs for row in visits(str(folder), load_run_records(folder).groups)]
    if not rows:
        raise UserError("no problem was visited twice; give longer runs")
    table = consistency_table(rows)
    Console().print(table.rich())
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "consistency.md", table.markdown())
    write_text(arguments.out / "consistency.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
