"""Writes the curves of a comparison's finished runs, those of its sweep too, into the committed table of runs:

    python experiments/results/when_does_it_pay/collect.py hard=runs/verdict_hard long=runs/verdict_long

Runs that are in a regime's file already and no longer on disk are kept. `--page FOLDER` is for another page than this.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from halfway.experiments.report.records import load_comparison_records
from halfway.experiments.reproduction.run_curves import Curve, curve_of, read_curves, write_curves
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent


@script
def main() -> int:
    """Write one file per regime."""
    parser = script_parser(__doc__)
    parser.add_argument("regimes", nargs="+", metavar="REGIME=FOLDER")
    parser.add_argument("--page", type=Path, default=FOLDER, help="folder of the plan, the curves and the page")
    options = parser.parse_args()
    for word in options.regimes:
        regime, _, folder = word.partition("=")
        path = options.page / "curves" / f"{regime}.jsonl.gz"
        curves = {key(curve): curve for curve in (read_curves(path) if path.exists() else [])}
        curves |= {key(curve): curve for curve in finished(Path(folder), regime)}
        write_curves(path, [curves[each] for each in sorted(curves)])
        print(f"{path}: {len(curves)} runs")
    return 0


def key(curve: Curve) -> tuple[str, int, float]:
    return curve.arm, curve.seed, curve.lr


def finished(folder: Path, regime: str) -> Iterator[Curve]:
    """The finished runs of a comparison; those of an arm's sweep are a comparison of its settings."""
    runs = list(load_comparison_records(folder).all_runs)
    for sweep in folder.glob("tuning/*"):
        runs += [replace(run, arm=sweep.name) for run in load_comparison_records(sweep).all_runs]
    return (curve_of(run, regime) for run in runs if run.finished)


if __name__ == "__main__":
    sys.exit(main())
