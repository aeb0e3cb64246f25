"""The hierarchical model in Pyro: a fit of its hyperparameters, and a reference for tests of the Gibbs sampler.

Needs the packages of the extra `bayes`; the rest of `controllers` imports this module only on use.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, TraceMeanField_ELBO
from torch import Tensor
from torch.distributions import constraints

from halfway.controllers.beliefs.forest import Forest, Scales, nodes_of
from halfway.controllers.beliefs.logit_normal import Trees, fixed_point, with_evidence

# A fit uses at most this many trees with evidence, drawn at random: enough for three numbers.
MOST_TREES = 4096
FIT_STEPS = 300
LEARNING_RATE = 0.1


class Evidence(NamedTuple):
    """Discounted counts of some trees as tensors: roots first, then children; for each child, its root's index."""

    place_C: Tensor
    passed_M: Tensor
    tried_M: Tensor

    @property
    def num_roots(self) -> int:
        return len(self.tried_M) - len(self.place_C)


def evidence_of(forest: Forest, trees: Any) -> Evidence:
    """Collect the evidence of some trees."""
    nodes, place_C = nodes_of(forest, np.asarray(trees, np.int64))
    return Evidence(*(torch.as_tensor(a) for a in (place_C, forest.passed_M[nodes], forest.tried_M[nodes])))


def model(evidence: Evidence, fit_shift: bool = False, shift: float = 0.0) -> Tensor:
    """psi_root ~ N(mu, tau^2), psi_child ~ N(psi_root + shift, sigma^2), counts binomial; s and n may be fractions.

    The hyperparameters are random variables with wide priors; the shift only if it is fitted.
    """
    mu, tau, sigma, moved = _hyperparameters(fit_shift, shift)
    with pyro.plate("roots", evidence.num_roots):
        root_R = pyro.sample("root", dist.Normal(mu, tau))
    logit_M: Tensor = root_R
    if len(evidence.place_C):
        with pyro.plate("children", len(evidence.place_C)):
            child_C = pyro.sample("child", dist.Normal(root_R[evidence.place_C] + moved, sigma))
        logit_M = torch.cat([root_R, child_C])
    likelihood_M = evidence.passed_M * logit_M - evidence.tried_M * torch.nn.functional.softplus(logit_M)
    pyro.factor("evidence", likelihood_M.sum())
    return logit_M


def _hyperparameters(fit_shift: bool, shift: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mu = pyro.sample("mu", dist.Normal(_number(0.0), _number(2.0)))
    tau = pyro.sample("tau", dist.LogNormal(_number(math.log(1.5)), _number(0.75)))
    sigma = pyro.sample("sigma", dist.LogNormal(_number(math.log(0.7)), _number(0.75)))
    moved = pyro.sample("shift", dist.Normal(_number(0.0), _number(1.0))) if fit_shift else _number(shift)
    return mu, tau, sigma, moved


def guide(evidence: Evidence, start: Scales, guess: tuple[Tensor, Tensor], fit_shift: bool) -> None:
    """Point estimates of the hyperparameters; normal distributions of roots, and of children given their roots.

    Args:
        guess: initial means and standard deviations of the nodes, (M,) each.
    """
    _point("mu", start.mu)
    _point("tau", start.tau, positive=True)
    _point("sigma", start.sigma, positive=True)
    if fit_shift:
        _point("shift", start.shift)
    num_roots = evidence.num_roots
    mean_M, width_M = guess
    where_R, width_R = _vector("root_where", mean_M[:num_roots]), _vector("root_width", width_M[:num_roots], True)
    with pyro.plate("roots", num_roots):
        root_R = pyro.sample("root", dist.Normal(where_R, width_R))
    if num_roots == len(mean_M):
        return
    where_C, width_C = _vector("child_where", mean_M[num_roots:]), _vector("child_width", width_M[num_roots:], True)
    slope_C = _vector("slope", torch.full_like(mean_M[num_roots:], 0.5))
    moved_C = slope_C * (root_R - where_R)[evidence.place_C]
    with pyro.plate("children", len(where_C)):
        pyro.sample("child", dist.Normal(where_C + moved_C, width_C))


def _first_guess(evidence: Evidence, start: Scales) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the log-odds under the initial hyperparameters."""
    trees = Trees(*(tensor.numpy() for tensor in evidence))
    gaussians = fixed_point(trees, np.zeros(len(trees.tried_M)), start, iterations=20)
    return torch.as_tensor(gaussians.mean_M), torch.as_tensor(np.sqrt(gaussians.variance_M))


def fit(forest: Forest, start: Scales, fit_shift: bool, seed: int, steps: int = FIT_STEPS) -> Scales:
    """Fit the hyperparameters to the evidence by stochastic variational inference.

    mu, tau and sigma (and the shift) are at the mode of their posterior under wide priors, with the log-odds of all
    nodes integrated out by the guide: empirical Bayes. Equal arguments give equal numbers; torch's own random state and
    Pyro's parameters do not change.

    Args:
        start: initial values; the shift stays unless `fit_shift` is set.
    """
    trees = np.flatnonzero(with_evidence(forest))
    if len(trees) > MOST_TREES:
        trees = np.sort(np.random.default_rng(seed).choice(trees, MOST_TREES, replace=False))
    evidence = _without_unseen_children(evidence_of(forest, trees))
    guess = _first_guess(evidence, start)
    own_draws = torch.random.fork_rng(devices=[])
    with own_draws, pyro.get_param_store().scope(), pyro.validation_enabled(False):
        torch.manual_seed(seed)
        pyro.clear_param_store()

        def conditioned() -> Tensor:
            return model(evidence, fit_shift, start.shift)

        def guided() -> None:
            guide(evidence, start, guess, fit_shift)

        optimiser = pyro.optim.ClippedAdam({"lr": LEARNING_RATE, "lrd": 0.1 ** (1 / steps)})
        svi = SVI(conditioned, guided, optimiser, TraceMeanField_ELBO())
        for _ in range(steps):
            svi.step()
        scales = {name: pyro.param(f"at_{name}").item() for name in ("mu", "tau", "sigma")}
        return Scales(**scales, shift=pyro.param("at_shift").item() if fit_shift else start.shift)


def _without_unseen_children(evidence: Evidence) -> Evidence:
    """Drop the untried children, which carry no information on the hyperparameters."""
    roots, seen_C = evidence.num_roots, evidence.tried_M[evidence.num_roots :] > 0
    seen_M = torch.cat([torch.ones(roots, dtype=torch.bool), seen_C])
    return Evidence(evidence.place_C[seen_C], evidence.passed_M[seen_M], evidence.tried_M[seen_M])


def _point(name: str, value: float, positive: bool = False) -> None:
    limits = constraints.positive if positive else constraints.real
    pyro.sample(name, dist.Delta(pyro.param(f"at_{name}", _number(value), constraint=limits)))


def _vector(name: str, values: Tensor, positive: bool = False) -> Tensor:
    parameter: Tensor = pyro.param(name, values, constraint=constraints.positive if positive else constraints.real)
    return parameter


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
