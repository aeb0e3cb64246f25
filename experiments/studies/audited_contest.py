"""Checks that audits count right: audits every run of a comparison, and compares the numbers with the report's table.

The two share no arithmetic: the table comes from the report, which sums what the training loop recorded at each step,
while the audit reads only the decision log, as it reads the logs of other trainers. All numbers that both have must be
equal: rollouts, tokens, problems skipped, the share of rollouts wasted, and the share of fresh groups near one half.

    python -m halfway.experiments.studies.audited_contest runs/contest_hard runs/contest runs/contest_easy
"""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from halfway.curriculum.support.errors import UserError
from halfway.experiments.audit.measures import Findings, findings
from halfway.experiments.audit.reading import read_logs
from halfway.experiments.scripts import script, script_parser

LOG = "decisions.jsonl"
EXACT = 1e-12
"""Relative tolerance: shares are quotients of the same integers, but their means are summed in another order."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The result for one comparison.

    Attributes:
        runs: number of runs that were audited.
        groups, rollouts: totals over these runs.
        compared: how many numbers were compared.
        apart: the numbers that differ, each as "arm, number: audit, table".
    """

    name: str
    runs: int
    groups: int
    rollouts: int
    compared: int
    apart: tuple[str, ...]


def audited(folder: Path) -> Audited:
    """Audit every run below a comparison's folder, and compare the numbers with its summary.json.

    Raises:
        UserError: if there is no summary, or a run's log cannot be read.
    """
    summary = folder / "summary.json"
    if not summary.is_file():
        raise UserError(f"{summary}: nothing is here; make it with `halfway report {folder}`")
    runs = groups = rollouts = compared = 0
    apart: list[str] = []
    for arm in json.loads(summary.read_text())["arms"]:
        found = [_findings(folder / arm["arm"] / f"seed-{seed}") for seed in arm["seeds"]]
        runs, groups = runs + len(found), groups + sum(sum(each.outcomes.values()) for each in found)
        rollouts += sum(each.spending.rollouts for each in found)
        for name, ours, theirs in pairs(found, arm):
            compared += 1
            if not math.isclose(ours, theirs, rel_tol=EXACT, abs_tol=0.0):
                apart.append(f"{arm['arm']}, {name}: {ours}, {theirs}")
    return Audited(folder.name, runs, groups, rollouts, compared, tuple(apart))


def pairs(found: list[Findings], arm: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """The numbers of an arm to be compared, as (name, value by the audit, value in the table).

    Values are those of single seeds, except for the skipped problems, of which the table has only the mean.

    Args:
        found: the findings of the arm's runs, in the order of its seeds.
        arm: the arm's entry in summary.json.
    """
    told = []
    for i, (seed, one) in enumerate(zip(arm["seeds"], found, strict=True)):
        own = {
            "rollouts": one.spending.rollouts,
            "tokens": one.spending.tokens,
            "wasted": one.wasted,
            "band_fresh": one.near_half,
        }
        told += [(f"{name} of seed {seed}", float(value or 0), arm[name]["values"][i]) for name, value in own.items()]
    return [*told, ("skipped", fmean(one.skipped for one in found), arm["skipped"])]


def _findings(folder: Path) -> Findings:
    [log] = read_logs([folder / LOG])
    return findings(log)


@script
def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("comparisons", type=Path, nargs="+", help="directories of comparisons, with their runs")
    found = [audited(folder) for folder in parser.parse_args().comparisons]
    print("| comparison | runs | groups | rollouts | numbers compared | different |")
    print("|---|---:|---:|---:|---:|---:|")
    for each in found:
        counts = f"{each.runs} | {each.groups:,} | {each.rollouts:,} | {each.compared} | {len(each.apart)}"
        print(f"| {each.name} | {counts} |")
    for line in (line for each in found for line in each.apart):
        print(f"\n{line}")
    return int(any(each.apart for each in found))


if __name__ == "__main__":
    sys.exit(main())
