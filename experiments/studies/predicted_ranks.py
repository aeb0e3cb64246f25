"""Tests whether the simulation, fitted to one plain log of a comparison, ranks its arms as training does.

The fit sees only the decision log of one run of the plain arm, and no score of any arm. Every arm is then simulated on
learners drawn from the fit, and the order of the arms by final pass rate is compared with their order by held-out
pass@1, using Kendall's tau-b with an interval from resampling arms, learners and seeds. Arms that differ in more than
controllers and how batches are filled are left out, and so are arms that the simulation cannot play; both are named.

    python -m halfway.experiments.studies.predicted_ranks runs/contest runs/contest_hard --out runs/predicted_ranks
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.advice.candidates import BASELINE, Candidate, of_arms
from halfway.experiments.advice.logs import read_run
from halfway.experiments.advice.model_error import EXACT, Lead, ModelError
from halfway.experiments.advice.play import Setting
from halfway.experiments.advice.ranking import USUAL, Advice, Assumptions, advise
from halfway.experiments.report.records import Run, load_comparison_records
from halfway.experiments.report.tables.text import TextTable
from halfway.experiments.scripts import script, script_parser

RESAMPLES = 1000
HALVINGS = 200
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankedArm:
    """What one arm was predicted to reach, and what it reached.

    Attributes:
        predicted: final pass rate on each simulated learner.
        measured: final held-out pass@1 of each seed.
        lead, spread: mean and standard deviation over simulated learners of the lead over the plain arm.
    """

    comparison: str
    arm: str
    predicted: tuple[float, ...]
    measured: tuple[float, ...]
    lead: float
    spread: float


class Predictions(msgspec.Struct):
    """The fields of predicted_ranks.json that `--again` reads."""

    arms: tuple[RankedArm, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Kendall's tau-b between the predicted and the measured order of a comparison's arms, with a 95 % interval.

    Attributes:
        arms: number of arms.
        tau, low, high: tau-b and the bounds of its interval.
        halves: tau between the orders measured by two halves of the seeds, averaged over random halves. No prediction
            can be expected to agree with a contest better than a second contest of the same arms would.
        place: measured place of the arm that is predicted to be the best; 1 = best.
    """

    comparison: str
    arms: int
    tau: float
    low: float
    high: float
    halves: float
    place: int


def kendall(x: Floats, y: Floats) -> float:
    """Kendall's tau-b: concordant minus discordant pairs, over the geometric mean of the pairs untied in x and in y."""
    signs = [np.sign(values[:, None] - values[None]) for values in (x, y)]
    untied = np.sqrt((signs[0] ** 2).sum() * (signs[1] ** 2).sum())
    return float((signs[0] * signs[1]).sum() / untied) if untied else 0.0


def tau_interval(arms: Sequence[RankedArm], seed: int = 0) -> tuple[float, float, float]:
    """tau of the mean scores, and its 95 % bounds from resampling arms, simulated learners and seeds."""
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
    folder: Path, plain: str, draws: int, seed: int, assumed: Assumptions = USUAL, log_seed: int | None = None
) -> tuple[list[RankedArm], list[str]]:
    """Predict the arms of a comparison; returns the arms, and what was left out or changed, in words.

    Args:
        plain: name of the plain arm.
        draws: number of simulated learners.
        log_seed: seed of the plain run whose log is fitted; None = the first run's.

    Raises:
        UserError: if the plain arm has no finished run, or no log that tells enough.
    """
    comparison = load_comparison_records(folder)
    chains, left_out = playable(comparison.config.get("arms", {}))
    scores = {arm: final_scores(runs) for arm, runs in comparison.runs.items()}
    if plain not in scores or not scores[plain]:
        raise UserError(f"{folder}: the plain arm {plain!r} has no finished run; name it with --plain")
    logged = [each for each in comparison.runs[plain] if log_seed in (None, each.seed)]
    if not logged:
        raise UserError(f"--log-seed: {folder} has no run of {plain} with seed {log_seed}")
    run = read_run(logged[0].folder)
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
    """The arms that the simulation can play, and why the others are left out."""
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
    """The predicted and measured scores of every arm that was simulated."""
    rows = []
    for row in found.rows:
        arm = plain if row.candidate.name == BASELINE else row.candidate.name
        predicted = tuple(played.scores[-1] for played in found.plays[row.candidate.name])
        rows.append(RankedArm(name, arm, predicted, scores[arm], row.lead, row.spread))
    return rows


