"""LILO: of many groups that were rolled out, train those whose success varies most (arXiv 2502.12272)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.signals import mean_centred_variance
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


@dataclass(frozen=True, slots=True, eq=False)
class LiloState:
    """How learnable the latest step's groups were.

    Attributes:
        learnability: mean p (1 - p) of the groups that were rolled out.
        chosen: mean p (1 - p) of the groups that were chosen.
    """

    problems: ProblemSet
    learnability: float = 0.0
    chosen: float = 0.0


@dataclass(frozen=True)
class Lilo(PassRateController[LiloState]):
    """Declines all groups but a share of the largest learnability p (1 - p), where p = k / N is a group's pass rate.

    The source draws |D| = 4 |B| candidate questions for a batch of |B|, attempts each 8 times, and trains on the |B|
    with the largest p (1 - p) (algorithm 2, section 5; late on an easy set |D| = 8 |B|). There the chosen questions are
    rolled out again for training, with many more rollouts than attempts; here (ours) the attempts are the group that
    trains, so N is both numbers. Fill has to ask for |D| groups per plan: fill.policy=refill, fill.request_groups=4 x
    fill.groups. Among equals the first train. Zero-variance groups never do, however few others there are. Stored
    groups, and groups of fewer than two, are not ranked.

    Attributes:
        share: share of a round's groups that may train, |B| / |D|; at least one group always may.
    """

    share: float = 0.25

    needs = frozenset({"weights"})

    def __post_init__(self) -> None:
        require(0 < self.share < 1, "lilo.share", self.share, "give a share above 0 and below 1")

    def init(self, problems: ProblemSet) -> LiloState:
        return LiloState(problems)

    def weigh(self, groups: Sequence[Group], state: LiloState, stream: Stream) -> Sequence[Group]:
        ranked = [i for i, group in enumerate(groups) if _ranked(group)]
        chosen = set(self._best([groups[i] for i in ranked], ranked))
        declined = set(ranked) - chosen
        return [group.weighed([0.0] * group.size) if i in declined else group for i, group in enumerate(groups)]

    def _best(self, groups: Sequence[Group], places: Sequence[int]) -> list[int]:
        number = math.ceil(self.share * len(groups) - 1e-9)
        order = sorted(range(len(groups)), key=lambda i: -_learnability(groups[i]))
        return [places[i] for i in order[:number]]

    def observe(self, state: LiloState, groups: Sequence[Group], step: int) -> LiloState:
        fresh_groups(groups, state.problems)  # raises for a problem of another set
        ranked = [group for group in groups if _ranked(group)]
        if not ranked:
            return state
        worth = [_learnability(group) for group in ranked]
        best = [worth[i] for i in self._best(ranked, range(len(ranked)))]
        return replace(state, learnability=sum(worth) / len(worth), chosen=sum(best) / len(best))

    def metrics(self, state: LiloState) -> Mapping[str, float]:
        """learnability, chosen: see `LiloState`."""
        return {"learnability": state.learnability, "chosen": state.chosen}


def _ranked(group: Group) -> bool:
    return group.size >= 2 and group.request.origin is not Origin.STORED


def _learnability(group: Group) -> float:
    return float(mean_centred_variance(group.num_passed, group.size))
