"""Simulates the verdict's contests from committed curves, and says how often they would show what they are meant to:

    python experiments/results/when_does_it_pay/power.py

Writes power.json, with rows for each regime that has runs. `--page FOLDER` is for another page than this.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.reproduction.run_curves import by_arm, read_curves
from halfway.experiments.results.when_does_it_pay.contest_power import (
    Design,
    Spread,
    false_alarms,
    power_of_area,
    power_of_ratio,
    spread_of,
)
from halfway.experiments.results.when_does_it_pay.verdict_numbers import compared, over_regimes
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
RUNS = (8, 16, 32)
CONTESTS = 100
FEWEST = 4
"""Residuals, beyond what arms and instances add, from which a spread is estimated."""


@script
def main() -> int:
    """Simulate, print and write."""
    parser = script_parser(__doc__)
    parser.add_argument("--contests", type=int, default=CONTESTS, help="simulated contests behind each number")
    parser.add_argument("--page", type=Path, default=FOLDER, help="folder of the plan, the curves and the page")
    options = parser.parse_args()
    contests, plan = options.contests, yaml_bases.parse(options.page / "plan.yaml")
    spreads = {regime: found for regime in plan["regimes"] if (found := spread(regime, plan, options.page / "curves"))}
    rows = [row(regime, found, runs, plan, contests) for regime, found in spreads.items() for runs in RUNS]
    write_json(options.page / "power.json", {"contests": contests, "rows": rows})
    table = Table(*rows[0]) if rows else Table("nothing has been run yet")
    for each in rows:
        table.add_row(*map(str, each.values()))
    Console().print(table)
    return 0


def spread(regime: str, plan: Mapping[str, Any], folder: Path) -> Spread | None:
    """What the runs of a regime are like, those of an earlier look if there are few; None if there are none."""
    path, earlier_path, number = folder / f"{regime}.jsonl.gz", folder / "screening.jsonl.gz", plan["instances"]
    runs_of = compared(read_curves(path), plan)[1] if path.exists() else {}
    places = {run.seed % number for run in runs_of.get("grpo", [])}
    if sum(map(len, runs_of.values())) - len(runs_of) - len(places) >= FEWEST:
        return spread_of(runs_of, "grpo", number, ROLLOUTS)
    found = read_curves(earlier_path) if earlier_path.exists() else []
    earlier = [curve for curve in found if curve.regime == regime]
    return spread_of(by_arm(earlier), earlier[0].arm, 1, ROLLOUTS) if earlier else None


def row(regime: str, found: Spread, runs: int, plan: Mapping[str, Any], contests: int) -> dict[str, str | int | float]:
    design = Design(runs, plan["instances"], plan["contrasts"])
    saving, regimes = plan["saving"], plan["regimes"]
    return {
        "regime": regime,
        "runs": runs,
        "shown": power_of_area(found, design, saving, contests),
        f"shown over {len(regimes)} like it": power_of_area(
            found, design, saving, contests, regimes=len(regimes), mean=over_regimes
        ),
        "shown by cost to the end": power_of_ratio(found, design, saving, contests),
        "equal arms called clear": false_alarms(found, design, contests),
    }


if __name__ == "__main__":
    sys.exit(main())
