"""The real thing: the same arm under two names, tuned, killed, resumed; the results are equal."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

CONTEST = f"""
base:
  base: {REPOSITORY}/experiments/recipes/lab/sums.yaml
  problems: {{train: 8}}
  fill: {{groups: 3}}
  rollouts: {{num_rollouts: 4, max_response_tokens: 40}}
  evaluation: {{points: 2, samples: 1, problems: 4}}
  checkpoint: {{every: 1}}
budget: {{steps: 2}}
seeds: [0, 1]
arms: {{plain: {{}}, the_same: {{}}}}
tune: {{grid: {{learner.lr: [1e-4, 3e-4]}}, seeds: [100], share: 0.5}}
contrasts: {{baseline: plain}}
targets: [0.5]
"""


def compare(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", "halfway.experiments.cli", "compare", "contest.yaml", "--jobs", "2"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def children_of(pid: int) -> list[int]:
    """The processes that it started, and their children."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(word) for word in path.read_text().split()] if path.exists() else []
    return [*found, *(far for near in found for far in children_of(near))]


def records(run: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "judge_seconds", "timing")}
        for line in lines
    ]


def weights(run: Path) -> bytes:
    [path] = (run / "checkpoints" / "step-00000002").rglob("*.safetensors")
    return path.read_bytes()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_contest_that_was_killed_goes_on_and_equal_arms_have_equal_results(tmp_path: Path) -> None:
    (tmp_path / "contest.yaml").write_text(CONTEST)
    folder = tmp_path / "runs" / "contest"
    running = compare(tmp_path)
    deadline = time.monotonic() + 300
    while not list(folder.glob("tuning/plain/*/seed-100/checkpoints/step-00000001")):
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.05)
    started = children_of(running.pid)
    assert len(started) >= 3  # two workers, and a run in at least one of them
    running.kill()
    running.communicate(timeout=60)
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    again = compare(tmp_path)
    output, _ = again.communicate(timeout=500)
    printed = output.decode()
    assert again.returncode == 0, printed
    assert "report: runs/contest/report.html" in printed and (folder / "report.html").exists()
    assert "mlflow ui --backend-store-uri sqlite:///runs/mlflow.db" in printed
    tuning = json.loads((folder / "tuning.json").read_text())["arms"]
    assert tuning["plain"] == tuning["the_same"] and tuning["plain"]["at_edge"] == ["learner.lr"]
    runs = {arm: [folder / arm / f"seed-{seed}" for seed in (0, 1)] for arm in ("plain", "the_same")}
    for one, other in zip(*runs.values(), strict=True):
        assert weights(one) == weights(other)
        for name in ("decisions", "steps", "evaluations"):
            assert records(one, name) == records(other, name) != []
    assert weights(runs["plain"][0]) != weights(runs["plain"][1])
    copied = json.loads((runs["plain"][0] / "mlflow.json").read_text())
    assert (copied["complete"], copied["step"], copied["evaluation"]) == (True, 1, 2)
    assert "held-out pass@1" in (runs["plain"][0] / "log.txt").read_text()
