"""Groups, and what their outcomes say about the signal they carry."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from controller_harness import POLICY_VERSION, child, group, problem_set

from halfway.curriculum import signals
from halfway.curriculum.decision_log import group_record
from halfway.trainers.learner.objective.advantages import advantages

(PROBLEM,) = problem_set(1)


def test_a_group_is_as_old_as_its_oldest_rollout() -> None:
    whole = group(PROBLEM, 4, size=3, rollouts=[*group(PROBLEM, 1, size=2).rollouts])
    first, second = whole.rollouts
    later = replace(second, turns=(replace(second.turns[0], policy_version=9),))
    mixed = replace(whole, rollouts=(later, first))
    assert mixed.policy_versions == (POLICY_VERSION, 9) and mixed.policy_version == POLICY_VERSION
    assert group_record(mixed, 0, 0, "trained")["policy_version"] == POLICY_VERSION
    assert replace(whole, rollouts=(later,)).policy_version == 9


def test_replayed_tokens_make_a_group_no_older() -> None:
    parent = child(PROBLEM, (2, 8), 4)
    old = parent.request.prefix
    assert old is not None
    replayed = replace(old.turns[0], policy_version=0)
    own = [replace(r, turns=(replayed, *(replace(t, policy_version=7) for t in r.turns))) for r in parent.rollouts]
    assert replace(parent, rollouts=tuple(own)).policy_versions == (7,)


def test_a_group_without_rollouts_has_no_policy_version() -> None:
    lost = replace(group(PROBLEM, 4), rollouts=(), dropped={"diverged": 8})
    assert lost.policy_versions == ()
    with pytest.raises(ValueError, match="'p0' has no tokens, so no policy version"):
        _ = lost.policy_version
    assert group_record(lost, 0, 0, "empty")["policy_version"] is None


# Rollout Pass-Rate Control, E.1; the last two rows are from its blog: H(0.1), H(0.01), and p (1 - p).
@pytest.mark.parametrize(
    ("values", "published"),
    [
        (signals.entropy([4 / 8, 3 / 8, 2 / 8, 1 / 8, 0.0, 1.0]), [1.0, 0.954, 0.811, 0.544, 0.0, 0.0]),
        (signals.survival([0.5, 0.25, 0.125], 8), [0.992, 0.900, 0.656]),
        (signals.entropy([0.1, 0.01]).round(2), [0.47, 0.08]),
        (signals.mean_centred_variance([4, 1], 8), [0.25, 0.109]),
    ],
)
def test_published_values(values, published):
    np.testing.assert_array_equal(values.round(3), published)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_expectations_equal_enumeration(p: float, size: int):
    survived = 0.0
    for outcome in product([0, 1], repeat=size):
        passed = sum(outcome)
        weight = p**passed * (1 - p) ** (size - passed)
        survived += weight * (0 < passed < size)
    assert signals.survival(p, size) == pytest.approx(survived)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_the_variance_is_the_mean_square_of_the_advantages(size: int):
    for passed in range(size + 1):
        squares = advantages([1.0] * passed + [0.0] * (size - passed), "mean") ** 2
        assert signals.mean_centred_variance(passed, size) == pytest.approx(squares.mean())


def test_every_signal_peaks_at_one_half():
    grid = np.linspace(0, 1, 101)
    for values in (signals.entropy(grid), signals.survival(grid, 8)):
        assert grid[values.argmax()] == 0.5
    assert signals.mean_centred_variance(np.arange(9), 8).argmax() == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda: signals.entropy(1.1),
        lambda: signals.survival(0.5, 0),
        lambda: signals.mean_centred_variance(9, 8),
    ],
)
def test_impossible_arguments_are_refused(call):
    with pytest.raises(ValueError):
        call()


@pytest.mark.parametrize(("p", "size"), [(0.0, 8), (0.1, 8), (0.5, 2), (0.9, 5), (1.0, 3)])
def test_expected_update_mass_is_the_mean_over_all_outcomes(p: float, size: int):
    mean = 0.0
    for outcomes in product((0, 1), repeat=size):
        chance = p ** sum(outcomes) * (1 - p) ** (size - sum(outcomes))
        mean += chance * float(signals.update_mass(sum(outcomes), size))
    assert signals.expected_update_mass(p, size) == pytest.approx(mean, abs=1e-12)


def test_update_mass_is_largest_for_one_success_and_its_expectation_at_the_derived_peak():
    assert signals.update_mass(np.arange(9), 8).tolist() == [0, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0]
    rates = np.linspace(0, 1, 10001)
    assert rates[signals.expected_update_mass(rates, 8).argmax()] == pytest.approx(1 - 8 ** (-1 / 7), abs=1e-4)
