"""The chains that advice chooses from: one for every registered controller, with the options it comes with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halfway.controllers import CONTROLLERS
from halfway.curriculum.controller import Chain, PassRateController, chain
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.session import EVERYTHING, require_needs
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.components import check_chain, members
from halfway.trainers.loop.options import FillOptions

BASELINE = "uniform"
FIRST = frozenset({"prefixes", "generated", "stored"})
"""Who claims these stands before the member that chooses problems."""
UNKNOWN_HERE = {
    "generated": "what a new problem would teach is not in a log",
    "advantages": "the simulation knows outcomes, not what tokens are worth",
}


@dataclass(frozen=True)
class Candidate:
    """A chain, and how batches are filled.

    Attributes:
        controllers: as a configuration has them.
        fill: options that differ from the log's.
    """

    name: str
    controllers: tuple[Any, ...]
    fill: Mapping[str, Any] = field(default_factory=dict)

    def chain(self) -> Chain:
        return chain(*members(list(self.controllers)))

    def filling(self, groups: int) -> FillOptions:
        """How its batches are filled, if plain batches have so many groups."""
        return replace(FillOptions(groups=groups), **self.fill)


def candidates(groups: int) -> list[Candidate]:
    """The plain chain first, then one per registered controller, then the ways to refill.

    A refilling arm asks for batches of half the size, and for half more than that: what it trains on is about what the
    plain one trains on, where half of the groups are degenerate.
    """
    refill = {"policy": "refill", "groups": max(1, groups // 2), "request_factor": 1.5}
    adaptive = {**refill, "request": "adaptive", "min_request": min(2, groups)}
    found = [Candidate(BASELINE, (BASELINE,))]
    for name in CONTROLLERS.names():
        if name != BASELINE:
            found.append(Candidate(name, _chain_with(name)))
    found.append(Candidate("refill", (BASELINE,), refill))
    found.append(Candidate("refill_adaptive", (BASELINE,), adaptive))
    return found


def of_arms(arms: Mapping[str, Mapping[str, Any]], base: Sequence[Any] = (BASELINE,)) -> list[Candidate]:
    """The arms of a comparison, as far as they differ in controllers and in how batches are filled.

    Raises:
        UserError: if an arm differs in anything else, which the simulation does not know.
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
        require_needs(controller, problems, EVERYTHING, "the simulation")
    except (UserError, ImportError) as error:
        return str(error)
    for claim in sorted(controller.claims & UNKNOWN_HERE.keys()):
        return UNKNOWN_HERE[claim]
    return ""


def _chain_with(name: str) -> tuple[Any, ...]:
    """A controller in a chain that can work: alone, before or after the one that chooses problems."""
    try:
        controller: PassRateController[Any] = CONTROLLERS.get(name)()
    except Exception:  # it needs options or packages; `refusal` tells which
        return (name,)
    if "problems" in controller.claims:
        return (name,)
    return (name, BASELINE) if FIRST & controller.claims else (BASELINE, name)
