"""Groups: the signal of their outcomes, and the error of a belief."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from controller_harness import POLICY_VERSION, child, group, problem_set
from numpy.typing import NDArray

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Group, Origin, PassRateController, Request, Rollout, chain, signals
from halfway.curriculum.controller import belief_errors
from halfway.curriculum.decision_log import group_record
from halfway.testing.controllers import trial_of
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


PROBLEMS = problem_set(4, generated=2)


def outcome(place: int, passed: int, lag: int = 0, origin: Origin = Origin.FRESH) -> Group:
    problem = PROBLEMS[place] if origin is Origin.FRESH else PROBLEMS.generated[place]
    rollouts = tuple(Rollout((), success=i < passed, truncated=False) for i in range(4))
    return replace(Group(Request(problem, 4, origin), np.zeros(0, np.int32), rollouts), lag=lag)


@dataclass(frozen=True)
class Half(PassRateController[None]):
    """Expects one half of fresh problems, and nothing of others."""

    def predict(self, state: None, groups: Sequence[Group]) -> NDArray[np.float64]:
        return np.array([0.5 if outcome.request.origin is Origin.FRESH else np.nan for outcome in groups])


def test_errors_are_means_by_member_and_by_lag() -> None:
    controller = chain(("half", Half()), ("plain", CONTROLLERS.get("uniform")()))
    state = controller.init(PROBLEMS)
    late = [outcome(0, 2), outcome(1, 3, lag=2), outcome(2, 4, lag=2), outcome(0, 4, origin=Origin.GENERATED)]
    assert belief_errors(controller, state, late) == pytest.approx(
        {"half/error": 0.25, "half/error_lag_0": 0.0, "half/error_lag_2": 0.375}
    )
    assert belief_errors(controller, state, [outcome(0, 1)]) == pytest.approx({"half/error": 0.25})
    nested = chain(("outer", controller))
    assert belief_errors(nested, {"outer": state}, [outcome(0, 1)]) == pytest.approx({"outer/half/error": 0.25})


def test_without_rollouts_or_beliefs_there_is_no_error() -> None:
    empty = Group(Request(PROBLEMS[0], 4), np.zeros(0, np.int32), ())
    assert (
        belief_errors(Half(), None, [empty]) == {} == belief_errors(Half(), None, [outcome(0, 1, 0, Origin.GENERATED)])
    )


@pytest.mark.parametrize("name", ["bots", "cdas", "frontier", "mopps", "probe", "pros"])
def test_a_belief_expects_less_of_what_has_failed(name: str) -> None:
    trial = trial_of(CONTROLLERS.get(name)())
    session = trial.session()
    for ticket in session.next_batch(trial.wanted):
        session.record_counts(ticket.id, passed=0, size=ticket.request.num_rollouts)
    groups, before = list(session.in_hand()), session.state
    session.commit()
    expected = trial.controller.members[trial.name].predict  # type: ignore[attr-defined]
    rates_G = expected(before[trial.name], groups)
    ours_G = ~np.isnan(rates_G)
    assert ours_G.any() and session.metrics()[f"{trial.name}/error"] == pytest.approx(rates_G[ours_G].mean())
    session.next_batch(trial.wanted)  # beliefs are brought up to date when they are asked
    assert expected(session.state[trial.name], groups)[ours_G].mean() < rates_G[ours_G].mean() - 0.02
