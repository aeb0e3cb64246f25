"""The item response model against known curves."""

import numpy as np
import pytest

from halfway.controllers.beliefs.item_response import Trial, aimed, believed_rates, discounted, response


def test_the_curve_has_its_three_landmarks() -> None:
    assert response(0.4, 8.0, 0.4, 0.0) == pytest.approx(0.5)
    assert response(0.4, 8.0, 0.4, 0.2) == pytest.approx(0.6)  # midway between the guess and 1
    assert response(0.4 + np.log(3) / 8, 8.0, 0.4, 0.0) == pytest.approx(0.75)
    assert response(-9.0, 8.0, 0.4, 0.2) == pytest.approx(0.2)


@pytest.mark.parametrize(("slope", "location", "guess"), [(8.0, 0.3, 0.0), (20.0, 0.7, 0.0), (12.0, 0.5, 0.1)])
def test_a_known_curve_is_found_from_many_rollouts(slope: float, location: float, guess: float) -> None:
    shares = np.linspace(0, 0.95, 20)
    rates = response(shares, slope, location, guess)
    trials = [Trial(float(share), 400 * float(rate), 400) for share, rate in zip(shares, rates, strict=True)]
    found = believed_rates(trials, shares)
    np.testing.assert_allclose(found, rates, atol=0.03)
    assert aimed(trials, shares, 0.5) == int(np.abs(rates - 0.5).argmin())


def test_a_few_rollouts_move_the_aim_the_right_way() -> None:
    shares = [i / 16 for i in range(16)]
    failed, passed = [Trial(0.0, 0, 8)], [Trial(0.5, 8, 8)]
    assert aimed((), shares, 0.5) == 0
    assert 4 <= aimed(failed, shares, 0.5) <= 11
    assert aimed([*failed, Trial(0.5, 0, 8)], shares, 0.5) > 8
    assert aimed([*failed, *passed], shares, 0.5) < aimed(failed, shares, 0.5) < aimed(failed, shares, 0.9)
    assert all(np.diff(believed_rates([*failed, *passed], shares)) > 0)


def test_older_trials_weigh_less() -> None:
    old, new = Trial(0.2, 0, 8), Trial(0.2, 8, 8)
    assert discounted([old, new], 0.5) == [Trial(0.2, 0, 4), Trial(0.2, 8, 8)]
    assert believed_rates(discounted([old, new], 0.5), [0.2]) > believed_rates([old, new], [0.2])
    assert discounted([old, new], 0.0) == [old, new]