def tau_of_halves(arms: Sequence[RankedArm], seed: int = 0) -> float:
    """tau between the orders measured by two random halves of the seeds, on average; NaN with one seed."""
    generator = np.random.default_rng(seed)
    count = min(len(arm.measured) for arm in arms)
    if count < 2:
        return float("nan")
    found = []
    for _ in range(HALVINGS):
        order = generator.permutation(count)
        one, other = order[: count // 2], order[count // 2 :]
        means = [np.array([np.mean(np.array(arm.measured)[half]) for arm in arms]) for half in (one, other)]
        found.append(kendall(*means))
    return float(np.mean(found))


def agreement(arms: Sequence[RankedArm]) -> Agreement:
    """How well the predicted order of one comparison's arms agrees with the measured order."""
    best = max(arms, key=lambda arm: np.mean(arm.predicted))
    place = 1 + sum(np.mean(arm.measured) > np.mean(best.measured) for arm in arms)
    return Agreement(arms[0].comparison, len(arms), *tau_interval(arms), tau_of_halves(arms), int(place))


def leads_of(arms: Sequence[RankedArm], plain: str) -> dict[str, list[Lead]]:
    """The simulated and measured leads of the arms over the plain arm, by comparison."""
    base = {arm.comparison: np.mean(arm.measured) for arm in arms if arm.arm == plain}
    found: dict[str, list[Lead]] = {name: [] for name in base}
    for arm in arms:
        if arm.arm != plain:
            lead = float(np.mean(arm.measured) - base[arm.comparison])
            found[arm.comparison].append(Lead(arm.lead, arm.spread, lead))
    return found


def error_of(leads: Sequence[Lead]) -> ModelError | None:
    """The simulation's error as estimated from leads; None with fewer than two, or if all simulated leads are 0."""
    return ModelError.of(leads) if len(leads) > 1 and any(lead.simulated for lead in leads) else None


def blind_error(leads: Mapping[str, Sequence[Lead]], name: str) -> ModelError | None:
    """The simulation's error as estimated from the other comparisons; None if they do not suffice."""
    return error_of([lead for other, each in leads.items() if other != name for lead in each])


def error_table(leads: Mapping[str, Sequence[Lead]]) -> TextTable:
    """The simulation's error by each comparison, and by the others, one row per comparison and one for all."""
    every = [lead for each in leads.values() for lead in each]
    rows = [(name, *_error_cells(own, blind_error(leads, name))) for name, own in leads.items()]
    rows.append(("all", *_error_cells(every, None)))
    caption = (
        "Measured lead = share x simulated lead + error, by least squares. Covered: measured leads in the 95 % "
        "interval of the simulation alone; and, blind, in the one that share and deviation of the others give."
    )
    columns = (
        "comparison",
        "leads",
        "covered by the simulation",
        "share",
        "deviation",
        "share of the others",
        "deviation of the others",
        "covered blind",
    )
    return TextTable("How far the simulation is off", columns, tuple(rows), caption)


def _error_cells(own: Sequence[Lead], before: ModelError | None) -> tuple[str, ...]:
    def cells(error: ModelError | None) -> tuple[str, str]:
        return (f"{error.share:.2f}", f"{error.deviation:.3f}") if error else ("-", "-")

    blind = f"{before.covered(own)} of {len(own)}" if before else "-"
    return str(len(own)), f"{EXACT.covered(own)} of {len(own)}", *cells(error_of(own)), *cells(before), blind


def arm_table(arms: Sequence[RankedArm], plain: str) -> TextTable:
    """The arms of each comparison, by measured score, highest first, with their predictions."""
    base = {arm.comparison: float(np.mean(arm.measured)) for arm in arms if arm.arm == plain}
    leads = leads_of(arms, plain)
    rows = []
    for arm in sorted(arms, key=lambda arm: (arm.comparison, -float(np.mean(arm.measured)))):
        predicted = float(np.mean(arm.predicted))
        mine = [other for other in arms if other.comparison == arm.comparison]
        rows.append(
            (
                arm.arm,
                arm.comparison,
                str(len(arm.measured)),
                f"{np.mean(arm.measured):.3f}",
                f"{predicted:.3f}",
                f"{np.mean(arm.measured) - base[arm.comparison]:+.3f}",
                f"{arm.lead:+.3f} ± {arm.spread:.3f}",
                "-" if arm.arm == plain else _foretold(arm, blind_error(leads, arm.comparison)),
                str(1 + sum(np.mean(other.predicted) > predicted for other in mine)),
            )
        )
    columns = (
        "arm",
        "comparison",
        "seeds",
        "measured",
        "predicted",
        "measured lead",
        "simulated lead",
        "foretold blind, 95 %",
        "predicted place",
    )
    caption = (
        "Measured: held-out pass@1 at the end of the budget, mean over seeds, best first. Predicted: pass rate of new "
        "problems at the end, on learners fitted to the log of one plain run. Leads are over the plain arm: simulated, "
        "with the standard deviation over draws, and as they are foretold with the error of the other comparisons."
    )
    return TextTable("Arms as measured, and as predicted from one plain log", columns, tuple(rows), caption)


def _foretold(arm: RankedArm, error: ModelError | None) -> str:
    if error is None:
        return "-"
    low, high = error.interval(arm.lead, arm.spread)
    return f"[{low:+.3f}, {high:+.3f}]"


def agreement_table(found: Sequence[Agreement]) -> TextTable:
    """How well the predicted orders agree with the measured orders, one row per comparison."""
    rows = tuple(
        (
            each.comparison,
            str(each.arms),
            f"{each.tau:.2f} [{each.low:.2f}, {each.high:.2f}]",
            f"{each.halves:.2f}",
            str(each.place),
        )
        for each in found
    )
    caption = (
        "Kendall's tau-b between predicted and measured means; 95 % interval by drawing arms, learners and seeds anew. "
        "Halves: tau between the orders that two halves of the seeds measure, mean over random halves. Place: at which "
        "the arm was measured that is predicted best."
    )
    columns = ("comparison", "arms", "tau", "tau between halves", "place of the predicted best")
    return TextTable("Agreement", columns, rows, caption)


def measured_again(folder: Path, known: Sequence[RankedArm], plain: str) -> tuple[list[RankedArm], list[str]]:
    """Earlier predictions beside all seeds that a comparison has by now; also names its arms without a prediction.

    Raises:
        UserError: if the comparison's plain arm has no prediction.
    """
    runs = load_comparison_records(folder).runs
    mine = {arm.arm: arm for arm in known if arm.comparison == folder.name}
    if plain not in mine:
        raise UserError(f"{folder}: no prediction of its plain arm {plain!r} in the file given by --again")
    found = [replace(arm, measured=final_scores(runs[name])) for name, arm in mine.items() if name in runs]
    return found, [f"{name}: not predicted" for name in runs if name not in mine]


def read_predictions(path: Path) -> list[RankedArm]:
    """Read the arms in a predicted_ranks.json.

    Raises:
        UserError: if the file cannot be read as one.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=Predictions)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"--again: {path}: {error}; give a predicted_ranks.json") from None
    return list(content.arms)


def write(arms: Sequence[RankedArm], left_out: Sequence[str], plain: str, out: Path) -> tuple[TextTable, ...]:
    """Write the tables and numbers into a folder, and return the tables."""
    names = dict.fromkeys(arm.comparison for arm in arms)
    agreements = [agreement([arm for arm in arms if arm.comparison == name]) for name in names]
    tables = (agreement_table(agreements), error_table(leads_of(arms, plain)), arm_table(arms, plain))
    lines = [table.markdown() for table in tables] + [f"Left out: {line}\n" for line in left_out]
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "predicted_ranks.md", "\n".join(lines))
    numbers = {"agreement": [asdict(each) for each in agreements], "arms": [asdict(arm) for arm in arms]}
    write_text(out / "predicted_ranks.json", json.dumps(numbers, indent=1) + "\n")
    return tables


@script
def main() -> int:
    """Predict the arms, compare with their scores, print the tables, and write tables and numbers."""
    parser = script_parser(__doc__)
    parser.add_argument("comparisons", type=Path, nargs="+", help="directories of comparisons")
    parser.add_argument("--plain", default="grpo", help="the arm whose log is fitted")
    parser.add_argument("--log-seed", type=int, help="of the plain arm's run that is fitted; the first by default")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/predicted_ranks"))
    parser.add_argument("--paces", type=float, nargs="+", default=USUAL.paces, help="see `Assumptions`")
    parser.add_argument("--factors", type=float, nargs="+", default=USUAL.factors)
    parser.add_argument("--shared", type=float, default=USUAL.shared)
    parser.add_argument("--features", action="store_true")
    parser.add_argument("--again", type=Path, help="predictions of an earlier predicted_ranks.json, measured anew")
    arguments = parser.parse_args()
    assumed = Assumptions(tuple(arguments.paces), arguments.shared, arguments.features, tuple(arguments.factors))
    arms: list[RankedArm] = []
    left_out: list[str] = []
    known = read_predictions(arguments.again) if arguments.again else None
    for folder in arguments.comparisons:
        if known is None:
            options = (arguments.draws, arguments.seed, assumed, arguments.log_seed)
            found, without = ranked(folder, arguments.plain, *options)
        else:
            found, without = measured_again(folder, known, arguments.plain)
        arms += found
        left_out += [f"{folder.name}: {line}" for line in without]
        tables = write(arms, left_out, arguments.plain, arguments.out)  # kept if a later one is stopped
    for table in tables:
        Console(width=160).print(table.rich())
    print(f"written to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
