"""Measures how well beliefs predict a problem's next group, on runs whose problems none or one of them chose.

    halfway compare experiments/recipes/compare/verdict_hard.yaml name=hard --arms grpo_epochs,frontier_epochs \\
        --seeds 700 701 tune=null base.learner.lr=6e-4
    python experiments/results/does_the_belief_estimate/next_visit.py hard=runs/hard middle=runs/middle ...

Every belief sees the same outcomes in the same order, and foresees the groups of a step before it sees them. Prints a
table and writes next_visit.json beside this file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata

from halfway.controllers.beliefs.shared_skills import SkillModel, design, integrate
from halfway.curriculum import ProblemSet
from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.report.records import read_jsonl
from halfway.experiments.running.build import build_problems, load_starting_policy
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.prompt_states import FEATURE, with_prompt_states

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


class Belief(Protocol):
    """Foresees pass rates at a step, and learns from the groups of a step."""

    def rates(self, places_G: Positions, step: int) -> Floats: ...

    def learn(self, places_G: Positions, passed_G: Floats, tried_G: Floats, step: int) -> None: ...


@dataclass
class Skilled:
    """A `SkillModel` at work."""

    model: SkillModel
    x_PD: Floats

    def __post_init__(self) -> None:
        self.skills, self.learnt = self.model.init(self.x_PD.shape[1], len(self.x_PD)), 0

    def rates(self, places_G: Positions, step: int) -> Floats:
        skills = self.model.wander(self.skills, step - self.learnt)
        return integrate(lambda rate: rate, *self.model.logits(skills, self.x_PD, places_G))

    def learn(self, places_G: Positions, passed_G: Floats, tried_G: Floats, step: int) -> None:
        skills = self.model.wander(self.skills, step - self.learnt)
        self.skills, self.learnt = self.model.learn(skills, self.x_PD, places_G, passed_G, tried_G), step


@dataclass
class Beta:
    """A Beta posterior per problem whose counts lose a share of their weight in every step; 0 = the last group alone.

    Attributes:
        prior: pseudo-counts, spent on the mean rate of the latest 128 groups.
    """

    number: int
    kept: float
    prior: float
    recent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.passed_P, self.tried_P, self.step = np.zeros(self.number), np.zeros(self.number), 0

    def rates(self, places_G: Positions, step: int) -> Floats:
        faded = self.kept ** (step - self.step) if self.kept else 1.0
        passed_G, tried_G = faded * self.passed_P[places_G], faded * self.tried_P[places_G]
        mean = float(np.mean(self.recent[-128:])) if self.recent else 0.5
        rates_G: Floats = (passed_G + self.prior * mean) / (tried_G + self.prior)
        return rates_G

    def learn(self, places_G: Positions, passed_G: Floats, tried_G: Floats, step: int) -> None:
        if self.kept:
            self.passed_P *= self.kept ** (step - self.step)
            self.tried_P *= self.kept ** (step - self.step)
        else:
            self.passed_P[places_G] = self.tried_P[places_G] = 0
        np.add.at(self.passed_P, places_G, passed_G)
        np.add.at(self.tried_P, places_G, tried_G)
        self.recent += (passed_G / tried_G).tolist()
        self.step = step


def beliefs(problems: ProblemSet) -> dict[str, Belief]:
    """What is compared: simple estimates, the belief of the verdict's arms, and two that remember each problem."""
    x_PD = design(problems, (FEATURE,), "features")
    one_P1 = np.ones((len(problems), 1))
    return {
        "mean of the latest 128 groups": Beta(len(problems), 0.0, 1e9),
        "the problem's last group": Beta(len(problems), 0.0, 0.5),
        "Beta, keeps 0.98 a step": Beta(len(problems), 0.98, 2.0),
        "shared by features": Skilled(SkillModel(drift=0.03, residual=0.7, memory=0.0), x_PD),
        "remembered, one drift": Skilled(SkillModel(residual=3.0), one_P1),
        "shared by features, and remembered": Skilled(SkillModel(), x_PD),
    }


class Visits(NamedTuple):
    """Groups in their order: step, position, passed and tried, and whether the problem was seen in an earlier step."""

    step_G: Positions
    place_G: Positions
    passed_G: Floats
    tried_G: Floats
    seen_G: NDArray[np.bool_]


