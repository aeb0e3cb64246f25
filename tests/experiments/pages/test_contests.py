"""The tables of measured contests."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from halfway.curriculum.support.errors import UserError
from halfway.experiments.pages.contests import (
    MEASURES,
    Arm,
    Contest,
    Number,
    Regime,
    arms_table,
    cheapest,
    cheapest_table,
    read_contest,
    regimes_table,
)


def arm(ratio: Number | None = None, gain: Number | None = None, **other: Any) -> Arm:
    """An arm that spends the same multiple by every measure, or never reaches the baseline's end."""
    fixed = dict.fromkeys(("before", "after", "steps", "tokens", "trained_tokens", "wasted", "band"), 0.5)
    return Arm(
        **{"lr": "1e-3", "rollouts_per_group": 9.0, "strata": {}, **fixed, **other},
        gains={"rollouts": gain} if gain else {},
        reached={"end": 8 if ratio else 0},
        spent={"end": dict.fromkeys(MEASURES, ratio)} if ratio else {},
    )


def contest(**arms: Arm) -> Contest:
    regime = Regime("words", "halfway compare x.yaml", "grpo", 8, 1000, 192, {"grpo": arm(), **arms})
    return Contest("some", {"hard": regime})


FAST = arm(Number(0.6, 0.5, 0.7, True), Number(0.05, 0.01, 0.09, True))
FASTER = arm(Number(0.5, 0.4, 0.6, True), told="references")
UNCLEAR = arm(Number(0.4, 0.1, 1.3))
SLOW = arm(Number(1.6, 1.5, 1.7, True))
LOSER = arm(None, Number(-0.2, -0.25, -0.15, True))


def test_the_cheapest_arm_is_clearly_cheaper_and_told_the_same() -> None:
    regime = contest(fast=FAST, faster=FASTER, unclear=UNCLEAR, slow=SLOW, loser=LOSER).regimes["hard"]
    assert cheapest(regime, "tokens", "") == ("fast", FAST.spent["end"]["tokens"])
    assert cheapest(regime, "tokens", "references") == ("faster", FASTER.spent["end"]["tokens"])
    assert cheapest(contest(unclear=UNCLEAR, slow=SLOW).regimes["hard"], "tokens", "") is None


def test_kinds_of_arms_without_a_cheaper_one_are_counted_instead_of_shown() -> None:
    table = cheapest_table([contest(faster=FASTER, slow=SLOW)])
    assert table.rows == (("some, hard", "references", *["faster x0.50 [0.40, 0.60]"] * 4),)
    assert "1 further rows" in table.caption


def test_losses_and_arms_that_never_arrive_are_shown_like_gains() -> None:
    bound = arm(Number(0.9, 0.8, None, False, "at least"))
    rows = {row[0]: row[1:] for row in arms_table(contest(fast=FAST, loser=LOSER, bound=bound)).rows}
    assert rows["fast"] == ("-", "+0.050 [+0.010, +0.090]*", "8 of 8", *["x0.60 [0.50, 0.70]*"] * 2)
    assert rows["loser"] == ("-", "-0.200 [-0.250, -0.150]*", "0 of 8", "not reached", "not reached")
    assert rows["bound"][-1] == "≥ x0.90"


def test_a_regime_that_several_contests_share_is_shown_once() -> None:
    assert len(regimes_table([contest(fast=FAST), contest(slow=SLOW)]).rows) == 1


def test_a_contest_is_read_as_it_was_written_and_a_broken_one_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(msgspec.json.encode(contest(fast=FAST, loser=LOSER)))
    assert read_contest(path) == contest(fast=FAST, loser=LOSER)
    path.write_text('{"name": "some"}')
    with pytest.raises(UserError, match="regimes") as caught:
        read_contest(path)
    assert "\n" not in str(caught.value)
