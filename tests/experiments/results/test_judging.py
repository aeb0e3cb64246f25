"""The verdict of curves in memory: gains, costs and chances by hand, which runs count, and its tables."""

from collections.abc import Sequence

import pytest

from halfway.experiments.reproduction.run_curves import Curve, Evaluation
from halfway.experiments.results.when_does_it_pay.verdict_numbers import (
    arms_table,
    best_table,
    headline_table,
    judge,
    lab_table,
    pairs_table,
    screened_table,
)

PLAN = {
    "plain": ["grpo", "small"],
    "arms": ["fast"],
    "instances": 2,
    "seeds": {"tuning": [9], "screening": [0, 1], "confirming": [2, 3, 4, 5]},
}


def curve(arm: str, seed: int, end: int, trained: int = 50, steps: int = 4) -> Curve:
    """A run that rises in a straight line to so many tenths, over 400 rollouts of ten tokens."""
    evaluations = [
        Evaluation(i, 100 * i, 1000 * i, 10 * trained * i, float(i), (end * i,) * 10) for i in range(steps + 1)
    ]
    return Curve("hard", arm, seed, 3e-4, 40, tuple(evaluations))


def screened(ends: Sequence[tuple[str, int]]) -> list[Curve]:
    return [curve(arm, seed, end + 2 * seed) for arm, end in ends for seed in (0, 1)]


def test_gains_and_costs_by_hand() -> None:
    verdict = judge({"hard": screened([("grpo", 4), ("fast", 8)])}, PLAN)
    regime = verdict.regimes["hard"]
    assert (regime.stage, regime.runs, regime.start) == ("screening", {"grpo": 2, "fast": 2}, 0)
    assert regime.ends == pytest.approx({"grpo": 0.5, "fast": 0.9})
    fast = regime.axes["rollouts"]["fast"]
    assert fast.gain is not None and fast.gain.value == pytest.approx(0.2) and not fast.gain.clear
    assert fast.ratio is not None and fast.ratio.value == pytest.approx(5 / 9, rel=0.02)
    assert fast.best == {"a quarter": 1, "half": 1, "all": 1}
    assert regime.axes["rollouts"]["grpo"].gain is None
    assert verdict.pooled["rollouts"]["fast"].value == pytest.approx(0.2)


def test_an_arm_that_trains_more_pays_for_it_where_training_costs() -> None:
    runs = [curve("grpo", seed, 4) for seed in (0, 1)] + [curve("busy", seed, 4, trained=100) for seed in (0, 1)]
    axes = judge({"hard": runs}, PLAN).regimes["hard"].axes
    tokens, cost = (axes[name]["busy"].ratio for name in ("tokens", "cost_1"))
    assert tokens is not None and cost is not None
    assert (tokens.value, cost.value) == pytest.approx((1.0, 2000 / 1500), rel=0.03)


def test_runs_of_a_sweep_and_arms_that_lack_an_instance_do_not_count() -> None:
    more = [curve("fast", 0, 8), curve("tuned", 9, 8), curve("short", 0, 8, steps=2), curve("short", 1, 8, steps=2)]
    assert judge({"hard": [*screened([("grpo", 4)]), *more]}, PLAN).regimes == {}


def test_confirming_runs_take_the_place_of_screening_ones() -> None:
    confirming = [curve(arm, seed, end) for arm, end in (("grpo", 6), ("fast", 8)) for seed in (2, 3, 4, 5)]
    regime = judge({"hard": [*screened([("grpo", 4), ("fast", 4)]), *confirming]}, PLAN).regimes["hard"]
    assert (regime.stage, regime.runs) == ("confirming", {"grpo": 4, "fast": 4})
    assert regime.ends == pytest.approx({"grpo": 0.6, "fast": 0.8})
    gain = regime.axes["rollouts"]["fast"].gain
    assert gain is not None and gain.clear  # which no gain in screening is


def test_only_planned_contrasts_are_tested_and_only_when_every_seed_has_run() -> None:
    ends = (("grpo", 6), ("fast", 8), ("other", 9))
    runs = [curve(arm, seed, end) for arm, end in ends for seed in (2, 3, 4, 5)]
    found = judge({"hard": runs}, PLAN).regimes["hard"]
    gains = {arm: row.gain for arm, row in found.axes["rollouts"].items() if row.gain}
    assert found.complete and {arm: gain.clear for arm, gain in gains.items()} == {"fast": True, "other": False}
    partly = judge({"hard": [each for each in runs if (each.arm, each.seed) != ("fast", 5)]}, PLAN)
    assert not partly.regimes["hard"].complete
    assert not any(row.gain and row.gain.clear for row in partly.regimes["hard"].axes["rollouts"].values())
    assert arms_table(partly).rows[0][0] == "hard, not complete"
    assert not judge({"hard": runs}, {**PLAN, "arms": ["fast", "absent"]}).regimes["hard"].complete


def test_arms_are_compared_with_the_plain_recipe_that_is_best_at_each_price() -> None:
    ends = (("grpo", 4, 50), ("small", 5, 500), ("fast", 8, 50))
    runs = [curve(arm, seed, end + 2 * seed, trained) for arm, end, trained in ends for seed in (0, 1)]
    verdict = judge({"hard": runs}, PLAN)
    regime = verdict.regimes["hard"]
    assert regime.baselines == {"rollouts": "small", "tokens": "small", "cost_0.25": "grpo", "cost_1": "grpo"}
    gains = [regime.axes[axis]["fast"].gain for axis in ("rollouts", "cost_1")]
    assert [gain.value for gain in gains if gain] == pytest.approx([0.15, 0.2])
    rows = {row[1]: row for row in arms_table(verdict).rows}
    assert [rows[arm].index("1") for arm in ("small", "grpo")] == [7, 9]
    assert set(verdict.pooled["rollouts"]) == {"grpo", "fast"} and set(verdict.pooled["cost_1"]) == {"small", "fast"}


