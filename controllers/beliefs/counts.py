"""Beliefs: small estimates of how a problem, or a kind of problem, will turn out."""

from typing import Literal


def moving_average(mean: float, value: float, alpha: float) -> float:
    """Exponential moving average: (1 - alpha) mean + alpha value (Rollout Pass-Rate Control, equation 2).

    An observation weighs half of what it did after ln 2 / -ln(1 - alpha) updates: 13.5 at alpha = 0.05.
    """
    return (1 - alpha) * mean + alpha * value


def advance_streak(streak: int, passed: int, size: int, kinds: Literal["separate", "joint"] = "separate") -> int:
    """The run of zero-variance groups of one problem, after one more group.

    Both kinds share one signed number, since only one of them can be running: +z after z groups in a row that all
    passed (easy), -z after z that all failed (hard), 0 after any other group.

    Args:
        passed, size: k and N of the group, with N >= 2.
        kinds: "separate" = a group of the other kind starts a new run at 1; "joint" = it continues the run, and the
            sign follows the newest group.
    """
    if passed not in (0, size):
        return 0
    sign = 1 if passed == size else -1
    continues = kinds == "joint" or streak * sign > 0
    return sign * ((abs(streak) if continues else 0) + 1)
