"""Beliefs about a forest of problems, behind one interface: the hierarchical model and its simpler rivals.

Controllers take a belief as an option: PROS ranks by it, and GRESO's skip law can use it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from halfway.controllers.beliefs.forest import Decay, Floats, Forest, Positions, bare_forest, learn
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes
from halfway.curriculum import Stream, require

TIE = 1e-6  # rates that differ by less than this are equally near


class Aim(NamedTuple):
    """The pass rates that a law needs: the `wanted` rates nearest the target."""

    target: float
    wanted: int


class Estimator(Protocol):
    """Turns the evidence in a forest into a believed pass rate for every node."""

    def init(self, num_trees: int) -> Forest:
        """Make roots without evidence."""
        ...

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """Bring every estimate up to date. A second call in the same step changes nothing."""
        ...


def beta_densities(rates: Floats, a: Floats, b: Floats) -> Floats:
    """Density of each Beta(a, b) at its rate between 0 and 1."""
    log_constants = [math.lgamma(x + y) - math.lgamma(x) - math.lgamma(y) for x, y in zip(a, b, strict=True)]
    densities: Floats = np.exp(np.asarray(log_constants) + (a - 1) * np.log(rates) + (b - 1) * np.log1p(-rates))
    return densities


def density_bound(target: float, radius: float, least: float, most: float) -> float:
    """An upper bound, within a band around the target, on every Beta density with `least` <= a + b <= `most`.

    With Stirling's bounds on the Gamma function the density at x is at most exp(1 / 12 s) sqrt(s / 2 pi) exp(-s KL)
    sqrt(m (1 - m)) / (x (1 - x)), s = a + b, m = a / s, and KL >= 0 the divergence of m from x.
    """
    edge = min(target, 1 - target) - radius
    return math.exp(1 / (12 * least)) * math.sqrt(most / (2 * math.pi)) / (2 * edge * (1 - edge)) * (1 + TIE)


@dataclass(frozen=True)
class DiscountedBeta:
    """A separate belief about every node: Beta(a + s, b + n - s), with its discounted counts s of n; no trees.

    The idea of MoPPS (arXiv 2507.04632) and of the explicit evidence in BOTS (arXiv 2510.26374).

    Attributes:
        prior: a and b.
        draw: true = use one draw from the posterior per node and step (Thompson sampling); false = use the mean.
    """

    prior: tuple[float, float] = (1.0, 1.0)
    draw: bool = False

    def __post_init__(self) -> None:
        fits = all(0 < count <= 1e6 for count in self.prior)
        require(fits, "belief.beta.prior", self.prior, "give two numbers above 0, at most a million")

    def init(self, num_trees: int) -> Forest:
        return bare_forest(num_trees, 0.0, self.prior[0] / sum(self.prior))

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        if not forest.stale_R.any() and (not self.draw or forest.refreshed == step):
            return forest
        a, b = self.posterior(forest, slice(None))
        rate_M = stream.at("beta").generator().beta(a, b) if self.draw else a / (a + b)
        return replace(forest, rate_M=rate_M, stale_R=np.zeros_like(forest.stale_R), refreshed=step)

    def nearest(self, forest: Forest, nodes: Positions, near: Aim, stream: Stream) -> tuple[Positions, Floats]:
        """Draw rates for the nodes that would be nearest if all nodes drew.

        The distribution of the nearest is exact, with few draws. In a band around the target that should contain enough
        draws, each node gets a uniform point with probability 2 r M, where r is the band's half-width and M a bound on
        every density in it. The point is kept with probability density / M. So a node has a point in dx with
        probability density dx, like a draw. If the band contains too few, all other nodes draw until they are outside
        it.
        """
        generator = stream.at("beta").generator()
        band = self._band(forest, nodes, near)
        if band is None:
            return nodes, generator.beta(*self.posterior(forest, nodes))
        radius, bound = band
        places = generator.choice(
            len(nodes), generator.binomial(len(nodes), 2 * radius * bound), replace=False, shuffle=False
        )
        rates = near.target + radius * (2 * generator.random(len(places)) - 1)
        accepted = generator.random(len(places)) * bound < beta_densities(rates, *self.posterior(forest, nodes[places]))
        places, rates = places[accepted], rates[accepted]
        if np.count_nonzero(np.abs(rates - near.target) < radius - 2 * TIE) >= near.wanted:
            return nodes[places], rates
        rate_F = generator.beta(*self.posterior(forest, nodes))
        again = np.arange(len(nodes))
        while len(again := again[np.abs(rate_F[again] - near.target) <= radius]):
            rate_F[again] = generator.beta(*self.posterior(forest, nodes[again]))
        rate_F[places] = rates
        return nodes, rate_F

    def _band(self, forest: Forest, nodes: Positions, near: Aim) -> tuple[float, float] | None:
        """Half-width of a band around the target that should contain twice the wanted draws, and a bound on the
        densities in it; None if making all draws is as cheap."""
        some = nodes[:: max(1, len(nodes) // 512)]
        density = float(beta_densities(np.full(len(some), near.target), *self.posterior(forest, some)).mean())
        radius = (near.wanted + 16) / max(len(nodes) * density, 1e-300)
        if radius > min(near.target, 1 - near.target) / 2:
            return None
        bound = density_bound(near.target, radius, sum(self.prior), sum(self.prior) + float(forest.tried_M.max()))
        return (radius, bound) if 2 * radius * bound < 1 / 8 else None

    def posterior(self, forest: Forest, nodes: Positions | slice) -> tuple[Floats, Floats]:
        """Both parameters of the posteriors of some nodes."""
        passed, tried = forest.passed_M[nodes], forest.tried_M[nodes]
        return self.prior[0] + passed, self.prior[1] + np.maximum(tried - passed, 0.0)


@dataclass(frozen=True)
class LastRate:
    """The pass rate of a node's latest group; without one, of its root's latest group; otherwise one half."""

    def init(self, num_trees: int) -> Forest:
        return bare_forest(num_trees, 0.0, 0.5)

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        if not forest.stale_R.any():
            return forest
        rate_R = self._rates(forest, slice(None, forest.num_trees), np.full(forest.num_trees, 0.5))
        rate_C = self._rates(forest, slice(forest.num_trees, None), rate_R[forest.tree_C])
        rate_M = np.concatenate([rate_R, rate_C])
        return replace(forest, rate_M=rate_M, stale_R=np.zeros_like(forest.stale_R), refreshed=step)

    @staticmethod
    def _rates(forest: Forest, part: slice, otherwise: Floats) -> Floats:
        tried = forest.tried_M[part]
        return np.where(tried > 0, forest.passed_M[part] / np.where(tried > 0, tried, 1), otherwise)


@dataclass(frozen=True)
class Measured:
    """Pass rates that the trainer measures, see `PassRateController.inform`; one half before.

    An oracle, to study a law apart from the quality of its belief. A child has the rate of its root.
    """

    def init(self, num_trees: int) -> Forest:
        return bare_forest(num_trees, 0.0, 0.5)

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        if not forest.stale_R.any():
            return forest
        return replace(forest, stale_R=np.zeros_like(forest.stale_R), refreshed=step)

    @staticmethod
    def inform(forest: Forest, rates_R: Floats) -> Forest:
        """Take the measured rates as the belief; every root counts as tried."""
        rate_M = np.concatenate([rates_R, rates_R[forest.tree_C]])
        tried_M = np.ones_like(rate_M)
        stale_R = np.ones_like(forest.stale_R)
        return replace(forest, rate_M=rate_M, passed_M=rate_M.copy(), tried_M=tried_M, stale_R=stale_R)


BeliefKind = Literal["hierarchical", "beta", "last_rate", "measured"]


@dataclass(frozen=True)
class PassRateBelief:
    """A belief about the pass rates of problems and of the prefixes cut from their rollouts.

    Attributes:
        kind: "hierarchical" = `HierarchicalBayes`; "beta" = `DiscountedBeta`; "last_rate" = `LastRate`;
            "measured" = `Measured`, an oracle that learns nothing from the run's own rollouts.
        forgetting: lambda of (s, n) <- lambda (s, n) + (new s, new n). The source ablates it without naming a value;
            0.9 is ours. It has no effect on "last_rate".
        decay_on: "observe" = the counts of a node are discounted when it is observed, as in the source; "step" = all
            counts are discounted in every step, so nodes without visits drift back to the prior.
        bayes, beta: options of the kinds "hierarchical" and "beta".
    """

    kind: BeliefKind = "hierarchical"
    forgetting: float = 0.9
    decay_on: Decay = "observe"
    bayes: HierarchicalBayes = field(default_factory=HierarchicalBayes)
    beta: DiscountedBeta = field(default_factory=DiscountedBeta)

    def __post_init__(self) -> None:
        require(0 <= self.forgetting <= 1, "belief.forgetting", self.forgetting, "give a number between 0 and 1")
        for name, owner in (("bayes", "hierarchical"), ("beta", "beta")):
            value, remedy = vars(self)[name], f"it belongs to kind={owner}; set that kind, or remove the options"
            # The default is read from the class, since a subclass may have another.
            require(self.kind == owner or value == type(value)(), f"belief.{name}", value, remedy)

    @property
    def estimator(self) -> Estimator:
        if self.kind == "hierarchical":
            return self.bayes
        if self.kind == "beta":
            return self.beta
        return LastRate() if self.kind == "last_rate" else Measured()

    @property
    def needs(self) -> frozenset[str]:
        """Requirements on the host, see `PassRateController.needs`."""
        return frozenset({"measured"} if self.kind == "measured" else ())

    def init(self, num_trees: int) -> Forest:
        return self.estimator.init(num_trees)

    def learn(
        self, forest: Forest, nodes: Sequence[int], passed: Sequence[int], tried: Sequence[int], in_place: bool = False
    ) -> Forest:
        """Add one step's outcomes to the evidence, see `halfway.controllers.beliefs.forest.learn`."""
        if self.kind == "measured":
            return forest
        if self.kind == "last_rate":
            return learn(forest, nodes, passed, tried, 0.0, in_place=in_place)
        return learn(forest, nodes, passed, tried, self.forgetting, self.decay_on, in_place)

    def inform(self, forest: Forest, rates_R: Floats) -> Forest:
        """Take measured pass rates of the roots, if the belief is an oracle."""
        return Measured.inform(forest, rates_R) if self.kind == "measured" else forest

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """Bring every estimate up to date, unless no tree is stale."""
        return self.estimator.refresh(forest, step, stream)

    def ready(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """Prepare the forest for `rates`: up to date, but Beta draws are made only on request."""
        return forest if self._draws_beta else self.refresh(forest, step, stream)

    def rates(self, forest: Forest, nodes: Positions, near: Aim | None, stream: Stream) -> tuple[Positions, Floats]:
        """Believed pass rates of some nodes of a `ready` forest.

        Args:
            near: the rates that matter; None = all. Beta draws are made only for nodes that may matter: a million draws
                take 90 ms.

        Returns:
            The nodes that matter, and their rates.
        """
        if not self._draws_beta:
            return nodes, forest.rate_M[nodes]
        if near is not None:
            return self.beta.nearest(forest, nodes, near, stream)
        return nodes, stream.at("beta").generator().beta(*self.beta.posterior(forest, nodes))

    def means(self, forest: Forest, nodes: Positions) -> Floats:
        """Believed pass rates of some nodes, without draws: from the last refresh, or the means of Beta."""
        if not self._draws_beta:
            return forest.rate_M[nodes]
        a, b = self.beta.posterior(forest, nodes)
        return a / (a + b)

    @property
    def _draws_beta(self) -> bool:
        return self.kind == "beta" and self.beta.draw


@dataclass(frozen=True)
class DrawnBeta(DiscountedBeta):
    """`DiscountedBeta` with Thompson sampling: a belief is a draw from the posterior, not its mean."""

    draw: bool = True


@dataclass(frozen=True)
class ThompsonBelief(PassRateBelief):
    """`PassRateBelief` with MoPPS' defaults: draws from a Beta posterior for each problem, without forgetting."""

    kind: BeliefKind = "beta"
    forgetting: float = 1.0
    beta: DiscountedBeta = field(default_factory=DrawnBeta)
