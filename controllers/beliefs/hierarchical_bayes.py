"""The belief of PROS: a hierarchical logit-normal model of pass rates, and its posterior for all trees at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

import numpy as np

from halfway.controllers.beliefs.forest import Floats, Forest, Positions, Scales, bare_forest, nodes_of
from halfway.controllers.beliefs.logit_normal import (
    Gaussians,
    Trees,
    collapse,
    draw_polya_gamma,
    fixed_point,
    mean_sigmoid,
    sigmoid,
    with_evidence,
)
from halfway.curriculum import Stream, UserError, require

Inference = Literal["collapsed", "fixed_point"]
Estimate = Literal["mean_logit", "mean_rate", "draw"]

# Fits into a processor's cache; from about 20,000 nodes on, measured to be faster than all trees at once.
CHUNK_TREES = 2048
INSTALL = "pip install 'halfway[bayes]'"


def sweep(trees: Trees, omega_M: Floats, scales: Scales, generator: np.random.Generator) -> tuple[Gaussians, Floats]:
    """Draw roots with their children integrated out, then children: a joint draw given omega."""
    gaussians, precision_C = collapse(trees, omega_M, scales)
    num_roots = trees.num_roots
    noise_M = generator.standard_normal(len(omega_M))
    logit_R = gaussians.mean_M[:num_roots] + noise_M[:num_roots] * np.sqrt(gaussians.variance_M[:num_roots])
    # A child's mean is linear in its root, with slope (1/sigma^2) / precision.
    moved_C = (logit_R - gaussians.mean_M[:num_roots])[trees.place_C] * (scales.sigma**-2 / precision_C)
    logit_C = gaussians.mean_M[num_roots:] + moved_C + noise_M[num_roots:] / np.sqrt(precision_C)
    return gaussians, np.concatenate([logit_R, logit_C])


BURN_IN, AVERAGED = 20, 40
Visit = Callable[[int, Gaussians, Floats], None]


def gibbs(
    trees: Trees,
    logit_M: Floats,
    scales: Scales,
    sweeps: int,
    generator: np.random.Generator,
    visit: Visit | None = None,
) -> Floats:
    """Sweep all trees: first omega_i ~ PG(n_i, psi_i) for nodes with evidence (0 for others), then all log-odds.

    Args:
        logit_M: log-odds at the start of the chain.
        visit: called after each sweep with its index, the conditional distributions and the new log-odds.

    Returns:
        The log-odds after the last sweep.
    """
    seen = np.flatnonzero(trees.tried_M)
    tried = trees.tried_M[seen]
    omega_M = np.zeros(len(trees.tried_M))
    for i in range(sweeps):
        omega_M[seen] = draw_polya_gamma(tried, logit_M[seen], generator)
        gaussians, logit_M = sweep(trees, omega_M, scales, generator)
        if visit is not None:
            visit(i, gaussians, logit_M)
    return logit_M


@dataclass(frozen=True)
class HierarchicalBayes:
    """Posterior pass rates under psi_root ~ N(mu, tau^2), psi_child ~ N(psi_root + shift, sigma^2).

    If a forest has offsets, the mean of a root's prior is mu plus the root's offset.

    So evidence on a child moves its root and its siblings, and an unseen child resembles its root. Only trees with new
    evidence are swept again, from the last state of their chains. Only the model comes from the source (PROS, section
    4, in a third-party summary); all numbers below are ours.

    Attributes:
        mu, tau: mean and standard deviation of the roots' log-odds.
        sigma: standard deviation of a child around its root, in logits.
        shift: mean distance of a child from its root, in logits; 0 = as in the source. Prefixes of successes are easier
            starts, so a fit finds a positive shift.
        inference: Gibbs sampling with the children integrated out of the roots' conditional ("collapsed"), or the
            deterministic "fixed_point" of a variational approximation.
        sweeps, burn_in: Gibbs sweeps for each changed tree, 60 by default; the first `burn_in`, 20 by default, are left
            out of the average.
        estimate: "mean_logit" = sigmoid of the posterior mean of psi; "mean_rate" = posterior mean of sigmoid(psi),
            nearer to one half; both average conditional means, not draws. "draw" = sigmoid of a new draw per tree and
            step, as in Thompson sampling.
        iterations: maximum number of iterations of the fixed point.
        hyperparameters: "fixed" = as given here; "fitted" = these are the initial values of the first fit.
        fit_shift: whether to fit `shift` too.
        refit_every: training steps between two fits, and before the first.
    """

    mu: float = 0.0
    tau: float = 1.5
    sigma: float = 0.7
    shift: float = 0.0
    inference: Inference = "collapsed"
    sweeps: int | None = None
    burn_in: int | None = None
    estimate: Estimate = "mean_logit"
    iterations: int = 50
    hyperparameters: Literal["fixed", "fitted"] = "fixed"
    fit_shift: bool = False
    refit_every: int = 20

    def __post_init__(self) -> None:
        for name in ("mu", "shift"):
            value = vars(self)[name]
            require(abs(value) <= 20, f"belief.bayes.{name}", value, "give log-odds from -20 to 20")
        for name in ("tau", "sigma"):
            value = vars(self)[name]
            wanted = "give a standard deviation from 0.01 to 20 logits"
            require(0.01 <= value <= 20, f"belief.bayes.{name}", value, wanted)
        sweeps, burn_in = self.plan
        require(sweeps > 0, "belief.bayes.sweeps", sweeps, "give at least 1")
        require(0 <= burn_in < sweeps, "belief.bayes.burn_in", burn_in, f"give 0 to {sweeps - 1}")
        for name in ("iterations", "refit_every"):
            require(vars(self)[name] >= 1, f"belief.bayes.{name}", vars(self)[name], "give at least 1")
        sampled = self.inference != "fixed_point" or self.estimate != "draw"
        remedy = "a fixed point has no draws; choose a mean, or a sampler"
        require(sampled, "belief.bayes.estimate", self.estimate, remedy)
        fits = self.hyperparameters == "fitted"
        require(fits or not self.fit_shift, "belief.bayes.fit_shift", True, "set hyperparameters: fitted, or remove it")
        _require_package(fits, "pyro", "belief.bayes.hyperparameters: 'fitted'")

    @property
    def plan(self) -> tuple[int, int]:
        """Sweeps for each changed tree, and how many of them the average leaves out."""
        burn_in = BURN_IN if self.burn_in is None else self.burn_in
        return burn_in + AVERAGED if self.sweeps is None else self.sweeps, burn_in

    def init(self, num_trees: int) -> Forest:
        """Make a forest in which every root has the prior's belief."""
        scales = Scales(self.mu, self.tau, self.sigma, self.shift)
        one = np.ones(1)
        _, rate = self._posterior(Gaussians(self.mu * one, self.tau**2 * one), one)
        return bare_forest(num_trees, self.mu, float(rate[0]), scales)

    def refresh(self, forest: Forest, step: int, stream: Stream) -> Forest:
        """Estimate the stale trees; with estimate=draw, draw again for all trees."""
        forest = self._refit(forest, step)
        again = self.estimate == "draw" and forest.refreshed != step
        if not again and not forest.stale_R.any():
            return forest
        logit_M, rate_M = forest.logit_M.copy(), forest.rate_M.copy()
        stale = np.flatnonzero(forest.stale_R)
        fresh = np.flatnonzero(~forest.stale_R) if again else stale[:0]
        seen = with_evidence(forest, stale)
        parts = [(stale[seen], self.plan[0]), (fresh[with_evidence(forest, fresh)], 1)]
        for which, (chosen, sweeps) in enumerate(parts):
            for i, (nodes, trees) in enumerate(_chunks(forest, chosen)):
                generator = stream.at("sweeps", which, i).generator()
                logit_M[nodes], rate_M[nodes] = self._estimate(trees, forest, nodes, sweeps, generator)
        unseen = np.flatnonzero(~with_evidence(forest)) if again else stale[~seen]
        nodes, trees = _part(forest, unseen)
        logit_M[nodes], rate_M[nodes] = self._prior(trees, forest, stream)
        stale_R = np.zeros(forest.num_trees, np.bool_)
        return replace(forest, logit_M=logit_M, rate_M=rate_M, stale_R=stale_R, refreshed=step)

    def _estimate(
        self, trees: Trees, forest: Forest, nodes: Positions, sweeps: int, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Estimate trees; returns the log-odds from which the next estimation starts, and the believed pass rates."""
        assert forest.scales is not None
        start_M = forest.logit_M[nodes]
        if self.inference == "fixed_point":
            gaussians = fixed_point(trees, start_M, forest.scales, self.iterations)
            return self._posterior(gaussians, gaussians.mean_M)
        total_M, (_, burn_in) = np.zeros(len(nodes)), self.plan

        def visit(i: int, gaussians: Gaussians, logit_M: Floats) -> None:
            if i >= burn_in:
                np.add(
                    total_M, mean_sigmoid(*gaussians) if self.estimate == "mean_rate" else gaussians.mean_M, out=total_M
                )

        watch = None if self.estimate == "draw" else visit
        logit_M = gibbs(trees, start_M, forest.scales, sweeps, generator, watch)
        if self.estimate == "draw":
            return logit_M, sigmoid(logit_M)
        mean_M = total_M / (sweeps - burn_in)
        return logit_M, mean_M if self.estimate == "mean_rate" else sigmoid(mean_M)

    def _prior(self, trees: Trees, forest: Forest, stream: Stream) -> tuple[Floats, Floats]:
        """Like `_estimate`, in closed form, for trees without evidence."""
        assert forest.scales is not None
        gaussians, _ = collapse(trees, np.zeros(len(trees.tried_M)), forest.scales)
        if self.estimate != "draw":
            return self._posterior(gaussians, gaussians.mean_M)
        none_M, generator = np.zeros(len(trees.tried_M)), stream.at("prior").generator()
        _, logit_M = sweep(trees, none_M, forest.scales, generator)
        return logit_M, sigmoid(logit_M)

    def _posterior(self, gaussians: Gaussians, start_M: Floats) -> tuple[Floats, Floats]:
        return start_M, mean_sigmoid(*gaussians) if self.estimate == "mean_rate" else sigmoid(gaussians.mean_M)

    def _refit(self, forest: Forest, step: int) -> Forest:
        """Fit the hyperparameters to the evidence if a fit is due; then every tree is stale."""
        since = step - max(forest.fitted, 0)
        if self.hyperparameters == "fixed" or since < self.refit_every or not forest.tried_M.any():
            return forest
        from halfway.controllers.beliefs.bayes_model import fit

        assert forest.scales is not None
        scales = fit(forest, forest.scales, self.fit_shift, seed=step)
        return replace(forest, scales=scales, fitted=step, stale_R=np.ones(forest.num_trees, np.bool_))


def with_offsets(forest: Forest, offset_R: Floats) -> Forest:
    """Change the means of the roots' priors. Trees without evidence become stale; others follow at their next
    estimation."""
    return replace(forest, offset_R=offset_R, stale_R=forest.stale_R | ~with_evidence(forest))


def _part(forest: Forest, trees: Positions) -> tuple[Positions, Trees]:
    nodes, place_C = nodes_of(forest, trees)
    return nodes, Trees(place_C, forest.passed_M[nodes], forest.tried_M[nodes], _offsets(forest, trees))


def _offsets(forest: Forest, trees: Positions) -> Floats | float:
    return 0.0 if forest.offset_R is None else forest.offset_R[trees]


def _chunks(forest: Forest, trees: Positions) -> Iterator[tuple[Positions, Trees]]:
    """Yield the nodes of some trees, `CHUNK_TREES` trees at a time."""
    nodes, place_C = nodes_of(forest, trees)
    for start in range(0, len(trees), CHUNK_TREES):
        stop = min(start + CHUNK_TREES, len(trees))
        first, last = np.searchsorted(place_C, (start, stop))
        part = np.concatenate([nodes[start:stop], nodes[len(trees) + first : len(trees) + last]])
        offsets = _offsets(forest, trees[start:stop])
        yield part, Trees(place_C[first:last] - start, forest.passed_M[part], forest.tried_M[part], offsets)


def _require_package(needed: bool, package: str, option: str) -> None:
    if needed and find_spec(package) is None:
        raise UserError(f"{option} needs the package {package}; {INSTALL}")
