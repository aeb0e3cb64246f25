"""Mean curves compared: areas and ratios by hand, a run that never arrives, instances, and the rate of false alarms."""

import numpy as np
import pytest
from contests import run_of
from scipy.stats import ttest_1samp

from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.analysis.pooled import (
    area_gain,
    areas,
    best_shares,
    by_instance,
    pool,
    ratio,
    spent_until,
)
from halfway.experiments.report.records import Run
from halfway.experiments.report.statistics.holm import LEVEL

END = 400  # rollouts of a run of five evaluations


def lines(arm: str, *ends: float) -> list[Run]:
    """Runs that rise in straight lines from 0."""
    return [run_of(arm, seed, scores=np.linspace(0, end, 5).tolist()) for seed, end in enumerate(ends)]


def noisy(arm: str, seeds: int, generator: np.random.Generator, gain: float = 1.0, start: float = 0.1) -> list[Run]:
    """Runs whose ends scatter by a tenth, over problems of different difficulty."""
    ease_P = np.linspace(-0.3, 0.3, 40)
    runs = []
    for seed in range(seeds):
        rises = np.linspace(0, gain * 0.5 * (1 + 0.2 * generator.standard_normal()), 5)
        rates_EP = np.clip(start + rises[:, None] + ease_P, 0, 1)
        runs.append(run_of(arm, seed, generator.binomial(8, rates_EP).tolist()))
    return runs


def test_areas_by_hand() -> None:
    pooled = pool([{"base": lines("base", 0.4, 0.8), "fast": lines("fast", 0.8, 1.0)}], ROLLOUTS)
    assert areas(pooled, END)[0] == pytest.approx([0.3, 0.45], abs=1e-9)
    assert areas(pooled, END / 2)[0] == pytest.approx([0.15, 0.225], abs=1e-9)


def test_an_arm_that_rises_twice_as_fast_spends_half() -> None:
    pooled = pool([{"base": lines("base", 0.4, 0.4), "fast": lines("fast", 0.8, 0.8)}], ROLLOUTS)
    measured = ratio(pooled, "fast", "base")
    assert measured is not None and measured.p is not None
    assert (measured.value, measured.low, measured.high) == pytest.approx((0.5, 0.5, 0.5), abs=1e-6)
    assert measured.never == 0 and measured.p == pytest.approx(1 / 3)


@pytest.mark.parametrize(("seeds", "least"), [(2, 1 / 3), (3, 1 / 10), (4, 1 / 35), (5, 1 / 126), (8, 2 / 2001)])
def test_few_runs_that_are_all_ahead_may_be_so_by_chance(seeds: int, least: float) -> None:
    """No resample says otherwise, so p is what a permutation test of so many runs gives, or 2 of 2,001."""
    runs_of = {"base": lines("base", *[0.4] * seeds), "fast": lines("fast", *[0.8] * seeds)}
    found = ratio(pool([runs_of], ROLLOUTS), "fast", "base")
    assert found is not None and found.p == pytest.approx(least)
    pairs = [{"base": lines("base", 0.4, 0.4), "fast": lines("fast", 0.8, 0.8)} for _ in range(3)]
    within = ratio(pool(pairs, ROLLOUTS), "fast", "base")
    assert within is not None and within.p == pytest.approx(2 / 6**3)


@pytest.mark.parametrize("scores", [[0, 0.2, 0.4, 0.4, 0.4], [0, 0.2, 0.4, 0.42, 0.4]])
def test_an_arm_with_the_baselines_curve_spends_as_much_though_both_stop_rising(scores: list[float]) -> None:
    runs_of = {arm: [run_of(arm, seed, scores=scores) for seed in (0, 1)] for arm in ("base", "copy")}
    found = ratio(pool([runs_of], ROLLOUTS), "copy", "base")
    assert found is not None and (found.value, found.low, found.high) == pytest.approx((1, 1, 1))


def test_one_run_of_eight_that_never_arrives_vetoes_nothing() -> None:
    fast = lines("fast", *[0.8] * 7, 0.3)
    measured = ratio(pool([{"base": lines("base", *[0.4] * 8), "fast": fast}], ROLLOUTS), "fast", "base")
    assert (
        measured is not None
        and measured.value == pytest.approx(0.4 / np.mean([0.8] * 7 + [0.3]), abs=0.01)
        and measured.never == 0
    )


