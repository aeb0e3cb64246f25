"""The real thing: the same arm under two names, tuned, stopped, resumed; the results are equal."""

import json
import signal
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
  tracking: {{mlflow: false}}
budget: {{steps: 3}}
seeds: [0, 1]
arms: {{plain: {{}}, the_same: {{}}}}
tune: {{grid: {{learner.lr: [1e-4, 3e-4]}}, seeds: [100], share: 0.5}}
contrasts: {{baseline: plain}}
targets: [0.5]
"""


def compare(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", "halfway.experiments.cli", "compare", "contest.yaml", "--jobs", "2"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A shell lets what it starts in the background ignore interrupts, and the tests may be such a job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


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
    [path] = (run / "checkpoints" / "step-00000003").rglob("*.safetensors")
    return path.read_bytes()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_contest_of_two_equal_arms(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "contest.yaml").write_text(CONTEST)
    folder = tmp_path / "runs" / "contest"
    running = compare(tmp_path)
    deadline = time.monotonic() + 300
    while not list(folder.glob("tuning/plain/*/seed-100/checkpoints/step-00000001")):
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.05)
    started = children_of(running.pid)
    assert len(started) >= 3  # two workers, and a run in at least one of them
    running.send_signal(how)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == (130 if how == signal.SIGINT else -how), output
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    again = compare(tmp_path)
    output, _ = again.communicate(timeout=500)
    assert again.returncode == 0, output.decode()
    tuning = json.loads((folder / "tuning.json").read_text())["arms"]
    assert tuning["plain"] == tuning["the_same"] and tuning["plain"]["at_edge"] == ["learner.lr"]
    runs = {arm: [folder / arm / f"seed-{seed}" for seed in (0, 1)] for arm in ("plain", "the_same")}
    for one, other in zip(*runs.values(), strict=True):
        assert weights(one) == weights(other)
        for name in ("decisions", "steps", "evaluations"):
            assert records(one, name) == records(other, name) != []
    assert weights(runs["plain"][0]) != weights(runs["plain"][1])
