"""Does the simulation rank arms as training does? From one plain log of a comparison, against what its arms measured.

The fit sees the decision log of one run of the plain arm, and nothing else: no score of any arm. Every arm is then
played on learners drawn from the fit, and its order by final pass rate is held against the order of held-out pass@1:
Kendall's tau-b, with an interval by drawing arms, learners and seeds anew. Arms that differ in more than controllers
and how batches are filled are left out, and so are those that the simulation cannot play; both are named.

    python -m halfway.experiments.studies.predicted_ranks runs/contest runs/contest_hard --out runs/predicted_ranks
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.advice.candidates import BASELINE, Candidate, of_arms
from halfway.experiments.advice.logs import read_run
from halfway.experiments.advice.model_error import Lead, ModelError
from halfway.experiments.advice.play import Setting
from halfway.experiments.advice.ranking import USUAL, Advice, Assumptions, advise
from halfway.experiments.report.records import Run, load_comparison_records
from halfway.experiments.report.tables.text import TextTable

RESAMPLES = 1000
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankedArm:
    """What one arm was predicted to reach, and reached.

    Attributes:
        predicted: final pass rate on each draw; measured: final held-out pass@1 of each seed.
        lead, spread: simulated lead over the plain arm, mean and standard deviation over draws.
        lead_low, lead_high: 95 % interval of the lead that advice foretells, with the error of the simulation.
    """

    comparison: str
    arm: str
    predicted: tuple[float, ...]
    measured: tuple[float, ...]
    lead: float
    spread: float
    lead_low: float
    lead_high: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Kendall's tau-b over the arms of a comparison, 95 % interval; and how many measured leads over the plain arm lie
    in their predicted intervals."""

    comparison: str
    arms: int
    tau: float
    low: float
    high: float
    covered: int


def kendall(x: Floats, y: Floats) -> float:
    """Kendall's tau-b: concordant minus discordant pairs, by the geometric mean of the pairs not tied in either."""
    signs = [np.sign(values[:, None] - values[None]) for values in (x, y)]
    untied = np.sqrt((signs[0] ** 2).sum() * (signs[1] ** 2).sum())
    return float((signs[0] * signs[1]).sum() / untied) if untied else 0.0


def tau_interval(arms: Sequence[RankedArm], seed: int = 0) -> tuple[float, float, float]:
    """tau of the means, and the interval over arms, draws and seeds that are drawn anew."""
    generator = np.random.default_rng(seed)

    def mean(values: Sequence[float]) -> float:
        return float(np.mean([values[i] for i in generator.integers(0, len(values), len(values))]))

    found = []
    for _ in range(RESAMPLES):
        chosen = [arms[i] for i in generator.integers(0, len(arms), len(arms))]
        predicted = np.array([mean(arm.predicted) for arm in chosen])
        found.append(kendall(predicted, np.array([mean(arm.measured) for arm in chosen])))
    predicted = np.array([np.mean(arm.predicted) for arm in arms])
    measured = np.array([np.mean(arm.measured) for arm in arms])
    low, high = np.quantile(found, [0.025, 0.975])
    return kendall(predicted, measured), float(low), float(high)


def ranked(
    folder: Path, plain: str, draws: int, seed: int, assumed: Assumptions = USUAL
) -> tuple[list[RankedArm], list[str]]:
    """The arms of a comparison, and what was left out.

    Raises:
        UserError: if the plain arm has no run whose log can be read.
    """
    comparison = load_comparison_records(folder)
    chains, left_out = playable(comparison.config.get("arms", {}))
    scores = {arm: final_scores(runs) for arm, runs in comparison.runs.items()}
    if plain not in scores or not scores[plain]:
        raise UserError(f"{folder}: the plain arm {plain!r} has no finished run; name it with --plain")
    run = read_run(comparison.runs[plain][0].folder)
    setting = Setting(run.num_rollouts, run.groups_per_update, run.rollouts)
    chains = [chain for chain in chains if scores.get(chain.name) or chain.name == plain]
    named = [Candidate(BASELINE if c.name == plain else c.name, c.controllers, c.fill) for c in chains]
    found = advise(run, named, setting, draws, seed, assumed=assumed)
    if found.missing:
        raise UserError(f"{folder}: the log does not tell enough: {'; '.join(found.missing)}")
    left_out += [f"{arm}: {why}" for arm, why in found.refused.items()]
    left_out += [f"learning rate x {factor:g} for {arm}" for arm, factor in found.factors.items() if factor != 1]
    return rows_of(folder.name, found, scores, plain), left_out


