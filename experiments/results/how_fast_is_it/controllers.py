"""Measures what controllers cost: milliseconds per step for many problems.

    python experiments/results/how_fast_is_it/controllers.py [--problems 1000000] [--groups 64] [--steps 30]

The table shows processor time, which other work on the machine changes little; rollouts are simulated and not timed.
Each controller is in a chain in which it has work to do. In the rows "every problem in a streak", GRESO refuses most of
what it is offered, so that a plan takes many passes. The first step, which shuffles the whole set, appears in the
column "slowest". What share of a training step that is, every comparison's report says in its column "controllers".

Exits with 1 if a median is above 50 ms.
"""

import json
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from halfway.controllers import CONTROLLERS
from halfway.controllers.greso import GresoState
from halfway.curriculum import (
    Chain,
    Plan,
    Problem,
    ProblemSet,
    Stream,
    UserError,
    chain,
    propose_until_full,
    save_state,
)
from halfway.experiments.scripts import script, script_parser
from halfway.testing.simulator import SimulatedRollouts

LIMIT = 50.0
NUM_ROLLOUTS = 8
STREAK = 3  # GRESO keeps a problem in such a streak with probability 1/8


@script
def main() -> int:
    """Run all rows and print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("--problems", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    console = Console(width=120)
    return int(large_set(console, arguments.problems, arguments.groups, arguments.steps) > LIMIT)


def large_set(console: Console, num_problems: int, num_groups: int, steps: int) -> float:
    """Print the table, and return the largest median in milliseconds."""
    facts = [_facts(i) for i in range(100)]
    problems = ProblemSet([Problem(f"p{i}", "", "", features=facts[i % 100]) for i in range(num_problems)])
    title = f"{num_problems:,} problems, {num_groups} groups of {NUM_ROLLOUTS} a step, {steps} steps"
    table = Table("chain", "propose ms", "observe ms", "both, median", "both, slowest", "checkpoint MB", title=title)
    medians: list[float] = []
    for name, members, in_streak in _rows():
        try:
            times = measure(members, problems, num_groups, steps, in_streak)
        except UserError as error:  # for example a controller whose problems have to belong to one task
            console.print(f"{name} is left out: {error}")
            continue
        propose, observe, both = ([sum(t[i] for i in part) for t in times[0]] for part in ((0,), (1,), (0, 1)))
        medians.append(statistics.median(both))
        cells = [statistics.median(propose), statistics.median(observe), medians[-1], max(both), times[1]]
        table.add_row(name, *(f"{value:.2f}" for value in cells))
    console.print(table)
    return max(medians)


def measure(
    members: Chain, problems: ProblemSet, num_groups: int, steps: int, in_streak: bool
) -> tuple[list[tuple[float, float]], float]:
    """Milliseconds in propose and in observe for each step, and the size of the saved state in MB."""
    rollouts, state, times = SimulatedRollouts(), members.init(problems), []
    if in_streak:
        state = {name: _with_streaks(member) for name, member in state.items()}
    for step in range(steps):
        rollouts.sync(step)
        stream = Stream(0).at(step)
        start = time.process_time()
        plan, state = propose_until_full(members, Plan(step, num_groups, NUM_ROLLOUTS), state, stream.at("propose"))
        proposed = time.process_time() - start
        groups = rollouts.run(plan.requests, stream.at("rollout"))
        start = time.process_time()
        state = members.observe(state, groups, step)
        times.append((1e3 * proposed, 1e3 * (time.process_time() - start)))
    return times, len(json.dumps(save_state(state))) / 1e6


def _rows() -> list[tuple[str, Chain, bool]]:
    names = [_with_company(name) for name in CONTROLLERS.names()] + [("prefix_sampling", "uniform", "greso")]
    rows = [(" + ".join(row), chain(*((name, CONTROLLERS.get(name)()) for name in row)), False) for row in names]
    return rows + [(f"{name}, every problem in a streak", row, True) for name, row, _ in rows if "greso" in name]


def _with_company(name: str) -> tuple[str, ...]:
    """A chain in which the controller has work to do: controllers that attach prefixes go first, filters go last."""
    claims = CONTROLLERS.get(name)().claims
    return (name,) if "problems" in claims else (name, "uniform") if claims else ("uniform", name)


def _facts(place: int) -> dict[str, float | str]:
    """The features that controllers read, for the problem at this position."""
    weak = place % 50 / 100
    return {"category": f"c{place % 20}", "difficulty": place / 20, "weak_rate": weak, "strong_rate": weak + 0.4}


def _with_streaks(state: Any) -> Any:
    return replace(state, streaks=state.streaks - STREAK) if isinstance(state, GresoState) else state


if __name__ == "__main__":
    sys.exit(main())
