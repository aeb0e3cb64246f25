"""Contests simulated from measured arms: what is measured is found again, and a difference that is there is called."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from halfway.curriculum.support.errors import UserError
from halfway.experiments.studies.nulls import null_contest
from halfway.experiments.studies.nulls.contest_model import (
    Population,
    Rule,
    area,
    common_share,
    contest,
    measured,
    tune,
)
from halfway.experiments.studies.nulls.null_contest import MEASURES, clear_ratios, shift_of, study, write

ROLLOUTS = np.array([0, 25, 50, 75, 100])
HEIGHTS = np.array([-2.0, -1.0, -0.5, 0.0, 0.5])
STRAYED = np.array([[0, 0.1, 0.2, 0.3, 0.4], [0, -0.1, -0.2, -0.3, -0.4]])


def population(**changes: Any) -> Population:
    """Four runs on 60 problems; learning rate 2 is best."""
    generator = np.random.default_rng(0)
    spent = {"rollouts": 1, "steps": 0.1, "tokens": 10, "trained_tokens": 5, "seconds": 1}
    values: dict[str, Any] = {
        "name": "some",
        "ease_EP": HEIGHTS[:, None] + generator.normal(0, 1.5, 60),
        "strayed_SE": np.concatenate([STRAYED, STRAYED / 2]),
        "single": 0.3,
        "samples": 2,
        "spent_SE": {unit: np.tile(ROLLOUTS * each, (4, 1)).astype(np.float64) for unit, each in spent.items()},
        "cost_of": {1: -0.5, 2: 0.0},
        "rule": Rule(0.5, 1, 0, 1),
        "common": 0.3,
        "budget": {"rollouts": 100.0},
    }
    return Population(**{**values, **changes})


def test_what_is_expected_is_what_runs_do_on_average() -> None:
    some, generator = population(), np.random.default_rng(1)
    ends = [some.passes(i % 4, -0.5, generator)[-1].mean() / some.samples for i in range(4000)]
    assert some.expected(-0.5) == pytest.approx(np.mean(ends), abs=4 * np.std(ends) / 4000**0.5)
    assert some.expected(0.0) - some.expected(shift_of(some.expected, 0.1)) == pytest.approx(0.1)


def test_ends_are_those_of_whole_runs() -> None:
    some, generator = population(), np.random.default_rng(6)
    ends_ASP = some.ends(2, 1000, generator)
    whole_S = [some.passes(i % 4, 0.0, generator)[-1].mean() / some.samples for i in range(2000)]
    assert ends_ASP.mean() == pytest.approx(some.expected(0.0), abs=0.01)
    assert ends_ASP.mean(axis=2).std() == pytest.approx(np.std(whole_S), rel=0.1)


def test_arms_share_as_many_draws_as_they_have_in_common() -> None:
    generator = np.random.default_rng(2)
    for common in (0.0, 0.5, 1.0):
        one, other = population(common=common).draws(20_000, 2, generator)
        assert (one == other).mean() == pytest.approx(common + (1 - common) / 4, abs=0.02)


def test_a_sweep_chooses_by_the_rule_and_may_be_misled() -> None:
    generator = np.random.default_rng(3)
    clearly = population(cost_of={1: -3.0, 2: 0.0})
    assert tune(clearly, 20, generator) == [2] * 20
    nearly = population(cost_of={1: -0.02, 2: 0.0}, rule=Rule(0.5, 1, 2, 3))
    assert set(tune(nearly, 40, generator)) == {1, 2}


def test_equal_arms_that_are_tuned_apart_are_called_different(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study counts what is there: here the sweep sends every second arm to a much worse setting."""
    some = population(cost_of={1: -2.0, 2: 0.0}, strayed_SE=np.concatenate([STRAYED, STRAYED]) / 8)
    monkeypatch.setattr(null_contest, "MANY", 10)
    monkeypatch.setattr(null_contest, "tune", lambda population, arms, generator: [2, 1] * (arms // 2))
    found = study(some, 4)
    assert all(found.alarms[name].value > 0.5 for name in ("rollouts", "tokens", "cost_1", "several", "pairs"))
    assert found.agreed == 0


def test_a_null_is_counted_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null_contest, "MANY", 200)
    found = study(population(), 3)
    assert set(found.alarms) == set(MEASURES) and all(each.value < 1 for each in found.alarms.values())
    assert set(found.power) == {1, 7} and 0 < found.power[1].promised < found.power[7].promised < 1
    write([found], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"null_contest.{kind}" for kind in ("md", "json", "png")}
    assert json.loads((tmp_path / "null_contest.json").read_text())[0]["contests"] == 3


def test_ratios_are_judged_for_every_target_and_measure() -> None:
    made = contest(population(), [0.0, -4.0], 4, np.random.default_rng(4), targets=[0.3])
    names = clear_ratios(made)
    assert len(names) == 2 * 5 and {name.split(", ")[0] for name in names} == {"0.3", "the baseline's end"}
    assert "0.3, rollouts" in names and not any("seconds" in name for name in names)
    alike = population(strayed_SE=np.concatenate([STRAYED, STRAYED]) / 50, single=0.0, samples=100)
    slower = clear_ratios(contest(alike, [0.0, -0.7], 4, np.random.default_rng(5), targets=[0.3]))
    assert slower["0.3, rollouts"] and slower["0.3, cost_1"]


def write_comparison(folder: Path, strayed_SE: np.ndarray[Any, Any], samples: int) -> None:
    """Runs of an arm `a` that stray by these logits, on problems of different ease; without any other chance."""
    ease_P = np.linspace(-2, 2, 50)
    for seed, strayed_E in enumerate(strayed_SE):
        run = folder / "a" / f"seed-{seed}"
        run.mkdir(parents=True)
        rates_EP = expit(HEIGHTS[:, None] + ease_P + strayed_E[:, None])
        records = [
            {
                "step": i,
                "rollouts": int(ROLLOUTS[i]),
                "tokens": 10,
                "seconds": 1.0,
                "trained_tokens": 5,
                "pass_at_1": float(rates_P.mean()),
                "stderr": 0.0,
                "samples": samples,
                "passed": np.round(samples * rates_P).astype(int).tolist(),
            }
            for i, rates_P in enumerate(rates_EP)
        ]
        (run / "evaluations.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (run / "steps.jsonl").write_text('{"step": 0, "rollouts": 100, "tokens": 10, "seconds": 1.0}\n')
        (run / "status.json").write_text('{"state": "finished"}')
        (run / "config.yaml").write_text(f"seed: {seed}\nbudget: {{rollouts: 100}}\n")
    rows = [{"pass_at_1": {"values": [0.1, 0.2]}}, {"pass_at_1": {"values": [0.5, 0.6]}}]
    (folder / "summary.json").write_text(json.dumps({"matched": [{"headline": True, "rows": rows}]}))
    (folder / "comparison.yaml").write_text("tune: {grid: {lr: [1, 2]}, seeds: [100], share: 0.5, finals: 2}\n")
    settings = [
        {"name": f"lr-{lr}", "values": {"lr": lr}, "areas": {"100": half}, "final_areas": {"100": whole}}
        for lr, half, whole in ((1, 0.31, 0.35), (2, 0.3, 0.4))
    ]
    for setting in settings:
        setting["final_area"] = setting["final_areas"]["100"]
    (folder / "tuning.json").write_text(json.dumps({"arms": {"a": {"settings": settings, "chosen": "lr-2"}}}))


def test_a_measured_arm_is_found_again(tmp_path: Path) -> None:
    write_comparison(tmp_path, STRAYED, samples=10_000)
    found = measured(tmp_path, "a")
    assert found.name == f"{tmp_path.name}: a" and found.samples == 10_000
    # Of two runs drawn with replacement the variance is half of the estimate's: sqrt 2 times as far apart.
    assert found.strayed_SE == pytest.approx(STRAYED * 2**0.5, abs=0.02)
    assert found.single < 0.05
    assert found.rule == Rule(0.5, 1, 2, 1) and found.budget == {"rollouts": 100.0}
    assert found.cost_of[2] == 0
    shifted_EP = expit(found.ease_EP + found.cost_of[1] * found.ramp_E[:, None])
    lost = area(found, expit(found.ease_EP).mean(axis=1), 1.0) - area(found, shifted_EP.mean(axis=1), 1.0)
    assert lost == pytest.approx(0.05)  # by the finals, though half of the budget says otherwise
    assert common_share(tmp_path) == pytest.approx(1)


def test_arms_that_move_apart_have_nothing_in_common(tmp_path: Path) -> None:
    rows = [{"pass_at_1": {"values": values}} for values in ([0.1, 0.2], [0.2, 0.1], [0.3])]
    (tmp_path / "summary.json").write_text(json.dumps({"matched": [{"headline": True, "rows": rows}]}))
    assert common_share(tmp_path) == 0


def test_noise_of_attempts_alone_is_no_spread(tmp_path: Path) -> None:
    write_comparison(tmp_path, STRAYED / 20, samples=2)
    assert measured(tmp_path, "a").strayed_SE == pytest.approx(np.zeros((2, 5)), abs=1e-9)


def test_what_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fewer than two finished runs"):
        measured(tmp_path, "a")
    write_comparison(tmp_path, STRAYED, samples=2)
    tuning = json.loads((tmp_path / "tuning.json").read_text())
    tuning["arms"]["a"]["chosen"] = None
    (tmp_path / "tuning.json").write_text(json.dumps(tuning))
    with pytest.raises(UserError, match="not tuned over one field"):
        measured(tmp_path, "a")
