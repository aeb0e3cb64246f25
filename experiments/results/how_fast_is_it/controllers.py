"""Measures what choosing and observing cost: milliseconds of a step, from ten thousand to a million problems.

    python experiments/results/how_fast_is_it/controllers.py [--problems 10000 100000 1000000] [--steps 7] [--only pros]

The recipes that are recommended come first, each chain with the recipe's options, its batch and its way of filling it,
then every controller with its defaults, 64 groups a step, in a chain in which it has work to do. A step is what a
run asks of a session: batches until the step's is full are proposed, and the commit, in which the chain observes.
"recording" is apart: outcomes are taken and weighed, whatever the number of problems. Rollouts are simulated and not
timed; processor time, since other work on the machine changes that little; the median of the steps after the first,
which shuffles the whole set. "growth" is the exponent by which a step grows with the problems between the two largest
sets: 0 = not at all, 1 = in proportion. In the row "in streaks", GRESO refuses most of what it is offered.

Exits with 1 if a recipe's step takes more than 40 ms with the largest set (a batch of more than 160 groups: 0.25 ms a
group), or another row's more than 50. `--keep` writes controllers.json, from which `make reproduction` writes the
table of the page.
"""

import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from halfway.controllers import CONTROLLERS
from halfway.controllers.beliefs.calibration import RATE
from halfway.controllers.greso import GresoState
from halfway.curriculum import Chain, Problem, ProblemSet, Session, Stream, UserError, chain
from halfway.curriculum.controller import NEEDS
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import load_config
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.scripts import script, script_parser
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.loop_options import FillOptions

RECIPES = {
    "cluster/gsm8k": ("all_four", "frontier_refill", "replay_frontier_epochs"),
    "cluster/bigmath": ("grpo", "all_four", "frontier_refill", "replay_frontier_epochs"),
    "cluster/one_gpu": (),
    "cluster/two_pools": (),
    "cluster/swe_14b": (),
    "methods/prefix_sampling": (),
}
"""What the pages recommend, with the arms of comparisons."""

LIMIT, LIMIT_PER_GROUP, OTHERS_LIMIT = 40.0, 0.25, 50.0
NUM_ROLLOUTS = 8
GENERATED = 10_000
STREAK = 3  # GRESO keeps a problem in such a streak with probability 1/8


@dataclass(frozen=True)
class Row:
    """A chain, and how its steps are filled."""

    name: str
    chain: Chain
    fill: FillOptions
    num_rollouts: int
    limit: float
    in_streaks: bool = False


