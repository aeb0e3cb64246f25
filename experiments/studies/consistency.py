"""How long groups without signal stay without: the observation that GRESO rests on.

For every visit of a problem after its first: was it degenerate (all rollouts passed, or none) at the previous visit,
given that it is now, and the other way round? Beside each what it would be if problems had no memory: P(before | now)
the share of these problems that were degenerate at the previous visit, P(now | before) the share that are at this one.
From the decision logs alone.

    python -m halfway.experiments.studies.consistency runs/compare/grpo/seed-{0,1,2} --out runs/consistency
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.records import GroupRecord, load_run_records
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds, proportion
from halfway.experiments.report.tables.text import TextTable, interval


@dataclass(frozen=True, slots=True)
class Visits:
    """The visits of one number in one run: all problems that had so many.

    Attributes:
        visit: 2 = the second time a problem was rolled out.
        before, now, both: problems degenerate at the visit before, at this one, at both.
    """

    run: str
    visit: int
    problems: int
    before: int
    now: int
    both: int


def visits(run: str, groups: Iterable[GroupRecord]) -> Iterator[Visits]:
    """Count the fresh groups of each problem of the data set in the order of the log. Groups behind a prefix are other
    problems, and generated problems are not the data set's."""
    seen: dict[str, int] = defaultdict(int)
    last: dict[str, bool] = {}
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for group in groups:
        if not group.scored or not group.fresh:
            continue
        seen[group.problem] += 1
        if group.problem in last:
            before, now = last[group.problem], group.degenerate
            counts[seen[group.problem]].update(problems=1, before=before, now=now, both=before and now)
        last[group.problem] = group.degenerate
    for visit, found in sorted(counts.items()):
        yield Visits(run, visit, found["problems"], found["before"], found["now"], found["both"])


def consistency_table(rows: Sequence[Visits]) -> TextTable:
    """A row a visit: mean over runs, with an interval over runs; of a single run, over its problems."""
    cells = []
    for visit in sorted({row.visit for row in rows}):
        chosen = [row for row in rows if row.visit == visit]
        shares = [
            _over_runs([(row.before, row.problems) for row in chosen]),
            _over_runs([(row.now, row.problems) for row in chosen]),
            _over_runs([(row.both, row.now) for row in chosen]),
            _over_runs([(row.both, row.before) for row in chosen]),
        ]
        cells.append((str(visit), f"{sum(row.problems for row in chosen):,}", *map(interval, shares)))
    return TextTable(
        "Groups without signal, visit by visit",
        ("visit", "problems", "degenerate before", "degenerate now", "before, given now", "now, given before"),
        tuple(cells),
        f"Fresh groups of {len({row.run for row in rows})} runs; before: at the visit before. If a problem had no "
        "memory, `before, given now` would equal `degenerate before`, and `now, given before` would equal `degenerate "
        "now`. 95 % intervals over runs; of a single run, over problems.",
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
