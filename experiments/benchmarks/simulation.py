"""Measures what a simulated run costs: a chain on a learner with many problems, in wall-clock and CPU seconds.

python -m halfway.experiments.benchmarks.simulation --problems 1000000 --steps 1000
"""

import time

import numpy as np

from halfway.curriculum import Problem, ProblemSet
from halfway.curriculum.simulation.skills import Course, Dynamics, SkillLearner, bumps
from halfway.experiments.advice.candidates import Candidate
from halfway.experiments.advice.play import Setting, play
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.loop.options import FillOptions

SIZE = 8


@script
def main() -> None:
    """Build the problems and play the chain, printing a line for each."""
    parser = script_parser(__doc__)
    parser.add_argument("--problems", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=256)
    parser.add_argument("--controllers", nargs="+", default=["uniform"])
    arguments = parser.parse_args()
    clocks = time.perf_counter(), time.process_time()
    ease_P = np.random.default_rng(0).normal(-1, 3, arguments.problems)
    place_P = np.argsort(np.argsort(ease_P)) / arguments.problems
    learner = SkillLearner(Course.of(ease_P, bumps(place_P, 8)), Dynamics(rate=0.01))
    problems = ProblemSet([Problem(f"p{i}", "", "") for i in range(arguments.problems)])
    clocks = said(f"{arguments.problems:,} problems made", clocks)
    setting = Setting(SIZE, 0, arguments.steps * arguments.groups * SIZE, points=2)
    controller = Candidate("played", tuple(arguments.controllers)).chain()
    played = play(controller, problems, learner, FillOptions(groups=arguments.groups), setting)
    said(
        f"{played.steps:,} steps of {arguments.groups} groups of {SIZE} played, pass rate "
        f"{played.scores[0]:.3f} to {played.scores[-1]:.3f}",
        clocks,
    )


def said(what: str, since: tuple[float, float]) -> tuple[float, float]:
    """Print how long something took, and return the clocks for what comes next."""
    now = time.perf_counter(), time.process_time()
    print(f"{what}: {now[0] - since[0]:.1f} s, {now[1] - since[1]:.1f} s of CPU")
    return now


if __name__ == "__main__":
    main()