def playable(arms: Mapping[str, Any]) -> tuple[list[Candidate], list[str]]:
    """The arms that the simulation knows, and why others are left out."""
    chains, left_out = [], []
    for arm, changes in arms.items():
        try:
            chains += of_arms({arm: changes or {}})
        except UserError as error:
            left_out.append(str(error))
    return chains, left_out


def final_scores(runs: Sequence[Run]) -> tuple[float, ...]:
    """Held-out pass@1 at the end of each finished run."""
    return tuple(run.evaluations[-1].pass_at_1 for run in runs if run.finished and run.evaluations)


def rows_of(name: str, found: Advice, scores: Mapping[str, tuple[float, ...]], plain: str) -> list[RankedArm]:
    """An arm for each chain that was played and measured."""
    rows = []
    for row in found.rows:
        arm = plain if row.candidate.name == BASELINE else row.candidate.name
        predicted = tuple(played.scores[-1] for played in found.plays[row.candidate.name])
        rows.append(RankedArm(name, arm, predicted, scores[arm], row.lead, row.spread, row.ahead_low, row.ahead_high))
    return rows


def agreement(arms: Sequence[RankedArm], plain: str) -> Agreement:
    """How well the arms of one comparison are ranked."""
    base = np.mean(next(arm.measured for arm in arms if arm.arm == plain))
    others = [arm for arm in arms if arm.arm != plain]
    covered = sum(int(arm.lead_low <= np.mean(arm.measured) - base <= arm.lead_high) for arm in others)
    return Agreement(arms[0].comparison, len(arms), *tau_interval(arms), covered)


def leads_of(arms: Sequence[RankedArm], plain: str) -> list[Lead]:
    """The leads of the arms of one comparison, simulated and measured."""
    base = np.mean(next(arm.measured for arm in arms if arm.arm == plain))
    others = [arm for arm in arms if arm.arm != plain]
    return [Lead(arm.lead, arm.spread, float(np.mean(arm.measured) - base)) for arm in others]


def blind_table(leads: Mapping[str, Sequence[Lead]]) -> TextTable:
    """What each comparison says of the simulation's error, and how that holds on the others."""
    rows = []
    for name, own in leads.items():
        others = [lead for other, each in leads.items() if other != name for lead in each]
        error, raw = ModelError.of(own), ModelError(1.0, 0.0)
        rows.append(
            (
                name,
                str(len(own)),
                f"{raw.covered(own)} of {len(own)}",
                f"{error.share:.2f}",
                f"{error.deviation:.3f}",
                f"{error.covered(others)} of {len(others)}" if others else "-",
            )
        )
    pooled = ModelError.of([lead for each in leads.values() for lead in each])
    number = sum(map(len, leads.values()))
    rows.append(("all", str(number), "", f"{pooled.share:.2f}", f"{pooled.deviation:.3f}", ""))
    caption = (
        "Measured lead = share x simulated lead + error, by least squares on one comparison. Covered: measured leads "
        "in the 95 % interval of the simulation alone, and, blind, those of the other comparisons in the interval that "
        "this one's share and deviation give them."
    )
    columns = ("fitted on", "leads", "covered by the simulation", "share", "deviation", "covered blind, on the others")
    return TextTable("How far the simulation is off", columns, tuple(rows), caption)


