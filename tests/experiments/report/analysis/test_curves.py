"""Curves: read between evaluations, made to rise, and crossed."""

import numpy as np
import pytest
from contests import run_of

from halfway.experiments.report.analysis.axes import ROLLOUTS, STEPS
from halfway.experiments.report.analysis.curves import (
    common_reach,
    first_crossings,
    fit_rising,
    problems_known,
    scores_at,
)


def test_rising_leaves_what_rises_and_pools_what_falls() -> None:
    assert fit_rising(np.array([[0.1, 0.2, 0.6], [0.1, 0.6, 0.2]])) == pytest.approx(
        np.array([[0.1, 0.2, 0.6], [0.1, 0.4, 0.4]])
    )


def test_a_curve_first_reaches_a_target_between_the_points_around_it() -> None:
    amounts_E = np.array([0.0, 10.0, 30.0])
    curve = np.array([0.2, 0.4, 0.4])
    targets = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    found, reached = first_crossings(amounts_E, np.tile(curve, (5, 1)), targets)
    # Met at the start twice, half-way up the first piece, at its end, never: all that was spent.
    assert found.tolist() == pytest.approx([0, 0, 5, 10, 30]) and reached.tolist() == [True] * 4 + [False]


def test_as_many_passes_in_all_is_a_tie_however_they_are_pooled() -> None:
    """190 of 384 passes reach 190 of 384, and a fall from 191 to 189 pools to the same."""
    curves = np.array([[158, 177, 190], [177, 185, 190], [100, 191, 189]]) / 384
    rising_DE = fit_rising(curves)
    for target in rising_DE[:, -1]:
        _, reached = first_crossings(np.array([0.0, 10.0, 30.0]), rising_DE, np.full(3, target))
        assert reached.all()
    less = np.array([[158, 177, 189]]) / 384
    assert not first_crossings(np.array([0.0, 10.0, 30.0]), fit_rising(less), np.array([190 / 384]))[1].any()


def test_scores_between_evaluations_are_linear_problem_by_problem() -> None:
    run = run_of("a", 0, [[0, 8], [4, 8], [8, 0]])
    found = scores_at(run, ROLLOUTS, np.array([50, 175, 900]), known=True)
    assert found == pytest.approx(np.array([[0.25, 1.0], [0.875, 0.25], [1.0, 0.0]]))
    assert scores_at(run, STEPS, np.array([2]), known=True) == pytest.approx(np.array([[1.0, 0.0]]))
    assert scores_at(run, ROLLOUTS, np.array([50]), known=False) == pytest.approx(np.array([[0.625]]))


def test_all_runs_reach_what_the_shortest_does() -> None:
    runs = [run_of("a", 0, scores=[0.1, 0.2, 0.3]), run_of("b", 0, scores=[0.1, 0.2])]
    assert common_reach(runs, ROLLOUTS) == 100


def test_problems_count_apart_only_if_all_evaluations_record_them() -> None:
    apart = run_of("a", 0, [[0, 8], [4, 8]])
    assert problems_known([apart, apart])
    assert not problems_known([apart, run_of("b", 0, scores=[0.1, 0.2])])
    assert not problems_known([apart, run_of("b", 0, [[1, 2, 3], [1, 2, 3]])])
