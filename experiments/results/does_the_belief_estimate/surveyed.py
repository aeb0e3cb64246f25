"""Measures how much a survey improves frontier's belief before the first step, and for how long, in recorded runs:

    halfway compare experiments/recipes/compare/choosing_hard.yaml --arms uniform,signal_remembered
    python experiments/results/does_the_belief_estimate/surveyed.py runs/choosing_hard

The starting policy tries every problem 40 times: 8 attempts are the survey's, or fewer of them, 16 an oracle's, and 16
judge. Prints two tables and writes surveyed.json beside this file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import comb
from scipy.stats import spearmanr

from halfway.controllers.frontier import SURVEYED, Frontier, surveyed_counts
from halfway.curriculum import Plan, Problem, ProblemSet, Request, Stream
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.report.records import load_run_records
from halfway.experiments.results.does_the_belief_estimate.next_visit import Skilled, foresee, score, visits
from halfway.experiments.running.build import build_problems, load_starting_policy
from halfway.experiments.scripts import script, script_parser
from halfway.experiments.survey.survey import build_collector
from halfway.trainers.prompt_states import FEATURE, with_prompt_states

Floats = NDArray[np.float64]
Passes = NDArray[np.bool_]

SURVEY, ORACLE, JUDGE = slice(0, 8), slice(8, 24), slice(24, 40)
GROUPS, SIZE, DRAWS = 16, 8, 100
BANDS = ((0, 10), (10, 20), (20, 40), (40, 80))
BELIEF = Frontier((FEATURE,), candidates=None, prior="surveyed")
SURVEYS: Mapping[str, tuple[int, float]] = {  # attempts at a problem, and the share of the problems that are tried
    "no survey": (0, 0.0),
    "1 attempt": (1, 1.0),
    "2 attempts": (2, 1.0),
    "4 attempts": (4, 1.0),
    "8 attempts": (8, 1.0),
    "4 attempts at half": (4, 0.5),
    "4 attempts at a quarter": (4, 0.25),
    "4 attempts at an eighth": (4, 0.125),
}


def attempts(folder: Path) -> tuple[ProblemSet, Passes]:
    """A run's problems, and 40 attempts of its starting policy at each of them, (P, 40)."""
    config = load_run_config(folder / "config.yaml")
    problems = with_prompt_states(ProblemSet(build_problems(config).trained), lambda: load_starting_policy(config))
    requests = [Request(problem, JUDGE.stop) for problem in problems]
    groups = build_collector(config).run(requests, Stream(0).at("attempts"))
    return problems, np.array([[rollout.success for rollout in group.rollouts] for group in groups])


def with_survey(problems: ProblemSet, passed_PN: Passes, tries: int, share: float) -> ProblemSet:
    """The problems with the columns of a survey; a share of them, drawn at random, was tried."""
    tried_P = np.zeros(len(problems), np.int64)
    tried_P[np.random.default_rng(0).permutation(len(problems))[: round(share * len(problems))]] = tries
    counts_P = [int(row[:number].sum()) for row, number in zip(passed_PN[:, SURVEY], tried_P, strict=True)]

    def add_survey(problem: Problem, passed: int, tried: int) -> Problem:
        return structs.replace(
            problem, features={**problem.features, **dict(zip(SURVEYED, (passed, tried), strict=True))}
        )

    return ProblemSet([add_survey(*each) for each in zip(problems, counts_P, tried_P.tolist(), strict=True)])


def mixed_chance(passed_PN: Passes) -> Floats:
    """The chance that a group of 8 is mixed, without bias: 1 - C(n - k, 8) / C(n, 8) - C(k, 8) / C(n, 8), (P,)."""
    number, passed_P = passed_PN.shape[1], passed_PN.sum(1)
    chance_P: Floats = 1 - (comb(number - passed_P, SIZE) + comb(passed_P, SIZE)) / comb(number, SIZE)
    return chance_P


def first_batch(controller: Frontier, problems: ProblemSet, rates_P: Floats, mixed_P: Floats) -> float:
    """The share of the first batch's groups that are mixed, expected over 100 batches."""
    state = controller.inform(controller.init(problems), rates_P)
    worth = []
    for draw in range(DRAWS):
        plan, _ = controller.propose(Plan(0, GROUPS, SIZE), state, Stream(draw))
        worth += [float(mixed_P[problems.position(request.problem.id)]) for request in plan.requests]
    return float(np.mean(worth))


