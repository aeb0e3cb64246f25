"""What may be believed about a forest of problems: the hierarchical model and its simpler rivals, behind one interface.

A part of controllers: PROS ranks by it, GRESO's skip law can be driven by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from halfway.controllers.beliefs.forest import Decay, Floats, Forest, Positions, bare_forest, learn
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


class Estimator(Protocol):
    """Turns the evidence in a forest into a believed pass rate of every node."""

    def init(self, num_trees: int) -> Forest:
        """Roots without evidence."""
        ...

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """The forest with every estimate up to date. A second call in the same step changes nothing."""
        ...


@dataclass(frozen=True)
class DiscountedBeta:
    """Every node on its own: Beta(a + s, b + n - s), s of n its discounted counts. Trees mean nothing to it.

    The idea of MoPPS (arXiv 2507.04632) and of the explicit evidence in BOTS (arXiv 2510.26374).

    Attributes:
        prior: a and b.
        draw: believe one draw from the posterior, anew for every node in every step (Thompson sampling), not the mean.
    """

    prior: tuple[float, float] = (1.0, 1.0)
    draw: bool = False

    def __post_init__(self) -> None:
        require(min(self.prior) > 0, "belief.beta.prior", self.prior, "give two numbers above 0")

    def init(self, num_trees: int) -> Forest:
        return bare_forest(num_trees, 0.0, self.prior[0] / sum(self.prior))

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        if not forest.stale_R.any() and (not self.draw or forest.refreshed == step):
            return forest
        a, b = self.posterior(forest, slice(None))
        rate_M = stream.at("beta").generator().beta(a, b) if self.draw else a / (a + b)
        return replace(forest, rate_M=rate_M, stale_R=np.zeros_like(forest.stale_R), refreshed=step)

    def posterior(self, forest: Forest, nodes: Positions | slice) -> tuple[Floats, Floats]:
        """Both parameters of the posterior of some nodes."""
        passed, tried = forest.passed_M[nodes], forest.tried_M[nodes]
        return self.prior[0] + passed, self.prior[1] + np.maximum(tried - passed, 0.0)


@dataclass(frozen=True)
class LastRate:
    """The pass rate of a node's latest group, or of its root's if it has none, else one half."""

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
class PassRateBelief:
    """A belief about the pass rates of problems and of what grew from them.

    Attributes:
        kind: "hierarchical" = `HierarchicalBayes`; "beta" = `DiscountedBeta`; "last_rate" = `LastRate`.
        forgetting: lambda of (s, n) <- lambda (s, n) + (new s, new n). The source ablates it without naming a value;
            0.9 is ours. A last rate remembers nothing whatever is said here.
        decay_on: "observe" = a node forgets when it is observed (the source's wording); "step" = every node forgets in
            every step, and so drifts back to the prior while it is not visited.
        bayes, beta: options of the kinds "hierarchical" and "beta".
    """

    kind: Literal["hierarchical", "beta", "last_rate"] = "hierarchical"
    forgetting: float = 0.9
    decay_on: Decay = "observe"
    bayes: HierarchicalBayes = field(default_factory=HierarchicalBayes)
    beta: DiscountedBeta = field(default_factory=DiscountedBeta)

    def __post_init__(self) -> None:
        require(0 <= self.forgetting <= 1, "belief.forgetting", self.forgetting, "give a number between 0 and 1")
        for name, owner in (("bayes", "hierarchical"), ("beta", "beta")):
            value, remedy = vars(self)[name], f"it belongs to kind={owner}; set that kind, or remove the options"
            # The default is that of the class: a subclass may have another.
            require(self.kind == owner or value == type(value)(), f"belief.{name}", value, remedy)

    @property
    def estimator(self) -> Estimator:
        if self.kind == "hierarchical":
            return self.bayes
        return self.beta if self.kind == "beta" else LastRate()

    def init(self, num_trees: int) -> Forest:
        return self.estimator.init(num_trees)

    def learn(self, forest: Forest, nodes: Sequence[int], passed: Sequence[int], tried: Sequence[int]) -> Forest:
        """Add one step's outcomes to the evidence, see `halfway.controllers.beliefs.forest.learn`."""
        if self.kind == "last_rate":
            return learn(forest, nodes, passed, tried, 0.0)
        return learn(forest, nodes, passed, tried, self.forgetting, self.decay_on)

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """Bring every estimate up to date; nothing to do if no tree is stale."""
        return self.estimator.refresh(forest, step, stream)

    def ready(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """The forest as `rates` wants it: up to date, unless Beta draws are made when they are asked for."""
        return forest if self._draws_beta else self.refresh(forest, step, stream)

    def rates(self, forest: Forest, nodes: Positions, stream: Stream) -> Floats:
        """Believed pass rates of some nodes of a `ready` forest. Beta draws are made for these nodes alone, since a
        million of them take 90 ms."""
        if not self._draws_beta:
            return forest.rate_M[nodes]
        return stream.at("beta").generator().beta(*self.beta.posterior(forest, nodes))

    @property
    def _draws_beta(self) -> bool:
        return self.kind == "beta" and self.beta.draw


@dataclass(frozen=True)
class DrawnBeta(DiscountedBeta):
    """`DiscountedBeta`, believed by a draw from the posterior."""

    draw: bool = True


@dataclass(frozen=True)
class ThompsonBelief(PassRateBelief):
    """`PassRateBelief` with MoPPS' defaults: a Beta posterior for each problem that forgets nothing, by draws."""

    kind: Literal["hierarchical", "beta", "last_rate"] = "beta"
    forgetting: float = 1.0
    beta: DiscountedBeta = field(default_factory=DrawnBeta)
