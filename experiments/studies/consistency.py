"""How long groups without signal stay without: the observation that GRESO rests on.

For every visit of a problem after its first, by the source's definition: was it degenerate (all rollouts passed, or
none) at any visit before, given that it is now; and is it now, given that it was at any visit before? Beside each what
it would be if problems had no memory: P(before | now) the share of these problems that were degenerate at any visit
before, P(now | before) the share that are at this one. The former share grows with the visits by itself. What GRESO's
streaks look at is the latest visit only, so that is told too: P(now | latest). From the decision logs alone.

    python -m halfway.experiments.studies.consistency runs/visits/grpo/seed-{0,1,2} --out runs/consistency
"""

import argparse
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


@dataclass(frozen=True, slots=True)
class Visits:
    """The visits of one number in one run: all problems that had so many.

    Attributes:
        visit: 2 = the second time a problem was rolled out.
        before, latest, now: problems degenerate at any visit before, at the one just before, at this one.
        both, latest_and_now: at any visit before and at this one; at the one just before and at this one.
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
    """Count the fresh groups of each problem of the data set in the order of the log. Groups behind a prefix are other
    problems, and generated problems are not the data set's."""
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
    """One row per visit: mean over runs, with an interval over runs; of a single run, over its problems."""
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


def main() -> int:
    """Count, print the table, and write it and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs")
    parser.add_argument("--out", type=Path, default=Path("runs/consistency"))
    arguments = parser.parse_args()
    try:
        rows = [row for folder in arguments.runs for row in visits(str(folder), load_run_records(folder).groups)]
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    if not rows:
        print("no problem was visited twice; give longer runs", file=sys.stderr)
        return 1
    table = consistency_table(rows)
    Console().print(table.rich())
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "consistency.md", table.markdown())
    write_text(arguments.out / "consistency.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
