"""Errors of the pass rates that a chain's members predicted, by the lag of the outcomes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfway.curriculum.controller import Chain, PassRateController
from halfway.curriculum.groups import Group


def belief_errors(controller: PassRateController[Any], state: Any, groups: Sequence[Group]) -> dict[str, float]:
    """Mean absolute difference between expected and observed pass rate, before the groups are observed.

    Returns:
        `error` of a controller that predicts any of the groups with rollouts, stored groups excluded, and, if any of
        these has a lag, `error_lag_K` for each lag of K updates; for a chain, with the member's name as prefix.
    """
    if isinstance(controller, Chain):
        each = ((name, belief_errors(member, state[name], groups)) for name, member in controller.members.items())
        return {f"{name}/{quantity}": value for name, errors in each for quantity, value in errors.items()}
    scored = [group for group in groups if group.size and group.request.stored is None]
    expected_G = controller.predict(state, scored) if scored else None
    if expected_G is None or np.isnan(expected_G).all():
        return {}
    off_G = np.abs(expected_G - np.array([group.pass_rate for group in scored]))
    known_G, lag_G = ~np.isnan(off_G), np.array([group.lag for group in scored])
    lags = np.unique(lag_G[known_G]).tolist() if lag_G.any() else []
    by_lag = {f"error_lag_{lag}": float(off_G[known_G & (lag_G == lag)].mean()) for lag in lags}
    return {"error": float(off_G[known_G].mean()), **by_lag}