def test_the_tables_say_who_scores_highest_and_what_every_arm_costs() -> None:
    verdict = judge({name: screened([("grpo", 4), ("fast", 8), ("slow", 2)]) for name in ("hard", "long")}, PLAN)
    assert best_table(verdict).rows[0] == ("hard, screening", "rollouts", *["fast 1.00, grpo 0.00"] * 3)
    rows = {row[:2]: row for row in arms_table(verdict).rows}
    assert rows["long, screening", "grpo"][6:] == ("-", "1", "1", "1", "1")
    assert rows["long, screening", "slow"][-1] == "not reached"
    assert rows["long, screening", "fast"][5] == "0.000 -> 0.900"


def test_the_prices_are_those_of_the_plan() -> None:
    verdict = judge({"hard": screened([("grpo", 4), ("fast", 8)])}, {**PLAN, "rho": [0.5]})
    assert arms_table(verdict).columns[7:] == ("rollouts", "generated tokens", "cost, rho 0.5")
    assert verdict.regimes["hard"].baselines.keys() == {"rollouts", "tokens", "cost_0.5"}


def test_earlier_screening_stays_in_a_table_of_its_own() -> None:
    confirming = [curve(arm, seed, end) for arm, end in (("grpo", 6), ("fast", 8)) for seed in (2, 3, 4, 5)]
    verdict = judge({"hard": [*screened([("grpo", 4), ("slow", 2)]), *confirming]}, PLAN)
    assert {row[1] for row in arms_table(verdict).rows} == {"grpo", "fast"}
    assert {row[:2] for row in screened_table(verdict).rows} == {
        ("hard, screening", "grpo"),
        ("hard, screening", "slow"),
    }


def test_an_arm_with_extra_information_is_marked_and_not_among_the_highest() -> None:
    verdict = judge({"hard": screened([("grpo", 4), ("fast", 8)])}, {**PLAN, "extra_information": {"fast": "skills"}})
    assert best_table(verdict).rows[0][2:] == ("grpo 1.00, fast 0.00",) * 3
    assert {row[1]: row[2] for row in arms_table(verdict).rows} == {"grpo": "-", "fast": "skills"}


def test_the_headline_has_the_planned_arms_beside_the_plain_recipes_that_are_best() -> None:
    runs = [curve(arm, seed, end) for arm, end in (("grpo", 6), ("fast", 8), ("other", 9)) for seed in (2, 3, 4, 5)]
    late = [curve(arm, seed, end) for arm, end in (("grpo", 6), ("small", 7)) for seed in (2, 3, 4, 5)]
    table = headline_table(judge({"hard": runs, "long": late}, PLAN))
    assert table.columns == ("arm", "hard", "long, not complete", "all kinds")  # fast has not run there
    assert table.rows[0] == ("plain, for comparison", "grpo", "small", "-")
    assert [row[0] for row in table.rows[1:]] == ["fast"] and table.rows[1][2:] == ("-", "-")
    wider = headline_table(judge({"hard": runs}, {**PLAN, "headline": ["other", "fast"]}))
    assert [row[:2] for row in wider.rows[1:2]] == [("other", "+0.150, x0.67")]
    gain, rollouts = table.rows[1][1].split(", ")
    assert gain == "+0.100*" and float(rollouts[1:]) == pytest.approx(0.75, abs=0.02)


def test_arms_are_shown_with_their_results_in_the_lab() -> None:
    lab = judge({"hard": screened([("grpo", 4), ("small", 5), ("fast", 8)])}, PLAN)
    table = lab_table(judge({"sums": screened([("grpo", 5), ("fast", 3), ("new", 5)])}, PLAN), lab)
    assert table.columns == ("arm", "sums, screening", "lab: hard, screening")
    plain, grpo, fast, new = table.rows
    assert plain == ("plain, for comparison", "grpo", "small") and grpo == ("grpo", "-", "-0.050, -")
    assert fast[1] == "-0.100, -" and fast[2].startswith("+0.150, x0.") and new == ("new", "+0.000, x1.00", "-")


def test_pairs_that_have_both_run_are_compared_with_each_other() -> None:
    runs = [
        curve(arm, seed, end + seed % 2)
        for arm, end in (("grpo", 3), ("fast", 8), ("slow", 2))
        for seed in (2, 3, 4, 5)
    ]
    plan = {
        **PLAN,
        "pairs": {"hard": [["fast", "slow"], ["slow", "fast"], ["slow", "absent"], ["fast", "grpo", "tokens"]]},
    }
    verdict = judge({"hard": runs}, plan)
    pairs = {(pair.arm, pair.beside): pair.gain for pair in verdict.regimes["hard"].pairs}
    assert set(pairs) == {("fast", "slow"), ("slow", "fast"), ("fast", "grpo")}
    assert pairs["fast", "slow"].value == pytest.approx(0.3) and pairs["slow", "fast"].value == pytest.approx(-0.3)
    assert all(gain.clear for gain in pairs.values())
    assert [row[:4] for row in pairs_table(verdict).rows] == [
        ("hard", "fast", "slow", "rollouts"),
        ("hard", "slow", "fast", "rollouts"),
        ("hard", "fast", "grpo", "generated tokens"),
    ]