def known_at_first(problems: ProblemSet, passed_PN: Passes) -> dict[str, dict[str, float]]:
    """By survey: its rollouts, the belief's distance and rank correlation, and the first batch's mixed share."""
    judged_PN = passed_PN[:, JUDGE]
    mixed_P, judged_P = mixed_chance(judged_PN), judged_PN.sum(1).astype(np.float64)
    number_P = np.full(len(problems), float(judged_PN.shape[1]))
    oracle_P: Floats = passed_PN[:, ORACLE].mean(1)
    found = {"uniform choice": {"rollouts": 0.0, "mixed": float(mixed_P.mean())}}
    for name, (tries, share) in SURVEYS.items():
        told = with_survey(problems, passed_PN, tries, share)
        state = BELIEF.init(told)
        expected_P = BELIEF._average(lambda rate: rate, state, np.arange(len(told)))
        scored = score(expected_P, judged_P, number_P)
        found[name] = {
            "rollouts": float(surveyed_counts(told)[1].sum()),
            "beyond": scored.beyond,
            "rank": scored.rank,
            "mixed": first_batch(BELIEF, told, oracle_P, mixed_P),
        }
    measured = replace(BELIEF, prior="flat", rates="measured")
    scored = score(oracle_P, judged_P, number_P)
    found["measured, 16 attempts"] = {
        "rollouts": 16.0 * len(problems),
        "beyond": scored.beyond,
        "rank": float(spearmanr(oracle_P, judged_P).statistic),
        "mixed": first_batch(measured, problems, oracle_P, mixed_P),
    }
    return found


def along_a_run(folder: Path, problems: ProblemSet, passed_PN: Passes) -> Iterator[tuple[str, dict[str, float]]]:
    """By survey: how far the belief is from the groups of each band of steps."""
    seen = visits(folder, problems)
    for name, (tries, share) in SURVEYS.items():
        state = BELIEF.init(with_survey(problems, passed_PN, tries, share))
        belief = Skilled(BELIEF.model, BELIEF._design(problems))
        belief.skills = state.skills
        expected_G = foresee(belief, seen)
        inside = {band: (band[0] <= seen.step_G) & (seen.step_G < band[1]) for band in BANDS}
        yield (
            name,
            {
                f"steps {band[0]} to {band[1] - 1}": score(expected_G[at], seen.passed_G[at], seen.tried_G[at]).beyond
                for band, at in inside.items()
            },
        )


def mixed_shares(folder: Path) -> list[float]:
    """The share of mixed groups of each step of a run."""
    groups = [group for group in load_run_records(folder).groups if group.scored]
    steps = np.array([group.step for group in groups])
    mixed = np.array([not group.zero_variance for group in groups])
    return [float(mixed[steps == step].mean()) for step in range(steps.max() + 1)]


def mean_of(tables: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Means over runs or instances."""
    first = tables[0]
    return {
        name: {key: round(float(np.mean([table[name][key] for table in tables])), 4) for key in first[name]}
        for name in first
    }


def show(title: str, found: Mapping[str, Mapping[str, float]]) -> None:
    columns = list(next(reversed(list(found.values()))))
    table = Table("", *columns, title=title)
    for name, row in found.items():
        table.add_row(name, *(f"{row[key]:.3f}" if key in row else "-" for key in columns))
    Console(width=140).print(table)


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder of the comparison")
    parser.add_argument("--arms", nargs="+", default=["uniform", "signal_remembered"], help="arms to predict")
    arguments = parser.parse_args()
    finished = {arm: finished_seeds(arguments.folder / arm) for arm in arguments.arms}
    seeds = sorted(set.intersection(*map(set, finished.values())))
    tried: dict[str, tuple[ProblemSet, Passes]] = {}
    first, shares = [], {arm: [mixed_shares(arguments.folder / arm / seed) for seed in seeds] for arm in arguments.arms}
    later: dict[str, list[dict[str, dict[str, float]]]] = {arm: [] for arm in arguments.arms}
    for seed in seeds:
        for arm in arguments.arms:
            folder = arguments.folder / arm / seed
            model = load_run_config(folder / "config.yaml").model.path
            if model not in tried:
                tried[model] = attempts(folder)
                first.append(known_at_first(*tried[model]))
            later[arm].append(dict(along_a_run(folder, *tried[model])))
    tables = {"first step": mean_of(first), **{f"foreseen, {arm}": mean_of(found) for arm, found in later.items()}}
    for title, table in tables.items():
        show(title, table)
    mixed = {arm: np.mean(found, axis=0).round(4).tolist() for arm, found in shares.items()}
    written = {"seeds": seeds, "instances": len(tried), **tables, "mixed by step": mixed}
    write_json(Path(__file__).with_suffix(".json"), written)


def finished_seeds(arm: Path) -> list[str]:
    return [path.parent.name for path in sorted(arm.glob("*/status.json")) if load_run_records(path.parent).finished]


if __name__ == "__main__":
    main()
