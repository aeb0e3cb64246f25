"""Equal conditions, strata and tuning, by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contests import comparison_of, contest, run_of

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.analysis.design import read_design
from halfway.experiments.report.analysis.matched import Matched, match
from halfway.experiments.report.analysis.strata import strata_rows
from halfway.experiments.report.analysis.tuning import read_tuning
from halfway.experiments.report.records import Run, Stratum
from halfway.experiments.report.statistics.intervals import over_seeds


def groups(*passed: tuple[int, int]) -> list[GroupRecord]:
    """Groups of eight by (step, passes)."""
    return [GroupRecord(step, "p", "fresh", "trained", k, 8, 80) for step, k in passed]


def conditions(runs: list[Run]) -> dict[str, Matched]:
    comparison = comparison_of(runs)
    return {matched.axis.name: matched for matched in match(comparison.runs, read_design(comparison))}


def test_arms_are_read_where_all_have_spent_equally() -> None:
    short = run_of("short", 0, scores=[0.1, 0.3, 0.5], tokens=40, groups=groups((0, 0), (0, 4), (1, 8)))
    long = run_of("long", 0, scores=[0.1, 0.2, 0.3, 0.4], groups=groups((0, 0), (1, 4), (2, 4)))
    found = conditions([short, long])
    assert list(found) == ["rollouts", "steps", "tokens", "cost_0.25", "cost_1"]
    assert [matched.headline for matched in found.values()] == [True, False, False, False, False]
    rollouts, tokens = found["rollouts"], found["tokens"]
    assert (rollouts.amount, tokens.amount) == (200, 3000)
    assert [row.pass_at_1.value for row in rollouts.rows] == pytest.approx([0.5, 0.3])
    # 3,000 tokens are 75 rollouts of the one, and 300 of the other.
    assert [row.pass_at_1.value for row in tokens.rows] == pytest.approx([0.25, 0.4])
    assert [row.rollouts for row in tokens.rows] == pytest.approx([75, 300])
    assert [row.trained.value for row in tokens.rows] == pytest.approx([3, 12])
    assert [row.degenerate.value for row in rollouts.rows if row.degenerate] == pytest.approx([2 / 3, 1 / 2])
    # Until 75 rollouts three quarters of the first step's two groups.
    assert tokens.rows[0].degenerate is not None and tokens.rows[0].degenerate.value == pytest.approx(1 / 2)


def test_the_interval_of_an_arm_is_over_seeds_and_problems() -> None:
    passed = [[0, 8, 4], [4, 4, 4]]
    runs = [run_of("a", seed, [[0, 0, 0], end]) for seed, end in enumerate(passed)]
    (row,) = conditions(runs)["steps"].rows
    assert row.pass_at_1.values == (0.5, 0.5) and conditions(runs)["steps"].problems == 3
    assert row.pass_at_1.low is not None and row.pass_at_1.low < 0.5


def test_nothing_without_curves() -> None:
    comparison = comparison_of([run_of("a", 0, scores=[0.1])])
    assert match(comparison.runs, read_design(comparison)) == []


def test_strata_at_the_end() -> None:
    strata = {"10": Stratum(2, 4), "2": Stratum(2, 16)}
    run = run_of("a", 0, scores=[0.1, 0.2])
    run = replace(run, evaluations=[replace(evaluation, strata=strata) for evaluation in run.evaluations])
    (row,) = strata_rows({"a": [run, run]})
    assert list(row.rates) == ["2", "10"] and row.seeds == 2
    assert [rate.value for rate in row.rates.values() if rate] == [1.0, 0.25]
    alone = [replace(evaluation, strata={"": Stratum(4, 4)}) for evaluation in run.evaluations]
    assert strata_rows({"a": [replace(run, evaluations=alone)]}) == []


def test_tuning_is_read(tmp_path: Path) -> None:
    assert read_tuning(tmp_path, ["a"]) == []
    settings = [
        {"name": f"lr-{lr}", "values": {"learner.lr": lr, "fill.groups": 8}, "areas": {"100": lr * 1000, "101": 0.5}}
        for lr in (1e-4, 3e-4)
    ]
    settings.append({"name": "lr-unfinished", "values": {"learner.lr": 1}, "areas": {}, "mean_area": None})
    tuned = {"settings": settings, "chosen": "lr-0.0003", "at_edge": ["learner.lr"]}
    content = {"seeds": [100, 101], "arms": {"a": tuned}}
    (tmp_path / "tuning.json").write_text(json.dumps(content))
    low, high, unfinished = read_tuning(tmp_path, ["b", "a"])
    assert (high.arm, high.setting, high.chosen) == ("a", "learner.lr=0.0003, fill.groups=8", True)
    assert high.edge == ("learner.lr",) and high.area is not None and high.area.values == pytest.approx((0.3, 0.5))
    assert not (low.chosen or low.edge or unfinished.area)
    (tmp_path / "tuning.json").write_text("[]")
    with pytest.raises(UserError, match=r"tuning\.json"):
        read_tuning(tmp_path, ["a"])


def test_problems_of_different_instances_are_not_taken_for_the_same() -> None:
    generator = np.random.default_rng(2)
    told_apart = contest(generator, {"a": 0.5, "b": 1.0}, seeds=4, contrasts={"baseline": "a"})
    instances = replace(told_apart, config={**told_apart.config, "instances": [{}, {}]})
    (one, *_), (two, *_) = (match(c.runs, read_design(c)) for c in (told_apart, instances))
    assert (one.problems, two.problems) == (64, 0)
    ends = [[run.evaluations[-1].pass_at_1 for run in instances.runs[arm]] for arm in ("b", "a")]
    expected = over_seeds([b - a for b, a in zip(*ends, strict=True)])
    (row,) = two.contrasts
    assert (row.difference.value, row.difference.low) == pytest.approx((expected.value, expected.low))
