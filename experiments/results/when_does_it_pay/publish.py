"""Writes a finished contest as compact JSON, from the reports of its regimes:

    python experiments/results/when_does_it_pay/publish.py contest hard=runs/contest_hard middle=runs/contest

Each regime's folder contains summary.json and provenance.json, as `halfway compare` and `halfway report` write them.
Ratios are those of mean curves; in files without `pooled` they are seed by seed, which reports no longer compute.
What the problems are like and what an arm is told are taken from the file that is overwritten, if there is one;
otherwise write them into the new file by hand.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.pages.contests import MEASURES, Arm, Contest, Number, Regime, read_contest
from halfway.experiments.report.arms import ArmSummary
from halfway.experiments.report.summary import Summary
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent / "contests"
DIGITS = 4


@script
def main() -> int:
    """Write the contest's file."""
    parser = script_parser(__doc__)
    parser.add_argument("name")
    parser.add_argument("regimes", nargs="+", metavar="REGIME=FOLDER")
    arguments = parser.parse_args()
    target = FOLDER / f"{arguments.name}.json"
    known = read_contest(target).regimes if target.exists() else {}
    regimes = {}
    for word in arguments.regimes:
        name, _, folder = word.partition("=")
        regimes[name] = read_regime(Path(folder), known.get(name))
    plain = rounded(msgspec.to_builtins(Contest(arguments.name, regimes, pooled=True)))
    text = json.dumps(plain, separators=(",", ":"))
    write_text(target, re.sub(r'("\w+":{"lr")', r"\n\1", text) + "\n")
    return 0


def read_regime(folder: Path, known: Regime | None) -> Regime:
    summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=Summary)
    if unfinished := [arm.arm for arm in summary.arms if arm.unfinished]:
        raise UserError(f"{folder}: runs of {', '.join(unfinished)} have not finished; resume the comparison")
    told = {name: arm.told for name, arm in known.arms.items()} if known else {}
    headline = next(matched for matched in summary.matched if matched.headline)
    assert summary.budget and summary.budget[0] == "rollouts"
    return Regime(
        words=known.words if known else "",
        command=json.loads((folder / "provenance.json").read_text())["command"],
        baseline=summary.design.baseline,
        seeds=max(len(arm.seeds) for arm in summary.arms),
        rollouts=round(summary.budget[1]),
        problems=headline.problems,
        arms={arm.arm: read_arm(summary, arm, told.get(arm.arm, "")) for arm in summary.arms},
    )


def read_arm(summary: Summary, arm: ArmSummary, told: str) -> Arm:
    assert arm.before and arm.after
    strata = next((row.rates for row in summary.strata if row.arm == arm.arm), {})
    settings = [row.setting for row in summary.tuned if row.arm == arm.arm and row.chosen]
    return Arm(
        lr=settings[0].partition("=")[2] if settings else "",
        before=arm.before.value,
        after=arm.after.value,
        steps=arm.steps.value,
        tokens=arm.tokens.value,
        trained_tokens=arm.trained_tokens.value if arm.trained_tokens else 0.0,
        wasted=arm.wasted.value if arm.wasted else None,
        band=arm.band_fresh.value if arm.band_fresh else None,
        rollouts_per_group=arm.rollouts_per_group.value if arm.rollouts_per_group else None,
        gains=dict(gains(summary, arm.arm)),
        reached={},
        spent=ratios(summary, arm.arm),
        strata={name: rate.value for name, rate in strata.items() if rate},
        starts={
            row.start: (
                row.groups,
                row.mean.value if row.mean else None,
                row.degenerate.value if row.degenerate else None,
            )
            for row in summary.starts
            if row.arm == arm.arm
        },
        told=told,
    )


def gains(summary: Summary, arm: str) -> Iterator[tuple[str, Number]]:
    """The axis and the gain of each planned contrast with the baseline."""
    for matched in summary.matched:
        for row in matched.contrasts:
            if (row.arm, row.reference) == (arm, summary.design.baseline):
                found = row.difference
                yield matched.axis.name, Number(found.value, found.low, found.high, row.clear)


def ratios(summary: Summary, arm: str) -> dict[str, dict[str, Number]]:
    """By target and measure, the multiple that the arm's mean curve needs of what the baseline's spends."""
    found: dict[str, dict[str, Number]] = {}
    for savings in summary.savings:
        row = next(row for row in savings.rows if row.arm == arm)
        for goal, ratio in row.ratios.items():
            if savings.axis.name in MEASURES and ratio and ratio.value is not None:
                number = Number(ratio.value, ratio.low, ratio.high, ratio.clear)
                found.setdefault(goal, {})[savings.axis.name] = number
    return found


def rounded(value: Any) -> Any:
    """The value with its numbers rounded to `DIGITS` decimals."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        kept = list(value)
        while kept and (kept[-1] is False or kept[-1] == ""):  # the defaults that end a Number
            kept.pop()
        return [rounded(each) for each in kept]
    return round(value, DIGITS) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
