"""How far simulated leads are from measured ones."""

import math

import pytest
from paths import REPOSITORY

from halfway.experiments.advice.model_error import EXACT, LAB, Lead, ModelError
from halfway.experiments.studies.predicted_ranks import blind_error, leads_of, read_predictions

RESULTS = REPOSITORY / "experiments" / "results" / "predicted_ranks" / "predicted_ranks.json"


@pytest.fixture(scope="module")
def leads() -> dict[str, list[Lead]]:
    """Of the contest's arms over plain GRPO, by regime, as they are in the published results."""
    return leads_of(read_predictions(RESULTS), "grpo")


def test_the_share_is_that_of_least_squares_through_the_origin() -> None:
    found = ModelError.of([Lead(1.0, 0.0, 0.5), Lead(2.0, 0.0, 1.0), Lead(-1.0, 0.0, -0.5)])
    assert found.share == pytest.approx(0.5) and found.deviation == pytest.approx(0.0)
    found = ModelError.of([Lead(1.0, 0.0, 0.3), Lead(1.0, 0.0, 0.1)])
    assert found.share == pytest.approx(0.2)
    assert found.deviation == pytest.approx(math.sqrt(0.1**2 + 0.1**2))


def test_what_is_expected_holds_both_errors() -> None:
    mean, deviation = ModelError(0.5, 0.3).expected(0.4, 0.8)
    assert mean == pytest.approx(0.2) and deviation == pytest.approx(0.5)
    assert EXACT.expected(0.4, 0.1) == (0.4, 0.1)


def test_what_is_used_is_what_the_contests_say(leads: dict[str, list[Lead]]) -> None:
    pooled = ModelError.of([lead for each in leads.values() for lead in each])
    assert (round(pooled.share, 2), round(pooled.deviation, 3)) == (LAB.share, LAB.deviation)


def test_each_regime_is_foretold_by_the_others(leads: dict[str, list[Lead]]) -> None:
    """The simulation alone is far too sure of itself; with the other regimes' error it covers most leads."""
    blind = {name: blind_error(leads, name) for name in leads}
    covered = {name: error.covered(leads[name]) for name, error in blind.items() if error}
    assert covered == {"contest_hard": 8, "contest": 7, "contest_easy": 5}
    assert sum(map(len, leads.values())) == 22 and sum(map(EXACT.covered, leads.values())) == 9


def test_an_interval_is_the_mean_and_two_deviations() -> None:
    assert ModelError(0.5, 0.3).interval(0.4, 0.8) == pytest.approx((0.2 - 1.96 * 0.5, 0.2 + 1.96 * 0.5))
