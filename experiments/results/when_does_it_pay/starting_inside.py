"""Measures what prefixes and hints can gain in one step: the share of mixed groups at four points of a run of plain
GRPO.

    halfway compare RECIPE --arms uniform seeds=[800,801] checkpoint.every=20 checkpoint.keep=4 name=inside
    python experiments/results/when_does_it_pay/starting_inside.py hard=runs/inside/uniform/seed-800,...

RECIPE is choosing_hard.yaml or its like; 20 is a quarter of its steps.

At each point (the starting policy, then all checkpoints but the last) the policy tries 128 problems with a group of 8,
as a step would; `problems.also` has the share of them that it has of the training set. Of skewed groups, one rollout of
the rarer outcome is cut at seven ratios; solutions are cut at as many. Every cut, and every problem alone, is tried 32
times: 16 attempts choose, the other 16 judge what was chosen.
Writes starting_inside.json beside this file, of which `make reproduction` makes the page's table.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.controllers.prefixes.control_loops import Saved, save_one, side_of
from halfway.curriculum import Group, Hint, Origin, Problem, Request, Stream, hint_of
from halfway.curriculum.support.atomic import read_json, write_json
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.report.text_tables import NONE, TextTable
from halfway.experiments.results.does_the_belief_estimate.surveyed import mixed_chance
from halfway.experiments.running.build import build_problems
from halfway.experiments.scripts import script, script_parser
from halfway.experiments.survey.survey import build_collector

Floats = NDArray[np.float64]

PROBLEMS, SIZE, HALF = 128, 8, 16
RATIOS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
PREFIX_RATIO, HINT_RATIO = 0.25, 0.5
"""What a ratio starts from in `prefix_sampling`, and the share of the solution that GHPO gives."""


@script
def main() -> int:
    """Measure every kind that is named, keep the others, and write."""
    parser = script_parser(__doc__)
    parser.add_argument("kinds", nargs="+", metavar="KIND=FOLDER,FOLDER", help="kind of data, and its runs")
    path = Path(__file__).with_suffix(".json")
    found = read_json(path, "remove it") if path.exists() else {}
    for word in parser.parse_args().kinds:
        kind, _, folders = word.partition("=")
        runs = [list(measure(Path(folder))) for folder in folders.split(",")]
        found[kind] = {"runs": len(runs), "points": [mean_of(points) for points in zip(*runs, strict=True)]}
        write_json(path, found)
    return 0


def measure(folder: Path) -> Iterator[dict[str, float]]:
    """The shares of mixed groups at each point of a run, by what the groups start from."""
    config = load_run_config(folder / "config.yaml")
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    policies = [Path(config.model.path), *(each / "policy" for each in checkpoints[:-1])]
    steps = [0, *(int(each.name.partition("-")[2]) for each in checkpoints[:-1])]
    problems = some_of(build_problems(config).trained, config.problems.train)
    for step, policy in zip(steps, policies, strict=True):
        collector = build_collector(replace(config, model=replace(config.model, path=str(policy))))
        stream = Stream(config.seed).at("starting inside", step)
        groups = collector.run([Request(problem, SIZE) for problem in problems], stream.at("step"))
        cuts = [cut for group in groups for cut in (prefix_cuts(group), hint_cuts(group)) if cut]
        requests = [Request(problem, 2 * HALF) for problem in problems]
        requests += [request for cut in cuts for request in cut]
        tried = collector.run(requests, stream.at("attempts"))
        passed_RN = np.array([[rollout.success for rollout in group.rollouts] for group in tried])
        yield {"step": float(step), **shares(groups, cuts, mixed_chances(passed_RN))}


def some_of(problems: Sequence[Problem], own: int | None) -> Sequence[Problem]:
    """128 problems: the first of the source and of `problems.also`, which follow them, by their shares.

    Args:
        own: number of the source's; None = all.
    """
    own = own or len(problems)
    first = round(PROBLEMS * own / len(problems))
    return (*problems[:first], *problems[own:][: PROBLEMS - first])


def prefix_cuts(group: Group) -> list[Request]:
    """A skewed group's rollout of the rarer outcome, cut at every ratio; none if there is no such rollout."""
    side = side_of(group.num_passed, group.size)
    saved = save_one(group, side == "hard", 0) if side else None
    if not isinstance(saved, Saved):
        return []
    lengths = [min(max(int(ratio * saved.length), 1), saved.length - 1) for ratio in RATIOS]
    return [Request(group.request.problem, 2 * HALF, Origin.PREFIX, saved.prefix(length)) for length in lengths]