@script
def main() -> int:
    """Run all rows and print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("--problems", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--only", default="", help="print only the rows whose names contain this")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    console = Console(width=140)
    rows = [row for row in (*recipe_rows(), *default_rows()) if options.only in row.name]
    found: dict[str, Any] = {row.name: {"groups": row.fill.groups, "limit": row.limit} for row in rows}
    for size in options.problems:
        sets: dict[bool, ProblemSet] = {}
        for row in list(rows):
            generated = "generated" in row.chain.claims
            if generated not in sets:
                sets[generated] = problem_set(size, GENERATED if generated else 0)
            try:
                found[row.name][str(size)] = measure(row, sets[generated], options.steps)
            except UserError as error:  # for example a controller whose problems have to belong to one task
                console.print(f"{row.name} is left out: {error}")
                rows.remove(row)
                del found[row.name]
    console.print(table(found))
    if options.keep:
        write_json(Path(__file__).with_suffix(".json"), found)
    largest = str(max(options.problems))
    return int(any(row[largest]["step"] > row["limit"] for row in found.values()))


def recipe_rows() -> Iterator[Row]:
    """The chains of the recipes."""
    for recipe, arms in RECIPES.items():
        config = load_config(REPOSITORY / "experiments" / "recipes" / f"{recipe}.yaml")
        runs = (
            {f"{recipe}: {arm}": config.run(arm, 0) for arm in arms}
            if isinstance(config, ComparisonConfig)
            else {recipe: config}
        )
        for name, run in runs.items():
            limit = max(LIMIT, LIMIT_PER_GROUP * run.fill.groups)
            yield Row(name, run.chain, run.fill, run.rollouts.num_rollouts, limit)


def default_rows() -> Iterator[Row]:
    """Every controller with its defaults; those that attach prefixes go first, filters go last."""
    fill = FillOptions(groups=64)
    for name in CONTROLLERS.names():
        claims = CONTROLLERS.get(name)().claims
        company = (name,) if "problems" in claims else (name, "uniform") if claims else ("uniform", name)
        members = chain(*((member, CONTROLLERS.get(member)()) for member in company))
        yield Row(" + ".join(company), members, fill, NUM_ROLLOUTS, OTHERS_LIMIT)
        if name == "greso":
            name = " + ".join(company) + ", in streaks"
            yield Row(name, members, fill, NUM_ROLLOUTS, OTHERS_LIMIT, in_streaks=True)


def problem_set(size: int, generated: int) -> ProblemSet:
    """Problems with all features that controllers read; a thousand different ones."""
    facts = [_facts(place) for place in range(1000)]
    written = [Problem(f"g{i}", "", "", features={RATE: (i % 99 + 1) / 100}) for i in range(generated)]
    return ProblemSet([Problem(f"p{i}", "", "", features=facts[i % 1000], solution="s") for i in range(size)], written)


def _facts(place: int) -> dict[str, float | str | tuple[float, ...]]:
    weak = place % 50 / 100
    state = tuple(Stream(0, ("state", place)).generator().standard_normal(16).tolist())
    numbers = {"difficulty": place % 100 / 20, "llama8b_solve_rate": 1 - weak, "weak_rate": weak}
    return {**numbers, "strong_rate": weak + 0.4, "category": f"c{place % 20}", "prompt_state": state}


def measure(row: Row, problems: ProblemSet, steps: int) -> dict[str, float]:
    """Median milliseconds of a step's parts, and the rounds that it takes."""
    rollouts = SimulatedRollouts()
    session = Session(problems, row.chain, row.num_rollouts, provides=set(NEEDS))
    if row.in_streaks:
        session.state = {name: _with_streaks(member) for name, member in session.state.items()}
    parts: list[tuple[float, float, float, int]] = []
    carried: Sequence[Any] = ()
    for step in range(1 + steps):
        rollouts.sync(step)
        filling, proposing, recording = Filling.begin(row.fill, carried), 0.0, 0.0
        while (wanted := filling.wanted()) or (session.continues and filling.rounds < row.fill.max_rounds):
            begin = time.process_time()
            tickets = session.next_batch(wanted)
            proposing += time.process_time() - begin
            if not (wanted or tickets):
                break
            requests = [ticket.request for ticket in tickets]
            stored = [request.stored for request in requests if request.stored is not None]
            fresh = [request for request in requests if request.stored is None]
            groups = rollouts.run(fresh, Stream(0).at(step, filling.rounds))
            begin = time.process_time()
            for request, group in zip(fresh, groups, strict=True):
                session.record_group(request.ticket, group)
            filling = filling.add(session.weigh([*session.in_hand(), *stored]))
            recording += time.process_time() - begin
        begin = time.process_time()
        session.commit()
        observing = time.process_time() - begin
        carried = filling.surplus if row.fill.surplus == "carry" else ()
        parts.append((1e3 * proposing, 1e3 * observing, 1e3 * recording, filling.rounds))
    later = parts[1:]
    return {
        "propose": statistics.median(part[0] for part in later),
        "observe": statistics.median(part[1] for part in later),
        "step": statistics.median(part[0] + part[1] for part in later),
        "first": parts[0][0] + parts[0][1],
        "record": statistics.median(part[2] for part in later),
        "rounds": statistics.mean(part[3] for part in later),
    }


def _with_streaks(state: Any) -> Any:
    return replace(state, streaks=state.streaks - STREAK) if isinstance(state, GresoState) else state


def table(found: dict[str, Any]) -> TextTable:
    """The measurements as a table."""
    sizes = sorted({int(size) for row in found.values() for size in row if size.isdigit()})
    names = [f"{size:,}" for size in sizes]
    columns = ("chain", "groups", "rounds", *names, "proposing", "first step", "recording", "growth")
    rows = []
    for name, row in found.items():
        last, steps = row[str(sizes[-1])], [row[str(size)]["step"] for size in sizes]
        growth = math.log(steps[-1] / steps[-2]) / math.log(sizes[-1] / sizes[-2]) if len(sizes) > 1 else math.nan
        numbers = (*steps, last["propose"], last["first"], last["record"])
        cells = [f"{number:.1f}" for number in numbers]
        rows.append((name, str(row["groups"]), f"{last['rounds']:.1f}", *cells, f"{growth:.2f}"))
    return TextTable("Milliseconds of a step, by the number of problems", columns, tuple(rows))


if __name__ == "__main__":
    sys.exit(main())
