"""The chains that advice chooses from: one for every registered controller, and some with two or more.

A controller has its default options; one that needs a category uses whichever feature describes the problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from halfway.controllers import CONTROLLERS
from halfway.curriculum.controller import Chain, PassRateController, chain
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.session import EVERYTHING, require_needs
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.components import check_chain, members
from halfway.trainers.loop.options import FillOptions

BASELINE = "uniform"
FIRST = frozenset({"prefixes", "generated", "stored"})
"""Controllers with these claims come before the member that chooses problems."""
UNKNOWN_HERE = {
    "generated": "what a new problem would teach is not in a log",
    "advantages": "the simulation knows outcomes, not what tokens are worth",
}
CATEGORY, FEATURE = "category", "feature:"
LEAST_ALIKE, MOST_COLUMNS = 4, 64
"""For a feature to tell which problems are alike: the least mean number of problems per word, and the most columns."""


@dataclass(frozen=True)
class Candidate:
    """A chain to be played, and how its batches are filled.

    Attributes:
        controllers: the controllers, written as in a configuration.
        fill: the fill options that differ from plain batches.
    """

    name: str
    controllers: tuple[Any, ...]
    fill: Mapping[str, Any] = field(default_factory=dict)

    def chain(self) -> Chain:
        return chain(*members(list(self.controllers)))

    def filling(self, groups: int) -> FillOptions:
        """The fill options of the chain, if plain batches have `groups` groups."""
        return replace(FillOptions(groups=groups), **self.fill)


def candidates(groups: int, problems: ProblemSet | None = None) -> list[Candidate]:
    """The plain chain first, then one chain per registered controller, combinations, and the ways to refill.

    A refilling arm asks for batches of half the size, and requests half more than that: where half of the groups are
    degenerate, it then trains on about as many groups as the plain chain.

    Args:
        problems: the problems whose features a controller may need.
    """
    refill = {"policy": "refill", "groups": max(1, groups // 2), "request_factor": 1.5}
    adaptive = {**refill, "request": "adaptive", "min_request": min(2, groups)}
    frontier = _frontier(problems)
    found = [Candidate(BASELINE, (BASELINE,))]
    for name in CONTROLLERS.names():
        if name != BASELINE:
            found.append(Candidate(name, (frontier,) if name == "frontier" else _chain_with(name)))
    found.append(Candidate("replay_frontier", ("replay", frontier)))
    found.append(Candidate("hints_replay_retire", ("replay", BASELINE, "hints", "retire")))
    found.append(Candidate("refill", (BASELINE,), refill))
    found.append(Candidate("refill_adaptive", (BASELINE,), adaptive))
    return found


def _frontier(problems: ProblemSet | None) -> Any:
    """`frontier` with its default, the category, unless only other features tell which problems are alike."""
    features = describing(problems) if problems is not None else ()
    return "frontier" if CATEGORY in features or not features else {"frontier": {"features": list(features)}}


def describing(problems: ProblemSet) -> tuple[str, ...]:
    """The features that all problems have and by which some are alike: numbers, vectors, and words that are shared."""
    return tuple(name for name in sorted(problems[0].features) if _describes(problems, name))


def _describes(problems: ProblemSet, name: str) -> bool:
    try:
        column = problems.column(name)
    except UserError:
        return False
    if column.dtype.kind in "fiu":
        return bool(np.isfinite(column).all()) and column.size <= MOST_COLUMNS * len(column)
    words = len(np.unique(column))
    return 1 < words <= min(MOST_COLUMNS, len(problems) // LEAST_ALIKE)


def of_arms(arms: Mapping[str, Mapping[str, Any]], base: Sequence[Any] = (BASELINE,)) -> list[Candidate]:
    """A comparison's arms, which may differ in controllers and in how batches are filled.

    Raises:
        UserError: if an arm differs in anything else, which the simulation does not cover.
    """
    found = []
    for name, changes in arms.items():
        others = set(changes) - {"controllers", "fill", "tune"}
        if others:
            raise UserError(f"arms.{name}: differs in {', '.join(sorted(others))}, which the simulation does not know")
        found.append(Candidate(name, tuple(changes.get("controllers", base)), dict(changes.get("fill", {}))))
    return found


def refusal(candidate: Candidate, problems: ProblemSet) -> str:
    """Why a chain cannot be played; empty if it can."""
    try:
        controller = candidate.chain()
        check_chain(members(list(candidate.controllers)))
        for need in sorted(controller.needs):
            if need.startswith(FEATURE) and need.removeprefix(FEATURE) not in problems[0].features:
                known = ", ".join(sorted(problems[0].features)) or "none"
                return f"it needs the feature {need.removeprefix(FEATURE)!r} of every problem; known here: {known}"
        require_needs(controller, problems, EVERYTHING, "the simulation")
    except (UserError, ImportError) as error:
        return str(error)
    for claim in sorted(controller.claims & UNKNOWN_HERE.keys()):
        return UNKNOWN_HERE[claim]
    return ""


def _chain_with(name: str) -> tuple[Any, ...]:
    """A controller in a chain that can work: alone, or before or after the member that chooses problems."""
    try:
        controller: PassRateController[Any] = CONTROLLERS.get(name)()
    except Exception:  # it needs options or packages; `refusal` tells which
        return (name,)
    if "problems" in controller.claims:
        return (name,)
    return (name, BASELINE) if FIRST & controller.claims else (BASELINE, name)
