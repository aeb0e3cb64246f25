"""Arms beside the baseline along each measure of cost: by hand on straight lines, with few seeds, and false alarms."""

import numpy as np
import pytest
from contests import comparison_of, contest, run_of

from halfway.experiments.report.analysis.plan import read_design
from halfway.experiments.report.analysis.savings import END, SavingRow, Savings, savings
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.holm import holm


def compared(runs: list[Run], **config: object) -> dict[str, Savings]:
    comparison = comparison_of(runs, **config)
    return {each.axis.name: each for each in savings(comparison.runs, read_design(comparison), draws=200)}


def row_of(found: Savings, arm: str) -> SavingRow:
    (row,) = (row for row in found.rows if row.arm == arm)
    return row


def lines(arm: str, *ends: float, tokens: int = 10, first: int = 0) -> list[Run]:
    """Runs that rise in straight lines from 0 over 400 rollouts."""
    return [
        run_of(arm, seed, scores=np.linspace(0, end, 5).tolist(), tokens=tokens) for seed, end in enumerate(ends, first)
    ]


def test_areas_gains_and_ratios_by_hand() -> None:
    along = compared([*lines("base", *[0.4] * 4), *lines("fast", *[0.8] * 4, tokens=20)], targets=[0.2])
    assert list(along) == ["rollouts", "tokens", "cost_0.25", "cost_1"]
    found = along["rollouts"]
    base, fast = row_of(found, "base"), row_of(found, "fast")
    assert (found.amount, base.seeds, base.gain, base.ratios) == (400, 4, None, {})
    assert (found.goals[END].score, found.goals[END].spent) == pytest.approx((0.4, 400))
    assert (found.goals["0.2"].score, found.goals["0.2"].spent) == pytest.approx((0.2, 200))
    assert (base.area, fast.area, base.best, fast.best) == pytest.approx((0.2, 0.4, 0, 1))
    assert fast.gain is not None and (fast.gain.value, fast.gain.low, fast.gain.high) == pytest.approx((0.2,) * 3)
    for goal in (END, "0.2"):
        measured = fast.ratios[goal]
        assert measured is not None and measured.value == pytest.approx(0.5) and measured.clear
        # Twice the tokens in each rollout, half of them trained.
        for axis in ("tokens", "cost_1"):
            beside = row_of(along[axis], "fast").ratios[goal]
            assert beside is not None and beside.value == pytest.approx(1.0, rel=0.02)
    # Up to the 4,000 tokens that both have spent, at which the other arm is half-way up.
    assert row_of(along["tokens"], "fast").area == pytest.approx(0.2, rel=0.02)


def test_one_run_of_eight_that_never_arrives_vetoes_nothing() -> None:
    found = compared([*lines("base", *[0.4] * 8), *lines("fast", *[0.8] * 7, 0.1)])["rollouts"]
    measured = row_of(found, "fast").ratios[END]
    assert measured is not None and measured.value == pytest.approx(0.4 / np.mean([0.8] * 7 + [0.1]), abs=0.01)
    assert measured.clear and measured.never == 0


def test_an_arm_that_never_arrives_is_censored() -> None:
    found = compared([*lines("base", *[0.4, 0.5] * 2), *lines("slow", *[0.1, 0.2] * 2)])["rollouts"]
    measured = row_of(found, "slow").ratios[END]
    assert measured is not None and (measured.value, measured.never) == (None, 1)


def test_arms_are_adjusted_for_together_and_the_baseline_does_not_count() -> None:
    generator = np.random.default_rng(0)
    planned = contest(generator, {"base": 0.3, "up": 0.5, "more": 0.6}, contrasts={"baseline": "base"})
    found = savings(planned.runs, read_design(planned), draws=500)[0]
    up, more = row_of(found, "up"), row_of(found, "more")
    assert [up.adjusted_p, more.adjusted_p] == holm([up.p, more.p])
    ratios = [row.ratios[END] for row in (up, more)]
    assert all(ratios) and [each and each.adjusted_p for each in ratios] == holm([each and each.p for each in ratios])


def test_one_seed_has_values_alone() -> None:
    found = compared([run_of("base", 0, [[0, 0], [2, 6]]), run_of("fast", 0, [[0, 0], [4, 8]])])["rollouts"]
    fast = row_of(found, "fast")
    assert fast.gain is not None and (fast.gain.value, fast.gain.low, fast.p, fast.best) == (0.125, None, None, None)
    measured = fast.ratios[END]
    assert measured is not None and measured.value == pytest.approx(0.5 / 0.75, rel=0.02)
    assert (measured.low, measured.never, measured.p, measured.clear) == (None, None, None, False)


def test_two_seeds_of_which_one_instance_alone_is_shared_show_no_spread() -> None:
    runs = [*lines("base", 0.4), *lines("base", 0.5, first=2), *lines("arm", 0.5, 0.6)]
    arm = row_of(compared(runs, instances=[{}, {}])["rollouts"], "arm")
    assert arm.seeds == 2 and arm.p is None and arm.gain is not None and arm.gain.low is None
    again = row_of(compared([*runs, *lines("arm", 0.4, first=2)], instances=[{}, {}])["rollouts"], "arm")
    assert again.p is not None


def test_an_arm_with_one_seed_takes_no_chance_from_the_others() -> None:
    found = compared([*lines("base", *[0.4] * 4), *lines("fast", *[0.8] * 4), *lines("once", 0.9)])["rollouts"]
    assert [row.best for row in found.rows] == [0, 1, None]
    assert row_of(found, "fast").p is not None and row_of(found, "once").p is None


def test_arms_on_different_seeds_are_compared_like_others() -> None:
    same, other = (
        compared([*lines("base", 0.4, 0.5), *lines("fast", 0.8, 0.7, first=first)])["rollouts"] for first in (0, 20)
    )
    assert same.rows == other.rows


def test_an_arm_without_a_curve_is_left_out_and_without_the_baseline_s_there_are_areas_alone() -> None:
    base, fast = lines("base", 0.4, 0.4), lines("fast", 0.8, 0.8)
    found = compared([*base, *fast, run_of("short", 0, scores=[0.1])], contrasts={"baseline": "base"})["rollouts"]
    assert [row.arm for row in found.rows] == ["base", "fast"]
    headless = compared([run_of("short", 0, scores=[0.1]), *fast], contrasts={"baseline": "short"})["rollouts"]
    (row,) = headless.rows
    assert headless.goals == {} and row.ratios == {} and row.gain is None and row.area == pytest.approx(0.4)
    assert compared([run_of("short", 0, scores=[0.1])]) == {}


def test_equal_arms_are_seldom_clear() -> None:
    generator, called = np.random.default_rng(3), 0
    for _ in range(60):
        found = contest(generator, {"same_0": 0.3, "same_1": 0.3}, contrasts={"baseline": "same_0"})
        row = savings(found.runs, read_design(found), draws=200)[0].rows[1]
        called += row.clear
    assert called <= 6