def test_an_arm_that_never_arrives_is_censored_and_not_called_different_for_that() -> None:
    pooled = pool([{"base": lines("base", 0.4, 0.5), "slow": lines("slow", 0.1, 0.2)}], ROLLOUTS)
    measured = ratio(pooled, "slow", "base")
    assert measured is not None and (measured.value, measured.high, measured.never) == (None, None, 1)


def test_a_target_fixed_in_advance_is_held_against_what_the_baseline_spends_until_then() -> None:
    pooled = pool([{"base": lines("base", 0.4, 0.4), "fast": lines("fast", 0.8, 0.8)}], ROLLOUTS)
    measured = ratio(pooled, "fast", "base", target=0.2)
    assert measured is not None and measured.value == pytest.approx(0.5, abs=1e-6)
    assert spent_until(pooled, "base", np.full(2001, 0.2)) == pytest.approx(np.full(2001, END / 2), abs=1e-6)


def test_a_baseline_that_never_has_the_target_or_has_it_from_the_start_gives_no_ratio() -> None:
    pooled = pool([{"base": lines("base", 0.4, 0.4), "fast": lines("fast", 0.8, 0.8)}], ROLLOUTS)
    assert ratio(pooled, "fast", "base", target=0.5) is None
    assert ratio(pooled, "fast", "base", target=0.0) is None
    started = pool([{"base": lines("base", 0.4), "ready": [run_of("ready", 0, scores=[0.6, 0.7])]}], ROLLOUTS)
    measured = ratio(started, "ready", "base")
    assert measured is not None and measured.value == 0


def test_shares_of_the_best_add_up_and_ties_share() -> None:
    assert best_shares(np.array([[1.0, 2.0, 2.0], [3.0, 1.0, 0.0]])) == pytest.approx([0.5, 0.25, 0.25])


def test_differences_between_instances_do_not_widen_an_interval() -> None:
    generator = np.random.default_rng(3)
    instances = [
        {arm: noisy(arm, 4, generator, gain, start) for arm, gain in (("base", 0.6), ("better", 1.0))}
        for start in (0.0, 0.2, 0.4)
    ]
    within = area_gain(pool(instances, ROLLOUTS), "better", "base", END)
    merged = {arm: [run for runs_of in instances for run in runs_of[arm]] for arm in ("base", "better")}
    across = area_gain(pool([merged], ROLLOUTS), "better", "base", END)
    assert within.mean == pytest.approx(across.mean, abs=1e-9)
    assert within.p is not None and within.p < 0.05
    assert within.stderr is not None and across.stderr is not None and within.stderr < 0.7 * across.stderr


def test_seeds_take_turns_in_instances_and_one_that_lacks_an_arm_is_left_out() -> None:
    runs_of = {"base": lines("base", *[0.4] * 6), "late": lines("late", *[0.8] * 2)}
    parts = by_instance(runs_of, 3)
    assert [[run.seed for run in part["base"]] for part in parts] == [[0, 3], [1, 4]]
    assert [[run.seed for run in part["late"]] for part in parts] == [[0], [1]]
    assert by_instance({"base": runs_of["base"][:1], "late": runs_of["late"][1:]}, 2) == [
        {"base": runs_of["base"][:1], "late": runs_of["late"][1:]}
    ]


@pytest.mark.parametrize(("gain", "least", "most"), [(1.0, 0.0, 0.1), (1.5, 0.9, 1.0)])
def test_equal_arms_are_seldom_called_clear_and_better_ones_are(gain: float, least: float, most: float) -> None:
    generator = np.random.default_rng(11)
    clear = []
    for _ in range(100):
        runs_of = {"base": noisy("base", 16, generator), "arm": noisy("arm", 16, generator, gain)}
        p = area_gain(pool([runs_of], ROLLOUTS, draws=2), "arm", "base", END).p
        clear.append(p is not None and p < LEVEL)
    assert least <= np.mean(clear) <= most


def test_with_a_run_per_instance_the_instances_are_the_units() -> None:
    gains = (0.1, 0.2, 0.4)
    instances = [{"base": lines("base", 0.4), "arm": lines("arm", 0.4 + 2 * gain)} for gain in gains]
    pooled = pool(instances, ROLLOUTS)
    found = area_gain(pooled, "arm", "base", END)
    assert (found.mean, found.p) == pytest.approx((np.mean(gains), ttest_1samp(gains, 0).pvalue))
    assert areas(pooled, END)[1][:, 1].std() > 0.05  # resampled too, though each has one seed
