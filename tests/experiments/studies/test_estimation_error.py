"""Believed against freshly measured pass rates: which nodes are measured, what beliefs know, and the whole command."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from controller_harness import group, problem_set, rollout

from halfway.controllers.pros import Pros, tag
from halfway.curriculum import Stream
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.studies import estimation_error


def grown():
    """A forest of three problems, of which one was tried and grew a child that was tried too."""
    problems, pros = problem_set(3), Pros()
    made = rollout(True, 12)
    first = group(problems[0], 6, rollouts=[made] * 6 + [rollout(False, 12)] * 2)
    state = pros.observe(pros.init(problems), [first], 0)
    return problems, pros, state


def test_nodes_are_drawn_by_kind():
    _, _, state = grown()
    chosen = estimation_error.sample_nodes(state.forest, 5, Stream(0))
    assert [nodes.tolist() for nodes in chosen.values()] == [[0], [1, 2], [], [3]]
    assert len(estimation_error.sample_nodes(state.forest, 1, Stream(0))["problems, not tried"]) == 1


def test_the_log_gives_each_node_its_latest_group(tmp_path: Path):
    problems, _, state = grown()
    label = tag(state.starts[0].text)

    def record(step: int, origin: str, action: str, k: int) -> dict[str, object]:
        return {"step": step, "problem": problems[0].id, "origin": origin, "decisions": [["pros", action]], "k": k}

    rows = [
        record(0, "fresh", "near 0.50", 6),
        record(1, "fresh", "near 0.50", 2),
        record(1, "prefix", f"near 0.50 #{label}", 7),
        record(2, "fresh", "near 0.50", 8),
        {"step": 1, "problem": problems[1].id, "origin": "fresh", "decisions": [], "k": None, "outcome": "skipped"},
    ]
    lines = [json.dumps({"n": 8, "outcome": "trained", **row}) for row in rows]
    (tmp_path / "decisions.jsonl").write_text("\n".join(lines))
    known = estimation_error.evidence(state, tmp_path / "decisions.jsonl", step=2)
    assert known.last_passed_M.tolist() == [2, 0, 0, 7] and known.last_tried_M.tolist() == [8, 0, 0, 8]


def test_every_belief_judges_the_same_evidence():
    _, pros, state = grown()
    known = estimation_error.Evidence(state.forest, np.asarray([2.0, 0, 0, 0]), np.asarray([8.0, 0, 0, 0]))
    believed = estimation_error.believe(known, pros, 1, Stream(0))
    assert believed["Beta"].tolist() == [0.7, 0.5, 0.5, 0.5]  # 6 of 8, and a uniform prior
    assert believed["last rate"].tolist() == [0.25, 0.5, 0.5, 0.25]
    root = believed["hierarchical"][0]
    assert 0.5 < root < 0.75 and believed["its parent alone"].tolist() == [root, 0.5, 0.5, root]
    assert believed["hierarchical, shift 0.7"][3] > believed["hierarchical"][3] + 0.05


def test_errors_are_means_over_the_nodes_of_a_kind():
    chosen = {"problems, tried": np.asarray([0, 2]), "children, tried": np.asarray([], int)}
    rows = list(estimation_error.errors(chosen, {0: 0.5, 2: 0.0}, {"b": np.asarray([0.75, 9, 0.25])}, rollouts=50))
    assert rows[0] == ("problems, tried", "b", 2, 0.25)
    kind, belief, nodes, noise = rows[1]
    assert (kind, belief, nodes) == ("problems, tried", "noise", 2) and len(rows) == 2
    tried, never = 0.25, 0.5 / 51 * 50.5 / 51  # p (1 - p), at 25 of 50 and at 0 of 50
    assert noise == pytest.approx((math.sqrt(tried) + math.sqrt(never)) / 2 * math.sqrt(2 / (math.pi * 50)))


@pytest.mark.parametrize("p", [0.01, 0.02, 0.05])
def test_the_noise_of_rates_near_nought_is_near_its_exact_expectation(p: float):
    size = 48
    chances = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
    exact = sum(chance * abs(k / size - p) for k, chance in enumerate(chances))

    def charged(rate: float) -> float:
        chosen = {"problems, tried": np.asarray([0])}
        [(*_, noise)] = estimation_error.errors(chosen, {0: rate}, {}, rollouts=size)
        return noise

    mean = sum(chance * charged(k / size) for k, chance in enumerate(chances))
    assert exact < mean < 1.25 * exact
    measured = sum(c * math.sqrt(2 * k * (size - k) / (math.pi * size**3)) for k, c in enumerate(chances))
    assert measured < 0.91 * exact  # with the measured rate in place of p


@pytest.mark.slow
def test_the_command_measures_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from halfway.experiments.cli import main

    settings = ["budget.rollouts=512", "evaluation.points=0", "tracking.mlflow=false", "problems.train=32"]
    settings += ["checkpoint.every=1", "checkpoint.keep=9", f"output={tmp_path}", "name=run"]
    monkeypatch.setattr(sys, "argv", ["halfway", "run", "experiments/recipes/methods/pros.yaml", *settings])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    out = tmp_path / "out"
    arguments = [str(tmp_path / "run"), "--nodes", "3", "--rollouts", "4", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["estimation_error", *arguments])
    assert estimation_error.main() == 0
    rows = json.loads((out / "estimation_error.json").read_text())
    assert {row["step"] for row in rows} == {1, 2} and all(row["nodes"] <= 3 and row["error"] >= 0 for row in rows)
    assert (out / "estimation_error.png").stat().st_size > 10_000
    assert "hierarchical" in (out / "estimation_error.md").read_text()


def test_a_run_without_a_hierarchy_is_refused_in_one_line(tmp_path: Path):
    config = load_run_config(Path("experiments/recipes/lab/sums.yaml"))
    with pytest.raises(estimation_error.UserError, match=r"controllers: .* has no pros"):
        estimation_error.pros_of(config, tmp_path)
