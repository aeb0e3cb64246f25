"""Adds the finished runs of a comparison, or of a study of task generators, to the committed runs of a paper:

python -m halfway.experiments.reproduction.keep runs/reproduce/greso greso
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from halfway.curriculum import UserError
from halfway.experiments.propel.config import BASE, load_study
from halfway.experiments.propel.study_summary import evaluations_of, sweep_of
from halfway.experiments.report.records import load_comparison_records
from halfway.experiments.reproduction.judging import CURVES
from halfway.experiments.reproduction.run_curves import Curve, read_curves, write_curves
from halfway.experiments.reproduction.run_measures import OF_TEXTS, record_of
from halfway.experiments.scripts import script, script_parser


def finished_runs(folder: Path) -> list[Curve]:
    """Read the finished runs below a folder, with their facts.

    Raises:
        UserError: if the folder has neither a comparison nor a study, or a record cannot be read.
    """
    if (folder / "config.yaml").exists() and not (folder / "steps.jsonl").exists():
        return study_runs(folder)
    found = load_comparison_records(folder)
    return [record_of(run, folder.name) for run in found.all_runs if run.finished]


def study_runs(folder: Path) -> list[Curve]:
    """Read every evaluated generator of a study, with the facts of its texts and of the seed's probe."""
    config = load_study(folder / "config.yaml")
    curves = []
    for arm in (BASE, *config.arms):
        for seed, found in evaluations_of(config, arm).items():
            facts = {name: float(found[name]) for name in OF_TEXTS}
            facts["solver_trials"] = float(found["offline_trials"] + found["online_trials"])
            if sweep := sweep_of(config, seed):
                scores = sweep["chosen"]["test"]
                facts |= {"balanced_accuracy": scores["balanced_accuracy"], "calibration_error": scores["ece"]}
            curves.append(Curve(config.name, arm, seed, 0.0, 0, (), facts))
    return curves


def merge_runs(old: Sequence[Curve], new: Sequence[Curve]) -> list[Curve]:
    """Merge runs, in the order of arms and seeds; a new run replaces one with equal arm and seed."""
    by_name = {(curve.arm, curve.seed): curve for curve in (*old, *new)}
    return [by_name[key] for key in sorted(by_name)]


@script
def main(words: Sequence[str] | None = None) -> int:
    """Write the file of the paper."""
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder of a comparison or a study")
    parser.add_argument("paper", help="paper: greso, prefix_sampling, pros or propel")
    chosen = parser.parse_args(words)
    new = finished_runs(chosen.folder)
    if not new:
        raise UserError(f"{chosen.folder}: no run has finished; finish one first")
    file = CURVES / f"{chosen.paper}.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    runs = merge_runs(read_curves(file) if file.exists() else [], new)
    write_curves(file, runs)
    print(f"{file}: {len(runs)} runs, {len(new)} of them from {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
