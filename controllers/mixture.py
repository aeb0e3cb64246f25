"""Mixture: divides a batch among its sources by their recent gain per unit of cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.controllers.laws.category_shares import part_by_rate
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Stream, require
from halfway.curriculum.signals import update_mass

SOURCES = (Origin.PREFIX, Origin.GENERATED, Origin.STORED)


class Tally(NamedTuple):
    """Recent groups of one source: number, total gain, and cost in tokens, with older groups discounted."""

    groups: float = 0.0
    taught: float = 0.0
    cost: float = 0.0

    def plus(self, taught: float, cost: float) -> "Tally":
        return Tally(self.groups + 1, self.taught + taught, self.cost + cost)

    def fade(self, factor: float) -> "Tally":
        return Tally(*(factor * value for value in self))


@dataclass(frozen=True)
class Credit:
    """Value of a mixed group from each source, relative to a mixed fresh group.

    Attributes:
        prefix: rollouts that start inside earlier rollouts.
        generated: generated problems, which are not in the data set.
        stored: stored groups that are trained again.
    """

    prefix: float = 1.0
    generated: float = 0.5
    stored: float = 0.35

    def __post_init__(self) -> None:
        for name, credit in vars(self).items():
            require(0 <= credit < math.inf, f"mixture.credit.{name}", credit, "give 0 (= teaches nothing) or more")

    def of(self, source: str) -> float:
        credit: float = getattr(self, source)
        return credit


@dataclass(frozen=True, slots=True, eq=False)
class MixtureState:
    """Recent results of each source.

    Attributes:
        tallies: one per source, fresh problems included; "stored" counts the groups that could be stored.
    """

    problems: ProblemSet
    tallies: Mapping[str, Tally] = field(default_factory=dict)


@dataclass(frozen=True)
class Mixture(PassRateController[MixtureState]):
    """Decides how much of its share of the batch each of `prefix_sampling`, `probe` and `replay` uses (ours).

    The share that such a member has in its own options is its upper bound. A source gets this part of it:

        max(floor, x^s / (x^s + f^s)),    x = (credit taught + n f c) / (cost + n c),

    where taught and cost are sums over the recent groups of the source, f is the gain of fresh groups per unit of cost,
    c the cost of one fresh group, and n = `prior`. A source as good as fresh problems gets half of its share, a worse
    one less, a better one up to all of it. A source without recent groups returns to the prior, and so is tried again.

    The cost of a group is its generated tokens, plus, if it is mixed and so trained, rho times the tokens of its whole
    sequences. A stored group costs no generation. It is not observed again, so its gain and its training cost are taken
    from the groups that could be stored, with n = 0.

    List it first in a chain. Hinted groups count as fresh.

    Attributes:
        rho: cost of a trained token, where a generated token costs 1.
        worth: gain of a group: "groups" = 1 if it is mixed; "mass" = its update mass under MaxRL, 2 (1[k > 0] - k / N),
            which favours rare successes.
        credit: value of a mixed group from each other source, relative to a fresh one. The defaults 1, 0.5 and 0.35
            were measured in the lab, as the gain of easier problems and of stored groups on the original problems.
        sharpness: s.
        floor: lowest part of its share that a source gets.
        memory: discount factor of earlier groups per step.
        prior: n, in groups.
    """

    rho: float = 0.25
    worth: Literal["groups", "mass"] = "groups"
    credit: Credit = field(default_factory=Credit)
    sharpness: float = 4.0
    floor: float = 0.1
    memory: float = 0.9
    prior: float = 4.0

    claims = frozenset({"quotas"})
    needs = frozenset({"tokens"})

    def __post_init__(self) -> None:
        require(0 <= self.rho < math.inf, "mixture.rho", self.rho, "give a price of 0 or more")
        require(0 < self.sharpness <= 16, "mixture.sharpness", self.sharpness, "give a power above 0, at most 16")
        require(0 < self.floor <= 1, "mixture.floor", self.floor, "give a part above 0, at most 1")
        require(0 <= self.memory < 1, "mixture.memory", self.memory, "give 0 (= the latest step only) or more, below 1")
        require(0 < self.prior < math.inf, "mixture.prior", self.prior, "give a number of groups above 0")

    def init(self, problems: ProblemSet) -> MixtureState:
        return MixtureState(problems)

    def propose(self, plan: Plan, state: MixtureState, stream: Stream) -> tuple[Plan, MixtureState]:
        return replace(plan, quotas=self.quotas(state)), state

    def quotas(self, state: MixtureState) -> dict[Origin, float]:
        """Part of its share that each source gets."""
        fresh = state.tallies.get(Origin.FRESH, Tally())
        reference = _rate(fresh.taught, fresh.cost)
        return {
            source: part_by_rate(self._yield(state, source), reference, self.sharpness, self.floor)
            for source in SOURCES
        }

    def _yield(self, state: MixtureState, source: Origin) -> float:
        """Gain of a source per unit of cost, with the prior."""
        fresh, own = (state.tallies.get(origin, Tally()) for origin in (Origin.FRESH, source))
        taught = self.credit.of(source) * own.taught
        if source is Origin.STORED or not fresh.groups:  # what could be stored is known as well as what is fresh
            return _rate(taught, own.cost)
        weight = self.prior / fresh.groups
        return _rate(taught + weight * fresh.taught, own.cost + weight * fresh.cost)

    def observe(self, state: MixtureState, groups: Sequence[Group], step: int) -> MixtureState:
        fresh_groups(groups, state.problems)  # raises for a problem of another set
        tallies = {source: tally.fade(self.memory) for source, tally in state.tallies.items()}

        def count(source: Origin, group: Group, cost: float) -> None:
            tallies[source] = tallies.get(source, Tally()).plus(self._taught(group), cost)

        for group in groups:
            if group.size:
                training = 0.0 if group.zero_variance else self.rho * group.num_tokens
                source = group.request.origin
                count(Origin.FRESH if source is Origin.HINTED else source, group, group.num_generated + training)
                if not group.zero_variance:
                    count(Origin.STORED, group, training)
        return replace(state, tallies=tallies)

    def _taught(self, group: Group) -> float:
        if group.zero_variance:
            return 0.0
        return 1.0 if self.worth == "groups" else float(update_mass(group.num_passed, group.size))

    def metrics(self, state: MixtureState) -> Mapping[str, float]:
        """quota_SOURCE: part of its share that a source gets; groups_SOURCE: its recent groups, discounted."""
        quotas = {f"quota_{source}": part for source, part in self.quotas(state).items()}
        return quotas | {f"groups_{source}": tally.groups for source, tally in state.tallies.items()}


def _rate(taught: float, cost: float) -> float:
    return taught / cost if cost else math.inf if taught else 0.0
