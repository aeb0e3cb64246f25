"""A whole run whose servers are killed and frozen ends as planned, with every group scored exactly once.

(The third case, a lost learner process, is in test_workers.)
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from paths import DRIVERS, IMPORTABLE, REPOSITORY
from widen import widen_heads

CONFIG = """
name: attacked
controllers: [{prefix_sampling: {max_share: 0.5}}, uniform]
problems: {source: {running_sums: {max_lines: 9}}, train: 24}
model: {path: POLICY}
fill: {policy: once, groups: 8}
rollouts:
  engine:
    vllm_servers: {kv_cache_gib: 0.1, max_length: 256, count: 2, seconds: 15, start_seconds: 600, folder: FOLDER}
  num_rollouts: 8
  max_response_tokens: 64
  sync_tolerance: 1e-4
learner: {lr: 1e-4}
budget: {steps: 5}
evaluation: {points: 1, samples: 2, problems: 8}
tracking: {mlflow: false}
threads: 1
"""


@pytest.mark.engines
def test_a_run_survives_the_loss_of_its_servers(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    widen_heads(REPOSITORY / "experiments" / "starting_models" / "sums", tmp_path / "policy", 32)
    config, run = tmp_path / "run.yaml", tmp_path / "attacked"
    config.write_text(CONFIG.replace("POLICY", str(tmp_path / "policy")).replace("FOLDER", str(tmp_path)))
    done = subprocess.run(
        [sys.executable, DRIVERS / "servers_driver.py", run, config],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE, "HF_HUB_OFFLINE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    retried = {int(step): number for step, number in json.loads((run / "retried.json").read_text()).items()}
    assert retried[1] > 0 and retried[3] > 0
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert Counter(record["step"] for record in decisions) == dict.fromkeys(range(5), 8)
    assert Counter(record["n"] for record in decisions) == {8: 40}
    assert all(record["policy_version"] == record["step"] for record in decisions)
    evaluations = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [record["step"] for record in evaluations] == [0, 5]
