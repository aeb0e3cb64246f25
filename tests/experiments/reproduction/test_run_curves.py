"""The committed curves can be read and equal the runs' records; the plan names the recipes' arms."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contests import SAMPLES, run_of
from messages import says
from paths import REPOSITORY

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.experiments.config import yaml_files
from halfway.experiments.report.analysis.axes import ROLLOUTS, TOKENS, cost_axis
from halfway.experiments.report.analysis.curves import problems_known, scores_at
from halfway.experiments.reproduction.run_curves import by_arm, curve_of, read_curves, write_curves

PAYING = REPOSITORY / "experiments" / "results" / "when_does_it_pay"
PLAN = yaml_bases.parse(PAYING / "plan.yaml")


def test_a_curve_says_what_its_run_recorded(tmp_path: Path) -> None:
    run = replace(run_of("grpo", 3, [[0, 2], [4, 8]]), config={"learner": {"lr": 1e-3}})
    path = tmp_path / "curves.jsonl.gz"
    write_curves(path, [curve_of(run, "hard")])
    (curve,) = read_curves(path)
    assert (curve.regime, curve.arm, curve.seed, curve.lr, curve.samples) == ("hard", "grpo", 3, 1e-3, SAMPLES)
    (same,) = by_arm([curve])["grpo"]
    assert problems_known([same])
    for axis in (ROLLOUTS, TOKENS, cost_axis(1.0)):
        amounts_G = np.linspace(0, axis.of(run.evaluations[-1]), 3)
        assert (scores_at(same, axis, amounts_G, True) == scores_at(run, axis, amounts_G, True)).all()
    assert [each.pass_at_1 for each in same.evaluations] == pytest.approx([0.125, 0.75])


def test_equal_curves_give_equal_bytes_and_broken_files_one_line(tmp_path: Path) -> None:
    committed = read_curves(PAYING / "curves" / "screening.jsonl.gz")
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        write_curves(path, committed)
    assert first.read_bytes() == second.read_bytes() and read_curves(first) == committed
    first.write_bytes(second.read_bytes()[:-20])
    with pytest.raises(UserError, match=says("restore", "git")):
        read_curves(first)


@pytest.mark.parametrize("regime", PLAN["regimes"])
def test_the_plan_names_what_the_recipes_run(regime: str) -> None:
    recipe = yaml_files.read(REPOSITORY / "experiments" / "recipes" / "compare" / f"verdict_{regime}.yaml")
    assert len(recipe["instances"]) == PLAN["instances"]
    tuned = recipe["tune"]["seeds"]
    assert set(tuned) <= set(PLAN["seeds"]["tuning"]) and tuned[0] % PLAN["instances"] != tuned[1] % PLAN["instances"]
    assert recipe["seeds"] == PLAN["seeds"]["screening"]
    assert {*PLAN["plain"], *PLAN["arms"]} <= set(recipe["arms"])
    fresh = set(PLAN["seeds"]["confirming"])
    assert fresh.isdisjoint({*recipe["seeds"], *recipe["tune"]["seeds"]}) and len(fresh) % PLAN["instances"] == 0


@pytest.mark.parametrize("path", sorted((PAYING / "curves").glob("*.jsonl.gz")), ids=lambda path: path.stem)
def test_every_committed_curve_can_be_compared(path: Path) -> None:
    for runs in by_arm(read_curves(path)).values():
        assert all(len(run.evaluations) > 1 and run.evaluations[-1].rollouts > 0 for run in runs)
