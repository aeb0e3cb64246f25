"""Cost to reach a target: by hand, with runs that never reach it, and against the error of a straight line."""

import math

import numpy as np
import pytest
from contests import comparison_of, run_of

from halfway.experiments.report.analysis.design import read_design
from halfway.experiments.report.analysis.reach import Reach, ReachRow, cost_to_reach
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.intervals import ratio_over_seeds


def reached(runs: list[Run], **config: object) -> list[Reach]:
    comparison = comparison_of(runs, **config)
    return cost_to_reach(comparison.runs, read_design(comparison))


def row_of(reach: Reach, arm: str) -> ReachRow:
    (row,) = (row for row in reach.rows if row.arm == arm)
    return row


def lines(arm: str, *ends: float, tokens: int = 10) -> list[Run]:
    """Runs that rise in straight lines from 0 over 400 rollouts."""
    return [run_of(arm, seed, scores=np.linspace(0, end, 5).tolist(), tokens=tokens) for seed, end in enumerate(ends)]


def test_costs_and_ratios_by_hand() -> None:
    # .2 is reached after 200 and 100 rollouts, by the other arm after 100 and 80.
    runs = [*lines("base", 0.4, 0.8), *lines("fast", 0.8, 1.0, tokens=20)]
    fixed, _ = reached(runs, targets=[0.2])
    assert (fixed.kind, fixed.target, fixed.baseline) == ("fixed", 0.2, "base")
    base, fast = row_of(fixed, "base"), row_of(fixed, "fast")
    assert (base.reached, fast.reached) == (2, 2)
    assert base.spent["rollouts"].amount is not None and base.spent["rollouts"].ratio is None
    assert base.spent["rollouts"].amount.value == pytest.approx(math.sqrt(200 * 100))
    assert base.spent["rollouts"].amount.values == pytest.approx((200, 100))
    expected = ratio_over_seeds([100, 80], [200, 100])
    found = fast.spent["rollouts"].ratio
    assert found is not None and found.values == pytest.approx(expected.values)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    # Twice the tokens in each rollout, half of them trained: rho weighs these.
    for axis, ratio in (("steps", 1.0), ("tokens", 2.0), ("cost_0.25", 2.0)):
        beside = fast.spent[axis].ratio
        assert beside is not None and beside.value == pytest.approx(ratio * expected.value)
    assert base.spent["cost_1"].amount is not None
    assert base.spent["cost_1"].amount.values == pytest.approx((2000 + 1000, 1000 + 500))


def test_a_run_that_never_reaches_the_target_makes_bounds() -> None:
    runs = [*lines("base", 0.4, 0.8), *lines("slow", 0.1, 0.3), *lines("never", 0.1, 0.1)]
    fixed, _ = reached(runs, targets=[0.2])
    slow = row_of(fixed, "slow")
    spent = slow.spent["rollouts"]
    assert (slow.reached, slow.seeds, spent.bound, spent.ratio_bound) == (1, 2, "at least", "at least")
    # 400, all that was spent, and 267 against 200 and 100.
    assert spent.amount is not None and spent.amount.values == pytest.approx((400, 800 / 3))
    assert spent.amount.high is None and spent.ratio is not None and spent.ratio.high is None
    assert spent.ratio.value == pytest.approx(math.sqrt(2 * 8 / 3)) and spent.p is not None
    never = row_of(fixed, "never")
    assert (never.reached, never.spent["rollouts"].amount, never.spent["rollouts"].ratio) == (0, None, None)


def test_a_bound_on_the_wrong_side_shows_nothing() -> None:
    runs = [*lines("base", 0.4, 0.4), *lines("mixed", 4.0, 0.1)]
    fixed, _ = reached(runs, targets=[0.2])
    spent = row_of(fixed, "mixed").spent["rollouts"]
    # 20 and at least 400 against 200: on average at least x.32, with no upper bound.
    assert spent.ratio is not None and spent.ratio.value < 1 and spent.ratio_bound == "at least" and spent.p is None


def test_the_baseline_that_never_reaches_it_makes_an_upper_bound() -> None:
    fixed, _ = reached([*lines("base", 0.1, 0.4), *lines("fast", 0.8, 0.8)], targets=[0.2])
    spent = row_of(fixed, "fast").spent["rollouts"]
    assert (spent.bound, spent.ratio_bound) == ("", "at most")
    assert spent.ratio is not None and spent.ratio.low is None and spent.p is not None
    assert spent.ratio.values == pytest.approx((100 / 400, 100 / 200))


def test_the_end_of_the_baseline_is_a_target_of_its_own_for_each_seed() -> None:
    _, last = reached([*lines("base", 0.4, 0.8), *lines("fast", 0.8, 1.0)], targets=[0.2])
    assert (last.kind, last.target) == ("baseline", pytest.approx(0.6))
    fast = row_of(last, "fast").spent["rollouts"]
    assert fast.amount is not None and fast.amount.values == pytest.approx((200, 320))
    assert row_of(last, "base").reached == 2
    assert fast.ratio is not None and fast.ratio.values == pytest.approx((0.5, 0.8))


def test_without_targets_it_is_the_highest_score_that_every_run_reached() -> None:
    lowest, last = reached([*lines("base", 0.4, 0.8), *lines("fast", 0.8, 0.3)])
    assert (lowest.kind, lowest.target, last.kind) == ("lowest", pytest.approx(0.3), "baseline")
    assert all(row.reached == row.seeds for row in lowest.rows)


