"""Beta draws nearest a target: a few draws have to have the law of all draws."""

import math
from dataclasses import replace

import numpy as np
import pytest

from halfway.controllers.beliefs.forest import Forest, learn
from halfway.controllers.beliefs.forest_beliefs import Aim, DrawnBeta, beta_densities, density_bound
from halfway.curriculum import Stream


def known(size: int) -> tuple[DrawnBeta, Forest]:
    """A fifth of the problems each: never tried, passing often, seldom, half of the time in few or in many rollouts."""
    belief = DrawnBeta((1.0, 2.0))
    passed, tried = (0, 13, 1, 4, 40), (0, 16, 8, 8, 80)
    kinds = [i % 5 for i in range(size)]
    forest = learn(belief.init(size), list(range(size)), [passed[k] for k in kinds], [tried[k] for k in kinds], 1.0)
    return belief, forest


def of_all(belief: DrawnBeta, forest: Forest, near: Aim, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rates = np.random.default_rng(seed).beta(*belief.posterior(forest, slice(None)))
    return np.arange(len(rates)), rates


def compared(draw, size: int, near: Aim, seeds: range) -> tuple[np.ndarray, np.ndarray]:
    """How many of each kind are among the nearest, on average; and the distance of the last of them."""
    kinds, last = np.zeros(5), []
    for seed in seeds:
        nodes, rates = draw(seed)
        order = np.argsort(np.abs(rates - near.target))[: near.wanted]
        kinds += np.bincount(nodes[order] % 5, minlength=5) / len(seeds)
        last.append(abs(rates[order[-1]] - near.target))
    return kinds, np.asarray(last)


@pytest.mark.parametrize(("size", "narrow"), [(4000, False), (60, True)], ids=["band", "band too narrow"])
def test_the_nearest_draws_have_the_law_of_all_draws(size: int, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    belief, forest = known(size)
    near, seeds, made = Aim(0.45, 5), range(600), []
    if narrow:  # as if by bad luck hardly any draw fell into the band
        bound = density_bound(near.target, 0.03, 3.0, 83.0)
        monkeypatch.setattr(DrawnBeta, "_band", lambda *_: (0.03, bound))

    def few(seed: int) -> tuple[np.ndarray, np.ndarray]:
        nodes, rates = belief.nearest(forest, np.arange(size), near, Stream(seed))
        made.append(len(nodes))
        assert len(set(nodes.tolist())) == len(nodes)
        return nodes, rates

    kinds, last = compared(few, size, near, seeds)
    expected, all_last = compared(lambda seed: of_all(belief, forest, near, seed), size, near, seeds)
    assert narrow or max(made) < size / 10
    assert np.abs(kinds - expected).max() < 4 * math.sqrt(2 * 1.2 / len(seeds))  # 1.2: most variance of such a count
    grid = np.sort(np.concatenate([last, all_last]))
    steps = [np.searchsorted(np.sort(each), grid, side="right") / len(seeds) for each in (last, all_last)]
    assert np.abs(steps[0] - steps[1]).max() < 1.63 * math.sqrt(2 / len(seeds))  # Kolmogorov and Smirnov at 1 %


def test_no_density_exceeds_its_bound() -> None:
    for target, radius in ((0.5, 1e-3), (0.3, 0.1), (0.9, 0.02)):
        rates = np.linspace(target - radius, target + radius, 41)
        for a in (0.3, 1.0, 2.5, 8.0, 40.0):
            for b in (0.2, 1.0, 5.0, 33.0):
                a_41, b_41 = np.full(41, a), np.full(41, b)
                density = beta_densities(rates, a_41, b_41).max()
                assert density <= density_bound(target, radius, a + b, a + b) <= density_bound(target, radius, 0.5, 80)
    tight = beta_densities(np.asarray([0.5]), np.asarray([41.0]), np.asarray([41.0]))[0]
    assert density_bound(0.5, 1e-6, 82, 82) == pytest.approx(tight, rel=0.02)


def test_all_draws_are_made_where_few_would_not_do() -> None:
    belief, forest = known(20)
    assert len(belief.nearest(forest, np.arange(20), Aim(0.5, 4), Stream(0))[0]) == 20
    hopeless = replace(forest, passed_M=np.zeros(20), tried_M=np.full(20, 1e5))  # no density at the target at all
    assert len(belief.nearest(hopeless, np.arange(20), Aim(0.5, 4), Stream(0))[0]) == 20
