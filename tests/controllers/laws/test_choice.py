"""Which problems are chosen, and how many rollouts each gets."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from controller_harness import group, problem_set
from messages import says
from scipy import integrate, stats

from halfway.controllers.laws.choose_problems import Choice, _smallest, first_by
from halfway.controllers.laws.rollout_budget import allocate, hit_gain, hit_utility, signal_gain, sufficient_size
from halfway.controllers.laws.slots import fill_slots
from halfway.curriculum import Origin, Plan, Request, Skip, UserError

RATES = np.asarray([0.05, 0.2, 0.35, 0.45, 0.5, 0.65, 0.9, 0.99])
PROBLEMS = problem_set(6)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("wanted", [1, 5, 50, 199, 200, 300])
def test_smallest_by_two_keys_is_what_sorting_gives(wanted: int) -> None:
    second = generator(2).random(200)
    for distinct in (1, 5, 60):
        first = generator(1).integers(0, distinct, 200)
        assert first_by([first, second], wanted, generator()).tolist() == np.lexsort([second, first])[:wanted].tolist()


@pytest.mark.parametrize("wanted", [1, 7, 400, 2999, 3000])
@pytest.mark.parametrize("kind", ["distinct", "all equal", "nearly all equal", "few values", "rising", "near ties"])
def test_smallest_of_many_whatever_they_look_like(kind: str, wanted: int) -> None:
    noise = generator(3).random(3000)
    values = {
        "distinct": noise,
        "all equal": np.full(3000, 0.25),
        "nearly all equal": np.where(noise < 0.999, 0.25, noise - 0.99),
        "few values": np.floor(4 * noise),
        "rising": np.arange(3000.0),
        "near ties": 0.25 + 1e-7 * np.floor(30 * noise),
    }[kind]
    assert _smallest(values, wanted) == np.sort(values)[wanted - 1]
    for digits in (None, 6):
        key = values if digits is None else np.round(values, digits)
        chosen = first_by([values], wanted, generator(), digits)
        assert len(set(chosen.tolist())) == wanted and (key[chosen] == np.sort(key)[:wanted]).all()


def test_ties_are_broken_evenly() -> None:
    taken = np.zeros(10)
    for seed in range(2000):
        taken[first_by([np.zeros(10)], 3, generator(seed))] += 1
    assert np.abs(taken / 2000 - 0.3).max() < 0.04  # four standard errors
    taken, values = np.zeros(40), np.repeat([0.5, 0.1], 20)  # so many ties that they are tried at random
    for seed in range(2000):
        taken[first_by([values], 3, generator(seed), 6)] += 1
    assert not taken[:20].any() and np.abs(taken[20:] / 2000 - 0.15).max() < 0.032


def test_nearest_takes_the_smallest_distances_in_order() -> None:
    assert Choice().choose(RATES, 2, generator()).tolist() == [4, 3]
    third = {int(Choice().choose(RATES, 3, generator(seed))[2]) for seed in range(20)}
    assert third == {2, 5}  # 0.35 and 0.65 are equally far
    assert Choice(target=0.9).choose(RATES, 2, generator()).tolist() == [6, 7]


def test_band_takes_any_inside_before_the_nearest_outside() -> None:
    law, first = Choice("band"), set()
    for seed in range(60):
        chosen = law.choose(RATES, 6, generator(seed)).tolist()
        assert set(chosen[:4]) == {2, 3, 4, 5} and chosen[4:] == [1, 6]
        first.add(chosen[0])
    assert first == {2, 3, 4, 5}


def test_mass_draws_in_proportion_to_pass_at_n_minus_the_rate() -> None:
    law, counts = Choice("mass"), np.zeros(len(RATES))
    for seed in range(8000):
        counts[law.choose(RATES, 1, generator(seed), size=4)] += 1
    weights = 1 - (1 - RATES) ** 4 - RATES
    assert np.abs(counts / 8000 - weights / weights.sum()).max() < 0.02


def test_straddle_takes_half_from_each_side_and_more_where_one_runs_out() -> None:
    law = Choice("straddle")
    assert law.choose(RATES, 4, generator()).tolist() == [4, 5, 3, 2]
    assert law.choose(RATES, 5, generator()).tolist() == [4, 5, 6, 3, 2]
    assert law.choose(RATES[4:], 3, generator()).tolist() == [0, 1, 2]
    assert law.choose(RATES[:5], 4, generator()).tolist() == [4, 3, 2, 1]
    assert sorted(law.choose(RATES, 99, generator()).tolist()) == list(range(8))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"target": 0.0}, says("law.target", "between 0 and 1", 0.0)),
        ({"target": 1.0}, says("law.target", "between 0 and 1", 1.0)),
        ({"band": (0.7, 0.3)}, says("law.band", "low <= high", (0.7, 0.3))),
    ],
)
def test_bad_laws_are_refused(options: dict, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Choice(**options)


def lowest(free_F: np.ndarray, wanted: int) -> np.ndarray:
    return free_F[:wanted]


def test_slots_go_to_problems_that_are_nowhere_yet_then_to_refused_ones_then_to_repeats() -> None:
    plan = Plan(
        0,
        wanted=5,
        num_rollouts=8,
        requests=(Request(PROBLEMS[1], 8),),
        skipped=(Skip("p2", "greso", "easy"),),
        in_hand=(group(PROBLEMS[0], 3),),
    )
    assert fill_slots(plan, PROBLEMS, lowest) == [3, 4, 5, 0]
    full = Plan(0, wanted=9, num_rollouts=8, requests=plan.requests, skipped=plan.skipped, in_hand=plan.in_hand)
    assert fill_slots(full, PROBLEMS, lowest) == [3, 4, 5, 0, 2, 0, 1, 2]


def test_generated_problems_take_no_place_of_the_set() -> None:
    stranger = Request(problem_set(1, generated=1).generated[0], 8, Origin.GENERATED)
    assert fill_slots(Plan(0, 3, 8, requests=(stranger,)), PROBLEMS, lowest) == [0, 1]


ALLOCATED = [(0.5, 0.1, 0.9), (0.02, 0.3, 0.5), (0.0, 0.25, 1.0), (0.7, 0.7, 0.7)]


def value(rate: float, size: int) -> float:
    return (1 - rate**size - (1 - rate) ** size) * rate * (1 - rate) ** 2


def knapsack(rates: Sequence[float], budget: int, least: int, most: int) -> float:
    """The best total, by dynamic programming over the problems."""
    best = {0: 0.0}
    for rate in rates:
        best = {
            spent: max(
                best[spent - size] + value(rate, size) for size in range(least, most + 1) if spent - size in best
            )
            for spent in range(budget + 1)
            if any(spent - size in best for size in range(least, most + 1))
        }
    return best[budget]


@pytest.mark.parametrize("rates", ALLOCATED)
@pytest.mark.parametrize("budget", [6, 9, 14, 24])
def test_the_knapsack_is_the_best_of_all_splits(rates: Sequence[float], budget: int) -> None:
    given = allocate(budget, [2] * 3, [16] * 3, lambda i, n: signal_gain(rates[i], n))
    assert sum(given) == budget and all(2 <= size <= 16 for size in given)
    splits = [split for split in product(range(2, 17), repeat=3) if sum(split) == budget]
    best = max(sum(map(value, rates, split)) for split in splits)
    assert sum(map(value, rates, given)) == pytest.approx(best, abs=1e-12)
    assert knapsack(rates, budget, 2, 16) == pytest.approx(best, abs=1e-12)


def test_gains_add_up_to_the_value_and_fall() -> None:
    for rate in (0.01, 0.2, 0.5, 0.95):
        gains = [signal_gain(rate, size) for size in range(1, 40)]
        assert np.cumsum(gains) == pytest.approx([value(rate, size) for size in range(2, 41)])
        assert np.all(np.diff(gains) <= 0)


def test_equals_share_evenly_and_bounds_hold() -> None:
    assert allocate(10, [2] * 4, [9] * 4, lambda i, n: 0.0) == [3, 3, 2, 2]
    assert allocate(9, [2, 2, 2], [3, 3, 9], lambda i, n: -i) == [3, 3, 3]
    assert allocate(0, [], [], lambda i, n: 0.0) == []
    with pytest.raises(AssertionError):
        allocate(5, [2] * 3, [9] * 3, lambda i, n: 0.0)


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("certainty", [0.5, 0.9])
def test_the_sufficient_size_is_the_first_at_which_the_likelier_outcome_alone_is_unlikely(
    rate: float, certainty: float
) -> None:
    size = int(sufficient_size(rate, certainty))
    assert max(rate, 1 - rate) ** size <= 1 - certainty + 1e-9 < max(rate, 1 - rate) ** (size - 1) + 2e-9
    assert sufficient_size(rate, 1.0) == float("inf")


@pytest.mark.parametrize(("passed", "size", "more"), [(0, 4, 1), (0, 4, 7), (2, 4, 3), (4, 4, 2), (1, 6, 5), (3, 8, 0)])
def test_the_hit_utility_is_the_posterior_chance_of_a_success(passed: int, size: int, more: int) -> None:
    posterior = stats.beta(passed + 1, size - passed + 1)
    by_quadrature, _ = integrate.quad(lambda rate: posterior.pdf(rate) * (1 - (1 - rate) ** more), 0, 1)
    assert hit_utility(passed, size, more) == pytest.approx(by_quadrature, abs=1e-9)
    # The same by counting: with a uniform prior every number of successes in all rollouts together is equally likely.
    whole = size + more
    total = sum(Fraction(comb(size, passed) * comb(more, k - passed), comb(whole, k)) for k in range(passed, whole + 1))
    none = Fraction(comb(size, passed), comb(whole, passed))
    assert hit_utility(passed, size, more) == pytest.approx(float(1 - none / total))
    assert hit_gain(passed, size, more) == pytest.approx(
        hit_utility(passed, size, more + 1) - hit_utility(passed, size, more)
    )


@pytest.mark.parametrize("passed", [(0, 0, 4), (0, 1, 2), (3, 1, 0), (4, 4, 4)])
@pytest.mark.parametrize("budget", [3, 8, 12])
def test_greedy_reaches_the_largest_total_hit_utility(passed: Sequence[int], budget: int) -> None:
    given = allocate(budget, [0] * 3, [budget] * 3, lambda i, more: hit_gain(passed[i], 4, more))
    splits = [split for split in product(range(budget + 1), repeat=3) if sum(split) == budget]

    def total(split: Sequence[int]) -> float:
        return sum(hit_utility(k, 4, more) for k, more in zip(passed, split, strict=True))

    assert total(given) == pytest.approx(max(map(total, splits)), abs=1e-12)