def hint_cuts(group: Group) -> list[Request]:
    """The solution of a problem that nobody passed, cut at every ratio; none for other groups."""
    problem = group.request.problem
    if group.num_passed or not problem.solution:
        return []
    hints: list[Hint] = [hint_of(problem, max(1, int(ratio * len(problem.solution)))) for ratio in RATIOS]
    return [Request(problem, 2 * HALF, Origin.HINTED, hint=hint) for hint in hints]


def mixed_chances(passed_RN: NDArray[np.bool_]) -> Floats:
    """The chance that a group of 8 is mixed, from the first and from the last 16 attempts, (R, 2)."""
    return np.stack([mixed_chance(passed_RN[:, :HALF]), mixed_chance(passed_RN[:, HALF:])], axis=1)


def shares(groups: Sequence[Group], cuts: Sequence[Sequence[Request]], chances_RH: Floats) -> dict[str, float]:
    """The expected share of mixed groups, by what the groups start from and how that was chosen."""
    alone_PH, cut_CRH = chances_RH[: len(groups)], chances_RH[len(groups) :].reshape(-1, len(RATIOS), 2)
    place = {group.request.problem.id: at for at, group in enumerate(groups)}
    best_half = np.argsort(-alone_PH[:, 0], kind="stable")[: len(groups) // 2]
    found = {"any problem": alone_PH.mean(), "the better half": alone_PH[best_half, 1].mean()}
    for name, origin, ratio in (("prefixes", Origin.PREFIX, PREFIX_RATIO), ("hints", Origin.HINTED, HINT_RATIO)):
        own = [at for at, cut in enumerate(cuts) if cut[0].origin is origin]
        found[f"{name}: number"] = float(len(own))
        if own:
            own_CRH, parents = cut_CRH[own], [place[cuts[at][0].problem.id] for at in own]
            ends = np.array([bool(prefix and prefix.parent_success) for prefix in (cuts[at][0].prefix for at in own)])
            one = np.where(ends, *(best_ratio(own_CRH[ends == end]) for end in (True, False)))
            each = own_CRH[:, :, 0].argmax(1)
            found[f"{name}: their problems alone"] = alone_PH[parents].mean()
            found[f"{name}: ratio as published"] = own_CRH[:, RATIOS.index(ratio)].mean()
            found[f"{name}: best one ratio"] = own_CRH[np.arange(len(own)), one, 1].mean()
            found[f"{name}: best ratio of each"] = own_CRH[np.arange(len(own)), each, 1].mean()
    return {name: round(float(value), 4) for name, value in found.items()}


def best_ratio(own_CRH: Floats) -> int:
    """The place of the ratio that mixes most groups; the first of several, or of none."""
    return int(own_CRH[:, :, 0].sum(0).argmax())


def mean_of(points: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean over runs of what each has; the numbers of cuts are added."""
    names = dict.fromkeys(name for point in points for name in point)
    found = {name: [point[name] for point in points if name in point] for name in names}
    return {name: round(sum(v) if "number" in name else float(np.mean(v)), 4) for name, v in found.items()}


COLUMNS = {
    "any problem": "any problem",
    "the better half": "the better half, known",
    "prefixes: their problems alone": "skewed problems, fresh",
    "prefixes: ratio as published": "prefixes, 1/4",
    "prefixes: best one ratio": "prefixes, one known ratio a side",
    "prefixes: best ratio of each": "prefixes, each its known ratio",
    "hints: their problems alone": "failed problems, fresh",
    "hints: ratio as published": "hints, 1/2",
    "hints: best one ratio": "hints, one known ratio",
    "hints: best ratio of each": "hints, each its known ratio",
}


def starting_inside_table(folder: Path) -> TextTable:
    """Shares of mixed groups by data and step."""
    found: dict[str, Any] = read_json(folder / "starting_inside.json", "run starting_inside.py")
    rows = [
        (kind, f"{point['step']:.0f}", *(f"{point[name]:.0%}" if name in point else NONE for name in COLUMNS))
        for kind, entry in found.items()
        for point in entry["points"]
    ]
    runs = ", ".join(f"{kind} {entry['runs']}" for kind, entry in found.items())
    notes = (
        "Expected share of groups of 8 that are mixed, in one step of plain GRPO's policy. Prefixes start from one "
        "rollout of each skewed group, hints from the solution of each problem that all eight rollouts failed. A known "
        "rate is that of 16 attempts, which no trainer has; 16 others judge what it chose. Runs of each kind: "
        f"{runs}."
    )
    return TextTable("What prefixes and hints can give", ("data", "step", *COLUMNS.values()), tuple(rows), notes)


if __name__ == "__main__":
    sys.exit(main())
