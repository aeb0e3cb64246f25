"""Simulated contests: their runs by hand, equal arms seldom clear, a large saving nearly always."""

import numpy as np
import pytest
from contests import run_of

from halfway.experiments.report.analysis.axes import ROLLOUTS
from halfway.experiments.report.analysis.power import (
    ARM,
    BASELINE,
    Design,
    contest,
    false_alarms,
    gain_in,
    power_of_area,
    power_of_ratio,
    spread_of,
)
from halfway.experiments.report.records import Run

DESIGN = Design(runs=8, instances=4, contrasts=2)


def cell(*ends: float) -> list[Run]:
    """Runs that rise in straight lines from 0."""
    return [run_of("grpo", seed, scores=np.linspace(0, end, 5).tolist()) for seed, end in enumerate(ends)]


def test_deviations_are_as_large_as_those_of_new_runs() -> None:
    spread = spread_of([cell(0.4, 0.6), cell(0.7, 0.7, 1.0), cell(0.1)], ROLLOUTS)
    assert spread.mean_G[-1] == pytest.approx(0.5)
    ends = spread.deviations_NG[:, -1]
    assert ends == pytest.approx([*np.array([-0.1, 0.1]) * 2**0.5, *np.array([-0.1, -0.1, 0.2]) * 1.5**0.5])
    assert (ends[:2] ** 2).mean() == pytest.approx(np.var([0.4, 0.6], ddof=1))


def test_without_a_second_run_nothing_is_known() -> None:
    with pytest.raises(AssertionError, match="no cell has two runs"):
        spread_of([cell(0.4), cell(0.5)], ROLLOUTS)


def test_an_arm_that_saves_a_quarter_ends_where_the_baseline_would_have_ended() -> None:
    pooled = contest(
        spread_of([cell(0.8, 0.8)], ROLLOUTS), DESIGN, {BASELINE: 0.0, ARM: 0.25}, np.random.default_rng(0)
    )
    assert pooled.grid_G[-1] == 300 and len(pooled.strata) == 4
    assert pooled.means_AG[:, -1] == pytest.approx([0.6, 0.8])
    assert gain_in(pooled, ARM).mean == pytest.approx((0.8 - 0.6) / 2)


def test_the_spread_decides_what_can_be_shown() -> None:
    tight, loose = (spread_of([cell(0.5 - by, 0.5, 0.5 + by)], ROLLOUTS) for by in (0.02, 0.6))
    assert power_of_area([tight], DESIGN, 0.25, contests=40) == 1
    assert power_of_area([tight] * 3, DESIGN, 0.25, contests=40) > 0.8
    assert power_of_ratio(tight, DESIGN, 0.25, contests=10) == 1
    assert power_of_area([loose], DESIGN, 0.25, contests=40) < 0.4


def test_equal_arms_are_seldom_called_different() -> None:
    generator = np.random.default_rng(7)
    spread = spread_of([cell(*(0.5 + 0.1 * generator.standard_normal(12)))], ROLLOUTS)
    assert false_alarms([spread], DESIGN, contests=150) < 0.1
