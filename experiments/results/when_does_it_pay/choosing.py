"""Collects the runs of the choosing recipes, and writes choosing.json, of which the page's table is made:

    python experiments/results/when_does_it_pay/choosing.py hard=runs/choosing_hard retries=runs/retries

Adds the finished runs to curves/choosing_KIND.jsonl.gz; without arguments it judges those that are there. Then
`make reproduction` writes the tables.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import read_json, write_json
from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.analysis.pooled import area_gain, areas, by_instance, pool, ratio
from halfway.experiments.report.records import Run, load_comparison_records
from halfway.experiments.report.statistics.intervals import FEW
from halfway.experiments.report.text_tables import NONE, TextTable
from halfway.experiments.reproduction.run_curves import Curve, by_arm, curve_of, read_curves, write_curves
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
INSTANCES = 2
UNIFORM = "uniform"
LAWS = {"signal": "signal", "mass": "mass, sharpness 2"}
RATES = ("shared", "remembered", "measured")
ARMS = (UNIFORM, *(f"{law}_{rates}" for law in LAWS for rates in RATES))
RETRIES = "retries"
"""The kind of recipe compare/retries.yaml, whose arms are others."""
RETRIES_ARMS = {"frontier": "chooses", "ngu": "tries again", "frontier_ngu": "chooses, and tries again"}
VERDICT = {
    "frontier_epochs": ("signal", "shared"),
    "remembered_epochs": ("signal", "remembered"),
    "remembered_mass_epochs": ("mass", "remembered"),
}
"""Law and rates of the verdict's arms that have the batches, epochs and rate of its arm `PLAIN`, uniform choice."""
PLAIN = "grpo_epochs"
OF_VERDICT = ", verdict"
"""What the name of a kind ends with whose rows are of the verdict's runs."""


