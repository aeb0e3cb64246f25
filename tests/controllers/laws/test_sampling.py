"""Which rollouts train: against brute force over subsets, and closed forms."""

from itertools import combinations, product

import numpy as np
import pytest

from halfway.controllers.laws.sampling import balanced_choice, most_varied, standardized, variance_score


@pytest.mark.parametrize("keep", [2, 3, 4, 6, 7])
def test_the_most_varied_rollouts_are_the_best_of_all_subsets(keep: int) -> None:
    generator = np.random.default_rng(keep)
    for _ in range(20):
        for rewards in (generator.random(7), generator.integers(0, 2, 7), generator.integers(0, 4, 7)):
            places = most_varied(rewards, keep)
            assert len(set(places.tolist())) == keep and list(places) == sorted(places)
            best = max(np.var(np.asarray(rewards, float)[list(subset)]) for subset in combinations(range(7), keep))
            assert np.var(np.asarray(rewards, float)[places]) == pytest.approx(best)


@pytest.mark.parametrize("size", [2, 3, 8, 9, 16])
def test_the_largest_variance_score_is_one_for_even_and_odd_groups(size: int) -> None:
    scores = [variance_score(passed, size) for passed in range(size + 1)]
    assert max(scores) == pytest.approx(1.0) and scores[size // 2] == pytest.approx(1.0)
    assert scores[0] == scores[size] == 0.0
    largest = max(np.var([1.0] * k + [0.0] * (size - k), ddof=1) for k in range(size + 1))
    for passed, score in enumerate(scores):
        variance = np.var([1.0] * passed + [0.0] * (size - passed), ddof=1)
        assert score == pytest.approx(variance / largest)
    assert variance_score(1, 1) == variance_score(0, 0) == 0.0


def test_a_balanced_choice_has_half_of_each_outcome_where_it_can() -> None:
    for outcomes in product((False, True), repeat=6):
        for keep in (2, 3, 4):
            chosen = balanced_choice(outcomes, keep)
            passed = sum(outcomes[i] for i in chosen)
            assert len(chosen) == len(set(chosen)) == keep
            assert passed == min(sum(outcomes), max(keep // 2, keep - (6 - sum(outcomes))))
    assert balanced_choice([True, True, False, True, False, False], 4) == [0, 1, 2, 4]


def test_standardized_rewards_with_a_virtual_one() -> None:
    # All of four failed, and one virtual success: mean 1/5, sample variance (4/25 * 4 + 16/25) / 4 ... = 1/5.
    found = standardized([0, 0, 0, 0], [1.0], epsilon=0.0)
    assert found == pytest.approx([-0.2 / np.sqrt(0.2)] * 4)
    assert standardized([1, 0], epsilon=0.0) == pytest.approx([np.sqrt(0.5), -np.sqrt(0.5)])
    assert standardized([1, 1, 1]) == pytest.approx([0, 0, 0])