def arm_table(arms: Sequence[RankedArm], plain: str) -> TextTable:
    """Arms in the order in which they were measured."""
    base = {arm.comparison: float(np.mean(arm.measured)) for arm in arms if arm.arm == plain}
    rows = [
        (
            arm.arm,
            arm.comparison,
            str(len(arm.measured)),
            f"{np.mean(arm.measured):.3f}",
            f"{np.mean(arm.predicted):.3f}",
            f"{np.mean(arm.measured) - base[arm.comparison]:+.3f}",
            f"{arm.lead:+.3f} ± {arm.spread:.3f}",
            f"[{arm.lead_low:+.3f}, {arm.lead_high:+.3f}]",
            str(1 + sum(np.mean(x.predicted) > np.mean(arm.predicted) for x in arms if x.comparison == arm.comparison)),
        )
        for arm in sorted(arms, key=lambda arm: (arm.comparison, -float(np.mean(arm.measured))))
    ]
    columns = (
        "arm",
        "comparison",
        "seeds",
        "measured",
        "predicted",
        "measured lead",
        "simulated lead",
        "foretold, 95 %",
        "predicted place",
    )
    caption = (
        "Measured: held-out pass@1 at the end of the budget, mean over seeds, best first. Predicted: pass rate of new "
        "problems at the end, on learners fitted to the log of one plain run. Leads are over the plain arm: simulated, "
        "with the standard deviation over draws, and as advice foretells them."
    )
    return TextTable("Arms as measured, and as predicted from one plain log", columns, tuple(rows), caption)


def agreement_table(found: Sequence[Agreement]) -> TextTable:
    """A row per comparison."""
    rows = tuple(
        (
            each.comparison,
            str(each.arms),
            f"{each.tau:.2f} [{each.low:.2f}, {each.high:.2f}]",
            f"{each.covered} of {each.arms - 1}",
        )
        for each in found
    )
    caption = (
        "Kendall's tau-b between predicted and measured means; 95 % interval by drawing arms, learners and seeds anew. "
        "Leads covered: measured leads over the plain arm that lie in the intervals that advice gives them."
    )
    return TextTable("Agreement", ("comparison", "arms", "tau", "leads covered"), rows, caption)


def main() -> int:
    """Predict, compare, print, and write tables and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("comparisons", type=Path, nargs="+", help="directories of comparisons")
    parser.add_argument("--plain", default="grpo", help="the arm whose log is fitted")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/predicted_ranks"))
    parser.add_argument("--paces", type=float, nargs="+", default=USUAL.paces, help="see `Assumptions`")
    parser.add_argument("--factors", type=float, nargs="+", default=USUAL.factors)
    parser.add_argument("--shared", type=float, default=USUAL.shared)
    parser.add_argument("--features", action="store_true")
    arguments = parser.parse_args()
    assumed = Assumptions(tuple(arguments.paces), arguments.shared, arguments.features, tuple(arguments.factors))
    arms, left_out, agreements, leads = [], [], [], {}
    try:
        for folder in arguments.comparisons:
            found, without = ranked(folder, arguments.plain, arguments.draws, arguments.seed, assumed)
            agreements.append(agreement(found, arguments.plain))
            leads[folder.name] = leads_of(found, arguments.plain)
            arms += found
            left_out += [f"{folder.name}: {line}" for line in without]
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    tables = (agreement_table(agreements), blind_table(leads), arm_table(arms, arguments.plain))
    for table in tables:
        Console(width=160).print(table.rich())
    lines = [table.markdown() for table in tables] + [f"Left out: {line}\n" for line in left_out]
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "predicted_ranks.md", "\n".join(lines))
    numbers = {"agreement": [asdict(each) for each in agreements], "arms": [asdict(arm) for arm in arms]}
    write_text(arguments.out / "predicted_ranks.json", json.dumps(numbers, indent=1) + "\n")
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
