"""Measures how often equal arms are called different when they are tuned and compared as `compare` and its report do.

Each contest is simulated from a measured arm (`contest_model`): equal arms are tuned on the arm's own grid by its own
rule, run with as many seeds as were measured, and handed to the functions that make the report's tables. If the sweep
misleads an arm, the arms choose different settings and do differ; such contests count as false alarms too. Every
contest resamples its held-out problems.

The study counts the contests in which

- the contrast of two arms is clear, at equal rollouts, generated tokens and cost;
- a ratio of these two arms' costs to reach a target is clear, on average over targets and measures, and for the worst;
- any contrast of several equal arms with the first arm is clear, and any contrast among all their pairs.

Conversely, and without tuning, it counts how often a difference is clear whose size the reports call "shown with 80 %
power".

    python -m halfway.experiments.studies.nulls.null_contest runs/contest_hard runs/contest runs/contest_easy
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from halfway.curriculum.support.atomic import replacing, write_text
from halfway.experiments.report.analysis.axes import ROLLOUTS, TOKENS, cost_axis
from halfway.experiments.report.analysis.contrasts import contrast_rows, difference
from halfway.experiments.report.analysis.design import Contrast, read_design
from halfway.experiments.report.analysis.reach import cost_to_reach
from halfway.experiments.report.records import Comparison
from halfway.experiments.report.statistics.intervals import Estimate, proportion
from halfway.experiments.report.statistics.multiple import LEVEL, POWER
from halfway.experiments.report.tables.text import TextTable, percent_interval
from halfway.experiments.scripts import script, script_parser
from halfway.experiments.studies.nulls.contest_model import Population, contest, measured, tune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILY = 8
MANY = 4000
DRAWS = 500
"""Number of resamples of the problems for the errors of costs to reach a target, a quarter of what reports use."""
AXES = {axis.name: axis for axis in (ROLLOUTS, TOKENS, cost_axis(1))}
MEASURES = {
    "rollouts": "pair, equal rollouts",
    "tokens": "pair, equal tokens",
    "cost_1": "pair, equal cost",
    "untuned": f"pair, {MANY:,} untuned contests",
    "several": f"{FAMILY - 1} contrasts",
    "pairs": f"all {FAMILY * (FAMILY - 1) // 2} pairs",
    "reach": "cost to reach, mean",
    "reach_worst": "cost to reach, worst",
}


@dataclass(frozen=True, slots=True)
class Power:
    """Results of contests in which one arm truly differs.

    Attributes:
        real: the true difference.
        promised: the difference that the contests' own rows say is shown with 80 % power, on average.
        held: share of the contests in which the difference is clear.
    """

    real: float
    promised: float
    held: Estimate


@dataclass(frozen=True, slots=True)
class Found:
    """Results of the contests simulated from one population.

    Attributes:
        name: the population's name.
        contests: number of contests.
        seeds: number of seeds per arm.
        common: as in `Population`.
        agreed: share of the contests whose first two arms were tuned to the same setting.
        alarms: share of the contests in which something is clear, by the names in `MEASURES`.
        power: results with one true difference, by the number of contrasts.
    """

    name: str
    contests: int
    seeds: int
    common: float
    agreed: float
    alarms: Mapping[str, Estimate]
    power: Mapping[int, Power]


def study(population: Population, contests: int, seed: int = 0) -> Found:
    """Simulate contests of equal arms, and contests in which one arm differs, from one population."""
    generator = np.random.default_rng(seed)
    seeds = len(population.strayed_SE)
    targets = tuple(round(share * population.expected(0.0), 3) for share in (0.5, 0.75, 0.95))
    alarms: dict[str, int] = dict.fromkeys([*AXES, "several", "pairs"], 0)
    reached: dict[str, int] = {}
    agreed = 0
    for _ in range(contests):
        asked = population.with_other_problems(generator)
        settings = tune(asked, FAMILY, generator)
        shifts = [population.cost_of[value] for value in settings]
        agreed += settings[0] == settings[1]
        pair = contest(asked, shifts[:2], seeds, generator, targets)
        for name, axis in AXES.items():
            alarms[name] += any(row.clear for row in contrast_rows(pair.runs, read_design(pair).contrasts, axis))
        for name, clear in clear_ratios(pair).items():
            reached[name] = reached.get(name, 0) + clear
        many = contest(asked, shifts, seeds, generator)
        every = [Contrast(*arms) for arms in combinations(many.arms, 2)]
        for name, family in (("several", read_design(many).contrasts), ("pairs", every)):
            alarms[name] += any(row.clear for row in contrast_rows(many.runs, family, ROLLOUTS))
    shares = {name: share(count, contests) for name, count in alarms.items()}
    shares["untuned"] = untuned(population, seed)
    shares["reach"] = share(sum(reached.values()), contests * len(reached))
    shares["reach_worst"] = share(max(reached.values()), contests)
    held = {arms - 1: power_of(population, arms, contests, generator) for arms in (2, FAMILY)}
    return Found(population.name, contests, seeds, population.common, agreed / contests, shares, held)


def untuned(population: Population, seed: int) -> Estimate:
    """Share of clear contrasts of two untuned arms, over `MANY` contests of which only the end is simulated."""
    generator, seeds, clear = np.random.default_rng([seed, MANY]), range(len(population.strayed_SE)), 0
    for _ in range(MANY):
        asked = population.with_other_problems(generator)
        one, other = (dict(enumerate(ends_SP)) for ends_SP in asked.ends(2, len(seeds), generator))
        p = difference(one, other, seeds).p
        clear += p is not None and p < LEVEL
    return share(clear, MANY)


def share(count: int, total: int) -> Estimate:
    found = proportion(count, total)
    assert found is not None
    return found


def clear_ratios(comparison: Comparison) -> dict[str, bool]:
    """Whether the ratio of the second arm's cost to the first's is called clear, by target and measure."""
    found: dict[str, bool] = {}
    for reach in cost_to_reach(comparison.runs, read_design(comparison), DRAWS):
        [row] = [row for row in reach.rows if row.arm != reach.baseline]
        where = "the baseline's end" if reach.kind == "baseline" else f"{reach.target:g}"
        found |= {f"{where}, {axis}": spent.clear for axis, spent in row.spent.items() if axis != "seconds"}
    return found


def power_of(population: Population, arms: int, contests: int, generator: np.random.Generator) -> Power:
    """Simulate contests in which one arm is worse and the others are equal, and count how often this is clear.

    The size of the difference is the one that rows say they can show, which depends on their standard errors. These
    grow with a true difference, since its effect varies between problems. The size is therefore found in two smaller
    rounds: equal arms give a first size, and contests with that difference give the final one.
    """
    seeds, size = len(population.strayed_SE), 0.0
    for tries in (contests // 5 + 1, contests // 5 + 1, contests):
        shift, sizes, clear = shift_of(population.expected, size), [], 0
        for _ in range(tries):
            made = contest(
                population.with_other_problems(generator), [0.0, shift, *[0.0] * (arms - 2)], seeds, generator
            )
            row, *_ = contrast_rows(made.runs, read_design(made).contrasts, ROLLOUTS)
            sizes.append(row.smallest_shown or 0.0)
            clear += row.clear
        real, size = size, fmean(sizes)
    return Power(real, size, share(clear, contests))


def shift_of(expected: Callable[[float], float], size: float) -> float:
    """The shift that lowers the expected final score by `size`; lowering it is always possible, unlike raising it."""
    from scipy.optimize import brentq

    return float(brentq(lambda shift: expected(0.0) - expected(shift) - size, -20.0, 0.0)) if size else 0.0


def null_table(found: Sequence[Found]) -> TextTable:
    """Shares of false alarms, one row per population."""
    rows = [
        (
            each.name,
            *(percent_interval(each.alarms[name]) for name in MEASURES),
            f"{each.agreed:.0%}",
            f"{each.common:.2f}",
        )
        for each in found
    ]
    caption = (
        f"Of {found[0].contests} simulated contests of equal arms, each tuned and run with {found[0].seeds} seeds: "
        "share in which something was called clear; 95 % Wilson intervals. Alike: pairs that were tuned to the same "
        "setting; the others do differ. Common: share of the variance over seeds that arms have in common. Cost to "
        "reach: of the ratio for one target by one measure, three fixed targets and the baseline's end."
    )
    return TextTable("A null stays null", ("arm", *MEASURES.values(), "alike", "common"), tuple(rows), caption)


def power_table(found: Sequence[Found]) -> TextTable:
    """Promised and actual power, one row per population and number of contrasts."""
    rows = [
        (each.name, str(number), f"{power.promised:.3f}", f"{power.real:.3f}", percent_interval(power.held))
        for each in found
        for number, power in each.power.items()
    ]
    caption = (
        f"Promised: mean over simulated reports of the difference that a row says is shown with {POWER:.0%} power. "
        "Held: share of contests in which one arm, worse by the real difference, is called clear; with several "
        "contrasts the others are nulls. Without tuning."
    )
    return TextTable("Power", ("arm", "contrasts", "promised", "real", "held"), tuple(rows), caption)


def figure(found: Sequence[Found]) -> "Figure":
    """The shares in both tables as points with intervals, beside the promised 5 % and 80 %."""
    from matplotlib.figure import Figure

    from halfway.experiments.report.figures.style import INK, MUTED, PALETTE, percent_axis

    drawn = Figure(figsize=(12.5, 3.8), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=[3, 1])
    powers = [f"{number} contrast{'s' * (number > 1)}" for number in found[0].power]
    for ax, names, values, goal in (
        (left, list(MEASURES.values()), [[each.alarms[name] for name in MEASURES] for each in found], LEVEL),
        (right, powers, [[power.held for power in each.power.values()] for each in found], POWER),
    ):
        ax.axhline(goal, color=MUTED, linewidth=1, linestyle="--")
        for i, (each, own) in enumerate(zip(found, values, strict=True)):
            x_M = np.arange(len(names)) + (i - (len(found) - 1) / 2) * 0.7 / len(found)
            ends = [(value.value - (value.low or 0), (value.high or 0) - value.value) for value in own]
            height_M = [value.value for value in own]
            ax.errorbar(x_M, height_M, np.transpose(ends), fmt="o", markersize=4, color=PALETTE[i], label=each.name)
        ax.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names], color=INK)
        ax.grid(axis="x", visible=False)
        ax.set_ylim(bottom=0)
        percent_axis(ax)
    left.set_title("Equal arms called different")
    right.set_title("A promised difference called clear")
    right.set_ylim(0, 1)
    drawn.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return drawn


@script
def main() -> int:
    """Simulate every population's contests, writing the results after each, and print the tables."""
    parser = script_parser(__doc__)
    parser.add_argument("comparisons", type=Path, nargs="+", help="folders of tuned comparisons, with their runs")
    parser.add_argument("--arms", nargs="+", default=["grpo"], help="whose spread the simulated arms have")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--contests", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs/null_contest"))
    options = parser.parse_args()
    populations = [measured(folder, arm) for folder in options.comparisons for arm in options.arms]
    found: list[Found] = []
    for population in populations:
        found.append(study(population, options.contests, options.seed))
        write(found, options.out)
        print(f"{population.name}: written to {options.out}", file=sys.stderr)
    for table in (null_table(found), power_table(found)):
        Console(width=160).print(table.rich())
    return 0


def write(found: Sequence[Found], folder: Path) -> None:
    """Write the tables, the numbers and the figure of the results so far into a folder."""
    from matplotlib import rc_context

    from halfway.experiments.report.figures.style import STYLE

    folder.mkdir(parents=True, exist_ok=True)
    tables = (null_table(found), power_table(found))
    write_text(folder / "null_contest.md", "\n".join(table.markdown() for table in tables))
    write_text(folder / "null_contest.json", json.dumps([asdict(each) for each in found], indent=1) + "\n")
    with rc_context(STYLE), replacing(folder / "null_contest.png") as temporary:
        figure(found).savefig(temporary, dpi=130, format="png")


if __name__ == "__main__":
    sys.exit(main())