def visits(folder: Path, problems: ProblemSet) -> Visits:
    """The fresh groups of a run."""
    records, _ = read_jsonl(folder / "decisions.jsonl", GroupRecord)
    rows: list[tuple[int, int, float, float, bool]] = []
    seen: set[int] = set()
    for step, some in groupby((r for r in records if r.origin == "fresh" and r.n), key=lambda r: r.step):
        here = [(problems.position(r.problem), r.k, r.n) for r in some if r.outcome != "carried"]
        rows += [(step, place, float(k or 0), float(n or 0), place in seen) for place, k, n in here]
        seen |= {place for place, _, _ in here}
    return Visits(*(np.array(column) for column in zip(*rows, strict=True)))


class Score(NamedTuple):
    """Of one belief on some groups.

    Attributes:
        error: mean absolute difference from the group's pass rate, its chance included.
        beyond: root mean square difference from the true rate: the groups' own variance, which is known without bias,
            is taken off.
        rank: Spearman's correlation with the group's pass rate.
    """

    groups: int
    error: float
    beyond: float
    rank: float


def score(expected_G: Floats, passed_G: Floats, tried_G: Floats) -> Score:
    """Score predictions against outcomes."""
    rate_G = passed_G / tried_G
    noise_G = passed_G * (tried_G - passed_G) / (tried_G**2 * np.maximum(tried_G - 1, 1))
    square = float(np.mean((expected_G - rate_G) ** 2 - noise_G))
    ranks = np.corrcoef(rankdata(expected_G), rankdata(rate_G))[0, 1] if np.ptp(expected_G) > 0 else 0.0
    return Score(len(rate_G), float(np.abs(expected_G - rate_G).mean()), max(square, 0.0) ** 0.5, float(ranks))


def foresee(belief: Belief, seen: Visits) -> Floats:
    """Predict every group by a belief, before it observes the groups of that step."""
    expected_G = np.empty(len(seen.step_G))
    for step in np.unique(seen.step_G).tolist():
        [here] = np.nonzero(seen.step_G == step)
        expected_G[here] = belief.rates(seen.place_G[here], step)
        belief.learn(seen.place_G[here], seen.passed_G[here], seen.tried_G[here], step)
    return expected_G


def scores(folder: Path) -> dict[str, dict[str, Score]]:
    """By belief, for problems seen before and not."""
    config = load_run_config(folder / "config.yaml")
    problems = with_prompt_states(ProblemSet(build_problems(config).trained), lambda: load_starting_policy(config))
    seen = visits(folder, problems)
    found = {}
    for name, belief in beliefs(problems).items():
        expected_G = foresee(belief, seen)
        parts = {"seen": seen.seen_G, "not seen": ~seen.seen_G}
        found[name] = {
            part: score(expected_G[mask_G], seen.passed_G[mask_G], seen.tried_G[mask_G])
            for part, mask_G in parts.items()
            if mask_G.sum() > 1
        }
    return found


def pooled(runs: Sequence[dict[str, dict[str, Score]]]) -> dict[str, dict[str, Score]]:
    """Means over runs, equal weights; groups are added."""
    return {
        name: {
            part: Score(
                sum(run[name][part].groups for run in runs),
                *np.mean([run[name][part][1:] for run in runs], axis=0).tolist(),
            )
            for part in runs[0][name]
        }
        for name in runs[0]
    }


def show(kind: str, found: dict[str, dict[str, Score]]) -> Table:
    """One kind of data as a table."""
    table = Table("belief", title=kind)
    for part in next(iter(found.values())):
        for column in ("error", "beyond", "rank"):
            table.add_column(f"{part}: {column}", justify="right")
    for name, parts in found.items():
        cells = [f"{value:.3f}" for scored in parts.values() for value in scored[1:]]
        table.add_row(name, *cells)
    return table


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("kinds", nargs="+", help="KIND=FOLDER: kind of data, and the folder of its comparison")
    kinds = dict(kind.split("=", 1) for kind in parser.parse_args().kinds)
    written = {}
    for kind, folder in kinds.items():
        for arm in sorted({path.parent.parent for path in Path(folder).glob("*/*/decisions.jsonl")}):
            title = f"{kind}, {arm.name}"
            found = pooled([scores(path.parent) for path in sorted(arm.glob("*/decisions.jsonl"))])
            Console(width=140).print(show(title, found))
            written[title] = {
                name: {part: scored._asdict() for part, scored in parts.items()} for name, parts in found.items()
            }
    write_json(Path(__file__).with_suffix(".json"), written)


if __name__ == "__main__":
    main()
