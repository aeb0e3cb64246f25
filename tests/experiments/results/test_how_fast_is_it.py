"""The scripts behind the page "How fast is it?" run, at the size of a toy."""

import sys

import pytest
from paths import REPOSITORY

from halfway.controllers import CONTROLLERS
from halfway.experiments.results.how_fast_is_it import beside_trl, controllers, planner, tokens


def test_the_time_to_choose_is_measured_for_recipes_and_controllers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(controllers, "LIMIT", 60_000.0)
    monkeypatch.setattr(controllers, "OTHERS_LIMIT", 60_000.0)
    monkeypatch.setattr(sys, "argv", ["controllers.py", "--problems", "300", "600", "--steps", "1"])
    assert controllers.main() == 0
    shown = capsys.readouterr().out
    assert "left out" not in shown
    assert [name for name in CONTROLLERS.names() if f" {name} " not in shown] == []
    assert shown.count("  cluster/") == 10


def test_a_chain_above_its_limit_fails_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "OTHERS_LIMIT", 0.0)
    monkeypatch.setattr(sys, "argv", ["controllers.py", "--problems", "300", "--steps", "1", "--only", "mopps"])
    assert controllers.main() == 1


def test_the_cost_of_tokens_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tokens.py", "--groups", "2", "--tokens", "2000", "--repeats", "2"])
    assert tokens.main() == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in tokens.PARTS) and "nan" not in shown


def test_the_load_of_a_planning_process_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "PROBLEMS", 100)
    row = planner.measure(128, 20, "memory", 2)
    assert row["checkpoint_bytes"] > 64 * 20 * 12  # half of the rollouts: tokens, log-probabilities and entropies
    assert row["gpus"] == pytest.approx(20 / planner.TOKENS_A_SECOND / (row["rollout_ms"] / 1e3))
    assert "128 of 20 tokens, in memory" in planner.table([row]).markdown()


def test_tokens_above_their_limit_fail_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tokens.py", "--groups", "1", "--tokens", "10", "--repeats", "1"])
    assert tokens.main() == 1  # a group's text is more than so few tokens


def test_a_step_has_the_loss_and_the_gradients_of_trl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl")
    model = str(REPOSITORY / "experiments/starting_models/sums")
    sizes = ["--rollouts", "16", "--lengths", "4", "9", "--prompt", "9", "--steps", "1", "--turns", "1"]
    monkeypatch.setattr(sys, "argv", ["beside_trl.py", "--model", model, *sizes])
    assert beside_trl.main() == 0
    shown = capsys.readouterr().out
    assert "gradients by" in shown and "ratio" in shown


def test_other_gradients_than_those_of_trl_fail_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside_trl, "compare", lambda task: (0.0, 1e-4))
    for run in ("run_halfway", "run_trl"):
        monkeypatch.setattr(beside_trl, run, lambda task, steps, clock: clock.steps.extend([{"rest": 1.0}] * steps))
    model = str(REPOSITORY / "experiments/starting_models/sums")
    monkeypatch.setattr(sys, "argv", ["beside_trl.py", "--model", model])
    pytest.importorskip("trl")
    assert beside_trl.main() == 1
