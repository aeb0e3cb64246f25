"""What controllers cost: milliseconds that `propose` and `observe` take in a step, for a set of many problems.

    python -m experiments.benchmarks.controllers [--problems 1000000] [--groups 64] [--steps 30]

Rollouts are simulated and not timed. Controllers stand in chains in which they have work to do. In the rows "every
problem in a streak" GRESO refuses most of what it is offered, so that a plan takes many passes. The first step, which
shuffles the whole set, is in the column "slowest". Exits with 1 if a median is above the limit.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from controllers import CONTROLLERS
from controllers.greso import GresoState
from curriculum.controller import Chain, chain, propose_until_full
from curriculum.plan import Plan
from curriculum.problems import Problem, ProblemSet
from curriculum.simulator import SimulatedRollouts
from curriculum.states import save_state
from curriculum.streams import Stream

LIMIT = 50.0
NUM_ROLLOUTS = 8
STREAK = 3  # kept with probability 1/8


def main() -> int:
    """Run all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    nothing: dict[str, float | str] = {}
    problems = ProblemSet([Problem(f"p{i}", "", "", features=nothing) for i in range(arguments.problems)])
    title = (
        f"{arguments.problems:,} problems, {arguments.groups} groups of {NUM_ROLLOUTS} a step, {arguments.steps} steps"
    )
    table = Table("chain", "propose ms", "observe ms", "both, median", "both, slowest", "checkpoint MB", title=title)
    medians = []
    for name, members, in_streak in _rows():
        times = measure(members, problems, arguments.groups, arguments.steps, in_streak)
        propose, observe, both = ([sum(t[i] for i in part) for t in times[0]] for part in ((0,), (1,), (0, 1)))
        medians.append(statistics.median(both))
        cells = [statistics.median(propose), statistics.median(observe), medians[-1], max(both), times[1]]
        table.add_row(name, *(f"{value:.2f}" for value in cells))
    Console(width=120).print(table)
    return int(max(medians) > LIMIT)


def measure(
    members: Chain, problems: ProblemSet, num_groups: int, steps: int, in_streak: bool
) -> tuple[list[tuple[float, float]], float]:
    """Milliseconds in propose and in observe for each step, and the size of the saved state in MB."""
    rollouts, state, times = SimulatedRollouts(), members.init(problems), []
    if in_streak:
        state = {name: _with_streaks(member) for name, member in state.items()}
    for step in range(steps):
        stream = Stream(0).at(step)
        start = time.perf_counter()
        plan, state = propose_until_full(members, Plan(step, num_groups, NUM_ROLLOUTS), state, stream.at("propose"))
        proposed = time.perf_counter() - start
        groups = rollouts.run(plan.requests, stream.at("rollout"), step)
        start = time.perf_counter()
        state = members.observe(state, groups, step)
        times.append((1e3 * proposed, 1e3 * (time.perf_counter() - start)))
    return times, len(json.dumps(save_state(state))) / 1e6


def _rows() -> list[tuple[str, Chain, bool]]:
    names = [_with_company(name) for name in CONTROLLERS.names()] + [("prefix_sampling", "uniform", "greso")]
    rows = [(" + ".join(row), chain(*((name, CONTROLLERS.get(name)()) for name in row)), False) for row in names]
    return rows + [(f"{name}, every problem in a streak", row, True) for name, row, _ in rows if "greso" in name]


def _with_company(name: str) -> tuple[str, ...]:
    """A chain in which the controller has work to do: who attaches prefixes goes first, who only filters goes last."""
    claims = CONTROLLERS.get(name)().claims
    return (name,) if "problems" in claims else (name, "uniform") if claims else ("uniform", name)


def _with_streaks(state: Any) -> Any:
    return replace(state, streaks=state.streaks - STREAK) if isinstance(state, GresoState) else state


if __name__ == "__main__":
    sys.exit(main())
