"""How far beliefs are off, and by which lag."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from controller_harness import problem_set
from numpy.typing import NDArray

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Group, Origin, PassRateController, Request, Rollout, chain
from halfway.curriculum.belief_errors import belief_errors
from halfway.testing.controllers import trial_of

PROBLEMS = problem_set(4, generated=2)


def group(place: int, passed: int, lag: int = 0, origin: Origin = Origin.FRESH) -> Group:
    problem = PROBLEMS[place] if origin is Origin.FRESH else PROBLEMS.generated[place]
    rollouts = tuple(Rollout((), success=i < passed, truncated=False) for i in range(4))
    return replace(Group(Request(problem, 4, origin), np.zeros(0, np.int32), rollouts), lag=lag)


@dataclass(frozen=True)
class Half(PassRateController[None]):
    """Expects one half of fresh problems, and nothing of others."""

    def expected(self, state: None, groups: Sequence[Group]) -> NDArray[np.float64]:
        return np.array([0.5 if group.request.origin is Origin.FRESH else np.nan for group in groups])


def test_errors_are_means_by_member_and_by_lag() -> None:
    controller = chain(("half", Half()), ("plain", CONTROLLERS.get("uniform")()))
    state = controller.init(PROBLEMS)
    late = [group(0, 2), group(1, 3, lag=2), group(2, 4, lag=2), group(0, 4, origin=Origin.GENERATED)]
    assert belief_errors(controller, state, late) == pytest.approx(
        {"half/error": 0.25, "half/error_lag_0": 0.0, "half/error_lag_2": 0.375}
    )
    assert belief_errors(controller, state, [group(0, 1)]) == pytest.approx({"half/error": 0.25})
    nested = chain(("outer", controller))
    assert belief_errors(nested, {"outer": state}, [group(0, 1)]) == pytest.approx({"outer/half/error": 0.25})


def test_without_rollouts_or_beliefs_there_is_no_error() -> None:
    empty = Group(Request(PROBLEMS[0], 4), np.zeros(0, np.int32), ())
    assert belief_errors(Half(), None, [empty]) == {} == belief_errors(Half(), None, [group(0, 1, 0, Origin.GENERATED)])


@pytest.mark.parametrize("name", ["bots", "cdas", "frontier", "mopps", "probe", "pros"])
def test_a_belief_expects_less_of_what_has_failed(name: str) -> None:
    trial = trial_of(CONTROLLERS.get(name)())
    session = trial.session()
    for ticket in session.next_batch(trial.wanted):
        session.record_counts(ticket.id, passed=0, size=ticket.request.num_rollouts)
    groups, before = list(session.in_hand()), session.state
    session.commit()
    expected = trial.controller.members[trial.name].expected  # type: ignore[attr-defined]
    rates_G = expected(before[trial.name], groups)
    ours_G = ~np.isnan(rates_G)
    assert ours_G.any() and session.metrics()[f"{trial.name}/error"] == pytest.approx(rates_G[ours_G].mean())
    session.next_batch(trial.wanted)  # beliefs are brought up to date when they are asked
    assert expected(session.state[trial.name], groups)[ours_G].mean() < rates_G[ours_G].mean() - 0.02
