"""Simulated contests: their runs by hand, equal arms seldom clear, a large saving nearly always."""

import numpy as np
import pytest
from contests import run_of

from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.records import Run
from halfway.experiments.results.when_does_it_pay.contest_power import (
    ARM,
    BASELINE,
    Design,
    Spread,
    contest,
    false_alarms,
    gain_in,
    power_of_area,
    power_of_ratio,
    spread_of,
)
from halfway.experiments.results.when_does_it_pay.verdict_numbers import over_regimes

DESIGN = Design(runs=8, instances=4, contrasts=2)


def lines(arm: str, *ends: float) -> list[Run]:
    """Runs that rise in straight lines from 0."""
    return [run_of(arm, seed, scores=np.linspace(0, end, 5).tolist()) for seed, end in enumerate(ends)]


def spread(*ends: float) -> Spread:
    """Of one arm in one instance."""
    return spread_of({"grpo": lines("grpo", *ends)}, "grpo", 1, ROLLOUTS)


def test_deviations_are_as_large_as_those_of_new_runs() -> None:
    found = spread(0.4, 0.6, 0.8)
    assert found.mean_G[-1] == pytest.approx(0.6)
    assert (found.deviations_NG[:, -1] ** 2).mean() == pytest.approx(np.var([0.4, 0.6, 0.8], ddof=1))


def test_effects_of_arms_and_instances_are_no_deviation() -> None:
    added = {"grpo": lines("grpo", 0.2, 0.5, 0.3), "fast": lines("fast", 0.3, 0.6, 0.4)}
    found = spread_of(added, "grpo", 3, ROLLOUTS)
    assert found.deviations_NG == pytest.approx(np.zeros((6, len(found.grid_G))), abs=1e-12)
    with pytest.raises(AssertionError, match="nothing is known about their spread"):
        spread_of({"grpo": lines("grpo", 0.2, 0.5, 0.3)}, "grpo", 3, ROLLOUTS)


def test_an_arm_that_saves_a_quarter_ends_where_the_baseline_would_have_ended() -> None:
    pooled = contest(spread(0.8, 0.8), DESIGN, {BASELINE: 0.0, ARM: 0.25}, np.random.default_rng(0))
    assert pooled.grid_G[-1] == 300 and len(pooled.strata) == 4
    assert pooled.means_AG[:, -1] == pytest.approx([0.6, 0.8])
    assert gain_in(pooled, ARM).mean == pytest.approx((0.8 - 0.6) / 2)


def test_the_spread_decides_what_can_be_shown() -> None:
    tight, loose = (spread(0.5 - by, 0.5, 0.5 + by) for by in (0.02, 0.6))
    assert power_of_area(tight, DESIGN, 0.25, contests=40) == 1
    assert power_of_area(tight, DESIGN, 0.25, contests=40, regimes=3, mean=over_regimes) > 0.8
    assert power_of_ratio(tight, DESIGN, 0.25, contests=10) == 1
    assert power_of_area(loose, DESIGN, 0.25, contests=40) < 0.4


def test_equal_arms_are_seldom_called_different() -> None:
    generator = np.random.default_rng(7)
    equal = spread(*(0.5 + 0.1 * generator.standard_normal(12)))
    assert false_alarms(equal, DESIGN, contests=150) < 0.1
