"""Problems in random order, each once per epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import PassRateController, Plan, ProblemSet, Request, Stream


@dataclass(frozen=True, slots=True)
class UniformState:
    """A place in an endless sequence of shuffled epochs.

    Attributes:
        epoch: index of the epoch; -1 before the first draw.
        cursor: number of problems in the order of the epoch that have had their turn.
        key: seed of the order of the epoch. The order is recomputed from it and never saved.
        deferred: positions whose turn came while the plan already held them; a later plan takes them first.
    """

    problems: ProblemSet
    epoch: int
    cursor: int
    key: int = 0
    deferred: tuple[int, ...] = ()


@dataclass(frozen=True)
class Uniform(PassRateController[UniformState]):
    """Fills a plan with fresh problems, without replacement: a new random order every epoch.

    The order of an epoch depends only on the seed of the run, the name of the member and the epoch, so all arms of a
    comparison see the problems in the same order. A plan may span two epochs. It holds a problem twice only if it needs
    more groups than there are problems.
    """

    claims = frozenset({"problems"})

    def init(self, problems: ProblemSet) -> UniformState:
        return UniformState(problems, epoch=-1, cursor=len(problems))

    def propose(self, plan: Plan, state: UniformState, stream: Stream) -> tuple[Plan, UniformState]:
        # Generated problems, new or stored, are not in the shuffled set.
        ids: set[object] = {request.problem.id for request in plan.requests}
        ids |= {group.request.problem.id for group in plan.in_hand if group.waits}
        positions, state = _draw(state, {name for name in ids if name in state.problems}, plan.missing, stream)
        return plan.add([Request(state.problems[place], plan.num_rollouts) for place in positions], "drawn"), state

    def metrics(self, state: UniformState) -> Mapping[str, float]:
        """epoch: epochs so far, with the fraction of the current one; deferred: problems that wait for a later plan."""
        return {"epoch": state.epoch + state.cursor / len(state.problems), "deferred": float(len(state.deferred))}


def _draw(state: UniformState, held: set[object], number: int, stream: Stream) -> tuple[list[int], UniformState]:
    """The next positions whose problems are not held; if all are held, problems repeat."""
    problems, drawn = state.problems, list[int]()
    deferred, cursor = list(state.deferred), state.cursor
    while len(drawn) < number:
        if len(held) == len(problems):
            held = set()
        place = next((place for place in deferred if problems[place].id not in held), None)
        if place is not None:
            deferred.remove(place)
        while place is None:
            if cursor == len(problems):
                state = _next_epoch(state, stream)
                cursor = 0
            turn = int(_order(state.key, len(problems))[cursor])
            cursor += 1
            if problems[turn].id not in held:
                place = turn
            elif turn not in deferred:
                deferred.append(turn)
        held.add(problems[place].id)
        drawn.append(place)
    return drawn, replace(state, cursor=cursor, deferred=tuple(deferred))


def _next_epoch(state: UniformState, stream: Stream) -> UniformState:
    # Not addressed by the training step: other members may shift the step in which an epoch begins, but not its order.
    epoch = state.epoch + 1
    return replace(state, epoch=epoch, cursor=0, key=replace(stream, path=("epoch", epoch)).integer())


@lru_cache(maxsize=4)
def _order(key: int, size: int) -> NDArray[np.int64]:
    order = np.random.default_rng(key).permutation(size)
    order.setflags(write=False)
    return order