@script
def main() -> int:
    """Collect, judge and write."""
    parser = script_parser(__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND=FOLDER")
    for word in parser.parse_args().kinds:
        kind, _, folder = word.partition("=")
        path = FOLDER / "curves" / f"choosing_{kind}.jsonl.gz"
        curves = {(each.arm, each.seed): each for each in (read_curves(path) if path.exists() else [])}
        curves |= {(each.arm, each.seed): each for each in finished(Path(folder), f"choosing_{kind}")}
        write_curves(path, [curves[key] for key in sorted(curves)])
    files = sorted((FOLDER / "curves").glob("choosing_*.jsonl.gz"))
    kinds = {path.name.removeprefix("choosing_").partition(".")[0]: read_curves(path) for path in files}
    arms = {kind: (UNIFORM, *RETRIES_ARMS) if kind == RETRIES else ARMS for kind in kinds}
    judged = {kind: judge(curves, arms[kind]) for kind, curves in kinds.items()}
    judged[f"{RETRIES}, beside frontier"] = judge(kinds[RETRIES], ("frontier", "frontier_ngu"))
    judged |= {f"{kind}{OF_VERDICT}": judge_verdict(kind) for kind in ("hard", "middle", "broad", "long")}
    write_json(FOLDER / "choosing.json", {kind: rows for kind, rows in judged.items() if rows})
    return 0


def judge_verdict(kind: str) -> dict[str, dict[str, Any]]:
    """The same of the verdict's runs with confirming seeds."""
    plan = yaml_bases.parse(FOLDER / "plan.yaml")
    curves = read_curves(FOLDER / "curves" / f"{kind}.jsonl.gz")
    confirming = [each for each in curves if each.seed in plan["seeds"]["confirming"]]
    return judge(confirming, (PLAIN, *VERDICT), plan["instances"])


def finished(folder: Path, regime: str) -> list[Curve]:
    """The finished runs, with their share of mixed groups and their belief's mean error as facts."""
    runs = load_comparison_records(folder).all_runs
    return [msgspec.structs.replace(curve_of(run, regime), facts=facts(run)) for run in runs if run.finished]


def facts(run: Run) -> dict[str, float]:
    mixed = float(np.mean([not group.zero_variance for group in run.groups if group.scored]))
    lines = (run.folder / "steps.jsonl").read_bytes().splitlines()
    errors = [msgspec.json.decode(line)["controllers"].get("frontier/error") for line in lines]
    errors = [error for error in errors if error is not None]
    return {"mixed": round(mixed, 4)} | ({"error": round(float(np.mean(errors)), 4)} if errors else {})


def judge(curves: Sequence[Curve], arms: Sequence[str] = ARMS, instances: int = INSTANCES) -> dict[str, dict[str, Any]]:
    """By arm, over the seeds that every arm has: area, gain over the first arm, rollouts, end and facts."""
    curves = [curve for curve in curves if curve.arm in arms]
    seeds = set.intersection(*({c.seed for c in curves if c.arm == arm} for arm in arms))
    curves = [curve for curve in curves if curve.seed in seeds]
    if not curves:
        return {}
    runs_of = by_arm(curves)
    pooled = pool(by_instance(runs_of, instances), ROLLOUTS)
    horizon = float(pooled.ends_A.min())
    found: dict[str, dict[str, Any]] = {}
    for arm, area in zip(pooled.arms, areas(pooled, horizon)[0].tolist(), strict=True):
        own = [curve for curve in curves if curve.arm == arm]
        row: dict[str, Any] = {"runs": len(own), "area": round(area, 4)}
        row["end"] = round(float(np.mean([run.evaluations[-1].pass_at_1 for run in runs_of[arm]])), 4)
        if arm != arms[0]:
            gain, spent = area_gain(pooled, arm, arms[0], horizon).estimate, ratio(pooled, arm, arms[0])
            ends = (gain.low, gain.high) if len(own) > FEW else (None, None)
            row["gain"] = [None if each is None else round(each, 4) for each in (gain.value, *ends)]
            row["rollouts"] = None if spent is None or spent.value is None else round(spent.value, 3)
        row |= {name: round(float(np.mean([curve.facts[name] for curve in own])), 4) for name in own[0].facts}
        found[arm] = row
    return found


EARLIER = (
    # PROS's law: oracle_each_step.json. The others: prototypes, of which no curves were kept .
    ("hard, prototype", "signal", "8 and 4", 0.268, 0.331, 0.341),
    ("middle, prototype", "signal", "8 and 4", 0.474, 0.508, 0.541),
)
"""Kind, law, runs of the belief and of the known rates; areas of uniform choice, of the belief that remembers, of known
rates."""


def choosing_table(folder: Path) -> TextTable:
    """What knowledge of pass rates gives over uniform choice, and what beliefs get of it."""
    rows = []
    judged = read_json(folder / "choosing.json", "run choosing.py")
    of_verdict = {f"{law}_{rates}": arm for arm, (law, rates) in VERDICT.items()}
    for kind, arms in judged.items():
        if kind.startswith(RETRIES):
            continue
        measured = judged.get(kind.removesuffix(OF_VERDICT), {})
        for law, title in LAWS.items():
            for rates in RATES:
                arm = f"{law}_{rates}"
                if row := arms.get(of_verdict.get(arm, "") if kind.endswith(OF_VERDICT) else arm):
                    rows.append(_row(kind, title, rates, row, measured.get(f"{law}_measured")))
    each = read_json(folder / "oracle_each_step.json", "restore it with git")
    plain, believed, oracle = (each["area"][arm] for arm in ("grpo", "selection", "selection_oracle"))
    earlier = [("hard, one epoch", "PROS", str(each["seeds"]), plain, believed, oracle), *EARLIER]
    for kind, law, runs, uniform, belief_area, known_area in earlier:
        share = f"{(belief_area - uniform) / (known_area - uniform):.0%}"
        gains = (f"{belief_area - uniform:+.3f}", f"{known_area - uniform:+.3f}")
        rows.append((kind, law, "its belief", runs, gains[0], share, NONE, NONE, NONE))
        rows.append((kind, law, "known rates", runs, gains[1], "100%", NONE, NONE, NONE))
    heads = ("data", "law", "rates", "runs", "area over uniform", "of what knowledge gives", "rollouts", "end", "mixed")
    notes = (
        "Area under held-out pass@1 along rollouts minus that of uniform choice with as many epochs, with 95 % "
        "intervals, not adjusted; its share of what knowledge gives, where that is clear; rollouts needed for uniform "
        "choice's final score, as a multiple (-: not reached, or not known); share of mixed groups. Measured and known "
        "rates cost rollouts that are not counted. Rows of the verdict are of its seeds and four instances, and their "
        "share is of what measured rates gave the six runs. Rows without intervals have up to three runs, or are "
        "earlier: PROS's law (oracle_each_step.json, 5,120 rollouts), and prototypes of which no curves were kept. The "
        "best row bounds what was tried, not what is possible."
    )
    return TextTable("What choosing can give", heads, tuple(rows), notes)


def retries_table(folder: Path) -> TextTable:
    """Choosing problems beside trying failed ones again."""
    arms = read_json(folder / "choosing.json", "run choosing.py")[RETRIES]
    rows = [(arm, what, *_results(arms[arm])) for arm, what in RETRIES_ARMS.items()]
    rows.append((UNIFORM, "neither", str(arms[UNIFORM]["runs"]), NONE, NONE, *_ends(arms[UNIFORM])))
    heads = ("arm", "what it does", "runs", "area over uniform", "rollouts", "end", "mixed")
    notes = (
        "Area under held-out pass@1 along rollouts minus that of uniform choice, with 95 % intervals, not adjusted; "
        "rollouts needed for uniform choice's final score, as a multiple (-: not reached); share of mixed groups."
    )
    return TextTable("Choosing, and trying again", heads, tuple(rows), notes)


def _row(kind: str, law: str, rates: str, arm: Mapping[str, Any], known: Mapping[str, Any] | None) -> tuple[str, ...]:
    clear = known is not None and (known["gain"][1] or 0) > 0
    share = f"{arm['gain'][0] / known['gain'][0]:.0%}" if known and clear else NONE
    runs, gain, *others = _results(arm)
    return (kind, law, rates, runs, gain, share, *others)


def _results(arm: Mapping[str, Any]) -> tuple[str, ...]:
    value, low, high = arm["gain"]
    gain = f"{value:+.3f}" + ("" if low is None else f" [{low:+.3f}, {high:+.3f}]")
    spent = NONE if arm["rollouts"] is None else f"x{arm['rollouts']:.2f}"
    return (str(arm["runs"]), gain, spent, *_ends(arm))


def _ends(arm: Mapping[str, Any]) -> tuple[str, str]:
    return f"{arm['end']:.3f}", f"{arm['mixed']:.0%}" if "mixed" in arm else NONE


if __name__ == "__main__":
    sys.exit(main())
