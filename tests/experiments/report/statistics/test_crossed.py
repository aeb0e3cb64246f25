"""The error over seeds and problems: against drawn resamples, against the truth of a known model, against plain t."""

import numpy as np
import pytest

from halfway.experiments.report.statistics.crossed import (
    Array,
    crossed_difference,
    crossed_mean,
    resamples,
)
from halfway.experiments.report.statistics.intervals import over_seeds


def table(seed: int, seeds: int, problems: int, rest: float = 0.3) -> Array:
    """seed + problem + rest, with standard deviations .1, .2 and `rest`."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(0, 0.1, (seeds, 1)), rng.normal(0, 0.2, (1, problems)), rng.normal(0, rest, (seeds, problems))
    return np.asarray(sum(parts))


def test_drawing_resamples_gives_the_closed_form() -> None:
    values_SP, rng = table(0, 5, 30), np.random.default_rng(1)
    seeds, problems = resamples(5, 20_000, rng), resamples(30, 20_000, rng)
    drawn = [values_SP[np.ix_(s, p)].mean() for s, p in zip(seeds, problems, strict=True)]
    found = crossed_mean(values_SP)
    assert found.stderr == pytest.approx(np.std(drawn), rel=0.02)
    assert found.mean == pytest.approx(np.mean(drawn), abs=0.005)


def test_drawing_resamples_of_other_seeds_and_the_same_problems_gives_the_closed_form() -> None:
    left, right, rng = table(0, 4, 20), table(1, 6, 20), np.random.default_rng(2)
    left = left + np.linspace(0, 1, 20)  # problems that tell the arms apart
    draws = [resamples(size, 20_000, rng) for size in (4, 6, 20)]
    drawn = [left[np.ix_(a, p)].mean() - right[np.ix_(b, p)].mean() for a, b, p in zip(*draws, strict=True)]
    found = crossed_difference(left, right)
    assert found.stderr == pytest.approx(np.std(drawn), rel=0.02)
    assert (found.dof, found.values) == (3, ())


def test_the_variance_is_that_of_the_model_with_three_times_the_rest() -> None:
    found = [crossed_mean(table(seed, 4, 10)) for seed in range(4000)]
    parts = 0.1**2 / 4 + 0.2**2 / 10, 0.3**2 / 40
    assert np.mean([mean.stderr**2 for mean in found if mean.stderr]) == pytest.approx(
        parts[0] + 3 * parts[1], rel=0.03
    )
    assert np.var([mean.mean for mean in found]) == pytest.approx(sum(parts), rel=0.06)


def test_without_problems_it_is_the_t_interval_over_seeds() -> None:
    scores = [0.2, 0.5, 0.4]
    found = crossed_mean(np.array(scores)[:, None])
    plain = over_seeds(scores)
    assert found.estimate.value == pytest.approx(plain.value) and found.estimate.values == tuple(scores)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((plain.low, plain.high))


def test_one_seed_has_the_error_over_problems_only() -> None:
    found = crossed_mean(np.array([[0.0, 1.0, 1.0, 0.0]]))
    assert found.stderr == pytest.approx((1 / 3 / 4) ** 0.5) and found.dof == 3
    assert crossed_mean(np.array([[0.5]])).stderr is None


def test_p_value_is_that_of_student() -> None:
    # With two degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2).
    found = crossed_mean(np.array([[1.0], [2.0], [3.0]]))
    t = 2 / (1 / 3) ** 0.5
    assert found.p == pytest.approx(1 - t / (2 + t * t) ** 0.5)
    assert crossed_mean(np.array([[1.0], [1.0]])).p == 0 and crossed_mean(np.zeros((2, 1))).p == 1