def test_a_lucky_evaluation_is_no_arrival() -> None:
    runs = [run_of("base", seed, scores=[0.0, 0.5, 0.1, 0.6]) for seed in (0, 1)]
    fixed = reached(runs, targets=[0.4])[0]
    # The fall pools the second and the third: .3, .3, and .4 is a third of the way from there to .6.
    amount = row_of(fixed, "base").spent["rollouts"].amount
    assert amount is not None and amount.values == pytest.approx((200 + 100 / 3,) * 2)


def test_a_target_met_at_the_start_costs_nothing() -> None:
    runs = [run_of(arm, seed, scores=[0.3, 0.6]) for arm in ("base", "other") for seed in (0, 1)]
    fixed = reached(runs, targets=[0.2])[0]
    spent = row_of(fixed, "other").spent["rollouts"]
    assert (spent.amount, spent.bound, spent.ratio, spent.at_start) == (None, "", None, 2)


def test_a_run_of_the_baseline_that_collapses_is_told_apart_from_one_that_never_arrives() -> None:
    """Its curve, made to rise, is flat: its end was there from the start, so that nothing can be divided by it."""
    fallen = run_of("base", 1, scores=[0.3, 0.0, 0.0, 0.0, 0.0])
    fixed, last = reached([*lines("base", 0.4), fallen, *lines("other", 0.4, 0.8)], targets=[0.05])
    base, other = (row_of(last, arm) for arm in ("base", "other"))
    assert last.target == pytest.approx((0.4 + 0.06) / 2)
    assert (base.reached, base.spent["rollouts"].amount, base.spent["rollouts"].at_start) == (2, None, 1)
    assert (other.reached, other.spent["rollouts"].at_start, other.spent["rollouts"].ratio) == (2, 0, None)
    assert other.spent["rollouts"].amount is not None
    assert other.spent["rollouts"].amount.values == pytest.approx((400, 30))
    assert row_of(fixed, "base").spent["rollouts"].at_start == 1


def test_ratios_leave_out_the_seeds_with_which_the_baseline_had_the_target_from_the_start() -> None:
    # To the ends .4 and .8 of the baseline's first two runs the other arm needs 200 and 320 of 400 rollouts.
    base = [*lines("base", 0.4, 0.8), run_of("base", 2, scores=[0.3, 0.0, 0.0, 0.0, 0.0])]
    _, last = reached([*base, *lines("other", 0.8, 1.0, 0.8)], targets=[0.05])
    spent = row_of(last, "other").spent["rollouts"]
    assert spent.amount is not None and spent.amount.values == pytest.approx((200, 320, 30))
    expected = ratio_over_seeds([200, 320], [400, 400])
    assert spent.left_out == (2,) and spent.ratio is not None and spent.ratio.values == pytest.approx((0.5, 0.8))
    assert (spent.ratio.value, spent.ratio.low, spent.ratio.high) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )
    assert spent.ratio_bound == "" and spent.p is not None and spent.adjusted_p is not None
    # A seed that the other arm lacks is in no ratio anyway.
    _, fewer = reached([*base, *lines("other", 0.8, 1.0)], targets=[0.05])
    spent = row_of(fewer, "other").spent["rollouts"]
    assert spent.ratio is not None and spent.ratio.values == pytest.approx((0.5, 0.8)) and spent.left_out == ()


def test_an_arm_that_had_the_target_from_the_start_with_the_same_seed_has_a_ratio_over_the_others() -> None:
    ready = [run_of(arm, 2, scores=[0.3, 0.6]) for arm in ("base", "other")]
    fixed = reached([*lines("base", 0.4, 0.8), *lines("other", 0.8, 1.0), *ready], targets=[0.2])[0]
    spent = row_of(fixed, "other").spent["rollouts"]
    assert (spent.amount, spent.at_start, spent.left_out) == (None, 1, (2,))
    assert spent.ratio is not None and spent.ratio.values == pytest.approx((100 / 200, 80 / 100))
    # With a seed of its own it would be a ratio of 0, which a geometric mean has no room for.
    other = [*lines("other", 0.8, 1.0)[:1], run_of("other", 1, scores=[0.3, 0.6]), ready[1]]
    fixed = reached([*lines("base", 0.4, 0.8, 0.4), *other], targets=[0.2])[0]
    spent = row_of(fixed, "other").spent["rollouts"]
    assert (spent.at_start, spent.ratio, spent.left_out) == (2, None, ())


def test_problems_are_resampled_too() -> None:
    """Of one seed the error is over problems: of a straight line to the height h, log cost is log target - log h."""
    ends = np.random.default_rng(0).integers(2, 9, 200)
    run = run_of("base", 0, [[0] * 200, ends.tolist()])
    fixed = reached([run], targets=[0.1])[0]
    amount = row_of(fixed, "base").spent["rollouts"].amount
    assert amount is not None and amount.low is not None and amount.high is not None
    rates = ends / 8
    stderr = rates.std(ddof=1) / math.sqrt(200) / rates.mean()  # delta method
    assert math.log(amount.high / amount.low) == pytest.approx(2 * 1.972 * stderr, rel=0.06)


def test_the_null_ratio_is_rarely_clear() -> None:
    from contests import contest

    generator, called = np.random.default_rng(3), 0
    for _ in range(60):
        found = contest(generator, {"same_0": 0.3, "same_1": 0.3}, targets=[0.5], contrasts={"baseline": "same_0"})
        fixed = cost_to_reach(found.runs, read_design(found), draws=200)[0]
        called += row_of(fixed, "same_1").spent["rollouts"].clear
    assert called <= 4
