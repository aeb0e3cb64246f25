"""The hierarchical posterior against quadrature, against NUTS, and against itself."""

import math
from dataclasses import replace

import numpy as np
import pytest

from halfway.controllers.beliefs.forest import Forest, Scales, grow, learn
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes, gibbs
from halfway.controllers.beliefs.logit_normal import Trees, fixed_point, mean_sigmoid, sigmoid
from halfway.curriculum import Stream, UserError, restore_state, save_state

COPIES = 250
GRID = np.linspace(-22, 22, 1201)

TREES = {
    "nothing known": [(0, 0), (0, 0)],
    "root only": [(6, 8), (0, 0), (0, 0)],
    "children only": [(0, 0), (8, 8), (1, 8), (5, 8)],
    "integers": [(2, 8), (7, 8), (3, 16), (0, 8)],
    "fractions": [(1.3, 5.2), (0.0, 0.35), (7.71, 7.9), (12.6, 40.1)],
    "no child": [(0.9, 8.4)],
}
SCALES = (Scales(0.0, 1.5, 0.7), Scales(-1.0, 0.6, 0.2), Scales(0.5, 3.0, 1.5, shift=0.8))


def quadrature(counts: list[tuple[float, float]], scales: Scales) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of psi and of sigmoid(psi) of every node, by integration on a grid."""
    likelihoods = [np.exp(s * GRID - n * np.logaddexp(0, GRID)) for s, n in counts]
    prior = np.exp(-0.5 * ((GRID - scales.mu) / scales.tau) ** 2)
    # Rows are psi_0, columns psi_i.
    kernel = np.exp(-0.5 * ((GRID[None, :] - GRID[:, None] - scales.shift) / scales.sigma) ** 2)
    kernel /= kernel.sum(axis=1, keepdims=True)
    messages = [kernel @ likelihood for likelihood in likelihoods[1:]]
    root = prior * likelihoods[0] * np.prod(messages, axis=0) if messages else prior * likelihoods[0]
    densities = [root]
    for likelihood, message in zip(likelihoods[1:], messages, strict=True):
        densities.append((root / message) @ kernel * likelihood)
    values = [(d @ GRID / d.sum(), d @ sigmoid(GRID) / d.sum()) for d in densities]
    return np.asarray([v[0] for v in values]), np.asarray([v[1] for v in values])


def copies_of(counts: list[tuple[float, float]], copies: int = COPIES) -> Trees:
    """Equal trees, so that their spread is the Monte-Carlo error."""
    columns = np.asarray(counts, np.float64)
    place_C = np.repeat(np.arange(copies), len(counts) - 1)
    passed_M, tried_M = (
        np.concatenate([np.full(copies, column[0]), np.tile(column[1:], copies)]) for column in columns.T
    )
    return Trees(place_C, passed_M, tried_M)


def by_node(values_M: np.ndarray, copies: int = COPIES) -> np.ndarray:
    """One row per copy, one column per node of the tree."""
    return np.column_stack([values_M[:copies], values_M[copies:].reshape(copies, -1)])


def sampled_means(trees: Trees, scales: Scales, sweeps: int = 130, burn_in: int = 50):
    """For every copy and node, the average conditional means of psi and of sigmoid(psi)."""
    logits, rates = [], []

    def visit(i, given, logit_M):
        if i >= burn_in:
            logits.append(given.mean_M)
            rates.append(mean_sigmoid(*given))

    start = np.full(len(trees.tried_M), scales.mu)
    gibbs(trees, start, scales, sweeps, np.random.default_rng(3), visit)
    return by_node(np.mean(logits, axis=0)), by_node(np.mean(rates, axis=0))


def agrees(values: np.ndarray, exact: np.ndarray, slack: float = 1e-4) -> bool:
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return bool(np.all(np.abs(values.mean(axis=0) - exact) <= 4.5 * error + slack))


@pytest.mark.parametrize("scales", SCALES, ids=lambda s: f"tau{s.tau}")
@pytest.mark.parametrize("counts", TREES.values(), ids=TREES)
def test_posterior_means_are_those_of_quadrature(counts, scales: Scales):
    logits, rates = sampled_means(copies_of(counts), scales)
    exact_logits, exact_rates = quadrature(counts, scales)
    assert agrees(logits, exact_logits)
    assert agrees(rates, exact_rates, slack=2e-3 if scales.tau > 2 else 1e-4)


def test_default_sweeps_are_enough_from_a_cold_start():
    """Nine nodes that always pass hold one another where they are, where chains that draw in turns stay long."""
    sweeps, burn_in = HierarchicalBayes().plan
    counts, copies = [(8, 8)] * 9, 600
    for scales in SCALES[:2]:
        exact = quadrature(counts, scales)[0]
        trees, start_M = copies_of(counts, copies), np.full(9 * copies, scales.mu)
        kept: list[np.ndarray] = []
        gibbs(
            trees,
            start_M,
            scales,
            sweeps,
            np.random.default_rng(5),
            lambda i, given, _, kept=kept: kept.append(given.mean_M) if i >= burn_in else None,
        )
        assert agrees(by_node(np.mean(kept, axis=0), copies), exact)


def test_the_check_against_quadrature_can_fail():
    counts, scales = TREES["integers"], SCALES[0]
    logits, _ = sampled_means(copies_of(counts), scales)
    for wrong in (replace(scales, sigma=0.8), replace(scales, shift=0.15), replace(scales, mu=0.3)):
        assert not agrees(logits, quadrature(counts, wrong)[0])


def test_draws_have_the_posterior_spread():
    counts, scales = TREES["integers"], SCALES[0]
    trees = copies_of(counts, 4000)
    logit_M = gibbs(trees, np.zeros(len(trees.tried_M)), scales, 60, np.random.default_rng(0))
    rates = by_node(sigmoid(logit_M), 4000)
    assert agrees(rates, quadrature(counts, scales)[1])
    # E sigmoid^2 for the root, by the same integration.
    likelihoods = [np.exp(s * GRID - n * np.logaddexp(0, GRID)) for s, n in counts]
    kernel = np.exp(-0.5 * ((GRID[None, :] - GRID[:, None]) / scales.sigma) ** 2)
    root = np.exp(-0.5 * (GRID / scales.tau) ** 2) * likelihoods[0]
    for likelihood in likelihoods[1:]:
        root = root * (kernel / kernel.sum(axis=1, keepdims=True) @ likelihood)
    assert agrees(rates[:, :1] ** 2, np.asarray([root @ sigmoid(GRID) ** 2 / root.sum()]))


def node_means(trees: Trees, scales: Scales, sweeps: int = 4000) -> np.ndarray:
    """Posterior mean of psi of every node."""
    means = []
    start, generator = np.zeros(len(trees.tried_M)), np.random.default_rng(0)
    gibbs(trees, start, scales, sweeps, generator, lambda i, given, _: means.append(given.mean_M))
    return np.mean(means[100:], axis=0)


def posterior(forest: Forest, scales: Scales, draws: int, warmup: int) -> np.ndarray:
    """Log-odds of all nodes, a row per draw, by the no-U-turn sampler with the hyperparameters fixed."""
    import pyro
    import torch
    from pyro.infer import MCMC, NUTS

    from halfway.controllers.beliefs.bayes_model import evidence_of, model

    fixed = {name: torch.tensor(getattr(scales, name), dtype=torch.float64) for name in ("mu", "tau", "sigma")}
    evidence = evidence_of(forest, np.arange(forest.num_trees))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sampler = MCMC(NUTS(pyro.condition(model, fixed)), num_samples=draws, warmup_steps=warmup, disable_progbar=True)
        sampler.run(evidence, shift=scales.shift)
    samples = sampler.get_samples()
    return torch.cat([samples["root"], samples["child"]], dim=1).numpy()


def test_small_forests_agree_with_nuts():
    pytest.importorskip("pyro")
    scales, draws = Scales(0.3, 1.2, 0.6, 0.2), 200
    forest = scattered(trees=2, children=2, scales=scales, seen=0.8)
    reference = posterior(forest, scales, draws, warmup=60)
    # Half of NUTS's draws are taken as independent; the Gibbs averages are far more exact.
    error = reference.std(axis=0) / math.sqrt(draws / 2)
    trees = Trees(forest.tree_C.astype(np.int64), forest.passed_M, forest.tried_M)
    assert np.all(np.abs(node_means(trees, scales) - reference.mean(axis=0)) <= 4 * error)
    assert np.abs(reference.mean(axis=0) - scales.mu).max() > 8 * error.max()


@pytest.mark.parametrize("counts", TREES.values(), ids=TREES)
def test_fixed_point_is_close_to_the_mean(counts):
    trees = copies_of(counts, 1)
    given = fixed_point(trees, np.zeros(len(counts)), SCALES[0], 200)
    exact, exact_rates = quadrature(counts, SCALES[0])
    assert np.abs(by_node(given.mean_M, 1)[0] - exact).max() < 0.12
    assert np.abs(by_node(mean_sigmoid(*given), 1)[0] - exact_rates).max() < 0.012


def test_the_mean_of_a_sigmoid_is_that_of_many_draws():
    draws = np.random.default_rng(0).normal(1.2, 2.0, 400_000)
    assert mean_sigmoid(np.asarray([1.2]), np.asarray([4.0]))[0] == pytest.approx(sigmoid(draws).mean(), abs=2e-3)
    assert mean_sigmoid(np.asarray([0.7]), np.zeros(1))[0] == pytest.approx(1 / (1 + math.exp(-0.7)))


def scattered(trees: int, children: int, scales: Scales | None = None, seed: int = 0, seen: float = 1.0) -> Forest:
    """A forest with counts drawn from the model, discounted at random; `seen` = share of nodes with any."""
    generator = np.random.default_rng(seed)
    scales = scales or SCALES[0]
    forest = HierarchicalBayes(scales.mu, scales.tau, scales.sigma, scales.shift).init(trees)
    forest = grow(forest, np.repeat(np.arange(trees), children).tolist())
    roots = generator.normal(scales.mu, scales.tau, trees)
    logits = np.concatenate([roots, generator.normal(roots[forest.tree_C] + scales.shift, scales.sigma)])
    passed = generator.binomial(8, sigmoid(logits)).astype(float)
    weight = generator.uniform(0.3, 1.5, len(logits)) * (generator.random(len(logits)) < seen)
    return replace(forest, passed_M=weight * passed, tried_M=weight * 8.0, stale_R=np.ones(trees, np.bool_))


@pytest.mark.parametrize("estimate", ["mean_logit", "mean_rate"])
def test_incremental_fixed_point_is_exactly_the_full_one(estimate):
    bayes = HierarchicalBayes(inference="fixed_point", estimate=estimate, iterations=500)
    forest = bayes.refresh(scattered(200, 3, seen=0.6), 0, Stream(0))
    changed = learn(forest, [5, 17, 201, 650], [8, 0, 3, 4], [8, 8, 8, 8], 0.9)
    assert np.flatnonzero(changed.stale_R).tolist() == sorted({5, 17, int(forest.tree_C[1]), int(forest.tree_C[450])})
    part = bayes.refresh(changed, 1, Stream(0))
    full = bayes.refresh(replace(changed, stale_R=np.ones(200, np.bool_)), 1, Stream(0))
    assert part.rate_M == pytest.approx(full.rate_M, abs=2e-6)
    assert np.abs(part.rate_M - forest.rate_M).max() > 0.05


def test_incremental_sweeps_leave_other_trees_and_agree_with_full_ones():
    bayes = HierarchicalBayes(sweeps=400, burn_in=50)
    forest = bayes.refresh(scattered(60, 3), 0, Stream(0))
    changed = learn(forest, [5, 61], [8, 0], [8, 8], 0.9)
    part = bayes.refresh(changed, 1, Stream(0))
    full = bayes.refresh(replace(changed, stale_R=np.ones(60, np.bool_)), 1, Stream(1))
    touched = np.isin(np.concatenate([np.arange(60), forest.tree_C]), [5, forest.tree_C[1]])
    assert np.array_equal(part.rate_M[~touched], forest.rate_M[~touched])
    assert np.abs(part.rate_M - full.rate_M).max() < 0.05
    assert np.abs(part.rate_M - forest.rate_M)[touched].max() > 0.05
    assert not part.stale_R.any() and part.refreshed == 1


def test_a_tree_does_not_depend_on_the_others():
    bayes = HierarchicalBayes(inference="fixed_point", iterations=500)
    counts = [(3.0, 8.0), (6.5, 7.0), (0.0, 0.0)]
    alone = fixed_point(copies_of(counts, 1), np.zeros(3), SCALES[0], 500).mean_M
    forest = scattered(30, 2)
    place = np.flatnonzero(forest.tree_C == 11) + 30
    nodes = [11, *place.tolist()]
    passed_M, tried_M = forest.passed_M.copy(), forest.tried_M.copy()
    passed_M[nodes], tried_M[nodes] = zip(*counts, strict=True)
    inside = bayes.refresh(replace(forest, passed_M=passed_M, tried_M=tried_M), 0, Stream(0))
    assert inside.rate_M[nodes] == pytest.approx(sigmoid(alone), abs=1e-6)


@pytest.mark.parametrize("inference", ["collapsed", "fixed_point"])
def test_unseen_trees_are_believed_as_the_prior_says(inference):
    bayes = HierarchicalBayes(mu=-0.4, shift=0.5, inference=inference)
    forest = bayes.refresh(grow(bayes.init(4), [1, 1, 3]), 0, Stream(0))
    assert forest.rate_M == pytest.approx(sigmoid(np.asarray([-0.4] * 4 + [0.1] * 3)))
    wide = replace(bayes, estimate="mean_rate")
    forest = wide.refresh(grow(wide.init(4), [1]), 0, Stream(0))
    exact = quadrature([(0, 0), (0, 0)], Scales(-0.4, 1.5, 0.7, 0.5))[1]
    assert forest.rate_M[[0, 4]] == pytest.approx(exact, abs=1e-3)


def test_draws_change_every_step_and_only_then():
    bayes = HierarchicalBayes(estimate="draw")
    forest = scattered(400, 1, seen=0.5)
    first = bayes.refresh(forest, 0, Stream(0))
    assert bayes.refresh(first, 0, Stream(9)) is first
    second = bayes.refresh(first, 1, Stream(1))
    assert (second.rate_M != first.rate_M).all()
    unseen = np.flatnonzero(forest.tried_M[:400] + forest.tried_M[400:] == 0)
    assert np.std(np.log(first.rate_M / (1 - first.rate_M))[unseen]) == pytest.approx(1.5, rel=0.3)


def test_equal_streams_give_equal_estimates_through_a_checkpoint():
    bayes = HierarchicalBayes()
    forest = bayes.refresh(scattered(50, 3), 0, Stream(0))
    restored = restore_state(bayes.init(50), save_state(forest))
    for other in (forest, restored):
        after = bayes.refresh(learn(other, [3, 60], [1, 8], [8, 8], 0.9), 1, Stream(4))
        expected = bayes.refresh(learn(forest, [3, 60], [1, 8], [8, 8], 0.9), 1, Stream(4))
        assert np.array_equal(after.rate_M, expected.rate_M) and np.array_equal(after.logit_M, expected.logit_M)


def test_fit_recovers_the_hyperparameters_and_leaves_torch_alone():
    pytest.importorskip("pyro")
    import torch

    from halfway.controllers.beliefs.bayes_model import fit

    truth = Scales(1.0, 2.0, 1.2, 0.8)
    forest = scattered(200, 5, truth, seed=1)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    found = fit(forest, Scales(0.0, 1.0, 0.5), fit_shift=True, seed=0, steps=250)
    assert torch.equal(before, torch.random.get_rng_state())
    assert found.mu == pytest.approx(truth.mu, abs=0.35)
    assert found.tau == pytest.approx(truth.tau, rel=0.2)
    assert found.sigma == pytest.approx(truth.sigma, rel=0.25)
    assert found.shift == pytest.approx(truth.shift, abs=0.35)
    assert fit(forest, Scales(0.0, 1.0, 0.5), True, 0, 5) == fit(forest, Scales(0.0, 1.0, 0.5), True, 0, 5)


def test_a_fit_without_any_child_leaves_sigma_to_its_prior():
    bayes_model = pytest.importorskip("halfway.controllers.beliefs.bayes_model")
    found = bayes_model.fit(scattered(40, 0), Scales(0.0, 1.5, 0.7), fit_shift=False, seed=0, steps=60)
    assert 0.2 < found.sigma < 2 and found.shift == 0.0


def test_refits_happen_on_schedule_and_concern_every_tree(monkeypatch):
    bayes_model = pytest.importorskip("halfway.controllers.beliefs.bayes_model")
    monkeypatch.setattr(bayes_model, "fit", lambda forest, start, fit_shift, seed: Scales(seed, 1.0, 0.5))
    bayes = HierarchicalBayes(hyperparameters="fitted", refit_every=2)
    forest = scattered(30, 2)
    steps = []
    for step in range(5):
        before = forest.fitted
        rates, forest = forest.rate_M, bayes.refresh(forest, step, Stream(step))
        if forest.fitted != before:
            steps.append(step)
            assert (forest.rate_M != rates).all() and not forest.stale_R.any()
    assert steps == [2, 4]
    assert forest.scales == Scales(4, 1.0, 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tau": 0.0}, "bayes.tau"),
        ({"sigma": 50.0}, "bayes.sigma"),
        ({"sweeps": 10, "burn_in": 10}, "bayes.burn_in"),
        ({"sweeps": 0}, "bayes.sweeps"),
        ({"inference": "fixed_point", "estimate": "draw"}, "bayes.estimate"),
        ({"fit_shift": True}, "bayes.fit_shift"),
        ({"refit_every": 0}, "bayes.refit_every"),
    ],
)
def test_options_are_checked(options, words: str):
    with pytest.raises(UserError, match=words):
        HierarchicalBayes(**options)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("halfway.controllers.beliefs.hierarchical_bayes.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pyro.*halfway\[bayes\]"):
        HierarchicalBayes(hyperparameters="fitted")


@pytest.mark.parametrize("kind", ["hierarchical", "beta", "last_rate"])
def test_every_belief_is_up_to_date_after_one_refresh(kind):
    belief = PassRateBelief(kind=kind)
    forest = grow(belief.init(3), [1])
    forest = belief.learn(forest, [0, 3], [8, 0], [8, 8])
    forest = belief.refresh(forest, 0, Stream(0))
    assert belief.refresh(forest, 0, Stream(1)) is forest
    assert forest.rate_M[0] > 0.7 and forest.rate_M[3] < 0.3 and forest.rate_M[2] == 0.5
    assert forest.rate_M[1] < 0.45 if kind == "hierarchical" else forest.rate_M[1] == 0.5


def test_rivals_have_known_answers():
    for belief, expected in (
        (PassRateBelief(kind="beta", forgetting=0.5), [(0.5 * 8 + 2 + 1) / (0.5 * 8 + 8 + 2), 0.5, 0.5]),
        (PassRateBelief(kind="last_rate", forgetting=0.5), [2 / 8, 0.5, 2 / 8]),
    ):
        forest = grow(belief.init(2), [0])
        forest = belief.learn(forest, [0], [8], [8])
        forest = belief.refresh(belief.learn(forest, [0], [2], [8]), 0, Stream(0))
        assert forest.rate_M == pytest.approx(expected)


def test_thompson_draws_follow_the_beta_posterior():
    belief = PassRateBelief(kind="beta")
    belief = replace(belief, beta=replace(belief.beta, draw=True))
    forest = belief.init(4000)
    forest = belief.learn(forest, list(range(4000)), [6] * 4000, [8] * 4000)
    rates = belief.refresh(forest, 0, Stream(0)).rate_M
    assert rates.mean() == pytest.approx(7 / 10, abs=0.01)
    assert rates.std() == pytest.approx(math.sqrt(0.7 * 0.3 / 11), rel=0.05)
