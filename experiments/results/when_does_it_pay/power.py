"""Simulates the verdict's contests from committed curves, and says how often they would show what they are meant to:

    python experiments/results/when_does_it_pay/power.py

Writes power.json, with a row for each regime whose baseline has runs, and for all of them together.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.pages.run_curves import Curve, read_curves
from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.analysis.power import (
    Design,
    Spread,
    false_alarms,
    power_of_area,
    power_of_ratio,
    spread_of,
)
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
RUNS = (4, 8, 16)
CONTESTS = 200


@script
def main() -> int:
    """Simulate, print and write."""
    parser = script_parser(__doc__)
    parser.add_argument("--contests", type=int, default=CONTESTS, help="simulated contests behind each number")
    contests = parser.parse_args().contests
    plan = yaml_bases.parse(FOLDER / "plan.yaml")
    files = {regime: FOLDER / "curves" / f"{regime}.jsonl.gz" for regime in plan["regimes"]}
    spreads = {
        regime: found for regime, path in files.items() if path.exists() and (found := spread(read_curves(path), plan))
    }
    sets = {regime: [found] for regime, found in spreads.items()}
    if len(spreads) > 1:
        sets["all of these"] = list(spreads.values())
    rows = [row(name, found, runs, plan, contests) for name, found in sets.items() for runs in RUNS]
    write_json(FOLDER / "power.json", {"contests": contests, "rows": rows})
    table = Table(*rows[0]) if rows else Table("nothing has been run yet")
    for each in rows:
        table.add_row(*map(str, each.values()))
    Console().print(table)
    return 0


def spread(curves: Sequence[Curve], plan: Mapping[str, Any]) -> Spread | None:
    """What the runs of a regime are like, by plain recipes at one learning rate, in one instance; None if unknown."""
    plain = sorted((c for c in curves if c.arm in plan["plain"]), key=lambda c: (c.arm != "grpo", *cell(c, plan)))
    cells = [[curve.run for curve in found] for _, found in groupby(plain, key=lambda c: cell(c, plan))]
    longest = max((runs[0].evaluations[-1].rollouts for runs in cells), default=0)
    whole = [runs for runs in cells if runs[0].evaluations[-1].rollouts == longest]
    return spread_of(whole, ROLLOUTS) if any(len(runs) > 1 for runs in whole) else None


def cell(curve: Curve, plan: Mapping[str, Any]) -> tuple[str, float, int]:
    return curve.arm, curve.lr, curve.seed % plan["instances"]


def row(
    name: str, spreads: Sequence[Spread], runs: int, plan: Mapping[str, Any], contests: int
) -> dict[str, str | int | float]:
    design = Design(runs, plan["instances"], plan["contrasts"])
    saving = plan["saving"]
    return {
        "regime": name,
        "runs of each arm": runs,
        "shown by area": power_of_area(spreads, design, saving, contests),
        "shown by cost to the end": power_of_ratio(spreads[0], design, saving, contests) if len(spreads) == 1 else "",
        "equal arms called clear": false_alarms(spreads, design, contests),
    }


if __name__ == "__main__":
    sys.exit(main())
